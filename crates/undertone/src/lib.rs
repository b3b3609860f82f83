//! Undertone: fine-tuning Whisper and routed task adapters, in Rust, on Burn.
//!
//! This crate is the facade that research code imports. It re-exports the others under one name and has nothing of its
//! own; each of them can be used alone.
//!
//! | module | what it is for |
//! |---|---|
//! | [`ops`] | differentiable operations and devices |
//! | [`store`] | parameters by name, tensors on disk |
//! | [`model`] | Whisper, BERT and RoBERTa: networks, decoding, tokenizers, adapters, Hugging Face folders |
//! | [`data`] | audio, features, Morse synthesis, manifests, the loader |
//! | [`tasks`] | kinds of tasks: heads, labels, losses, answers, scores; a registry for one's own |
//! | [`train`] | the Learner: the training loop, checkpoints, metrics |
//! | [`phases`] | experiments: configuration, fine-tuning, evaluation, transcription |
//!
//! ```
//! use undertone::data::cw::{CwConfig, CwSynth};
//! use undertone::ops::DeviceSpec;
//! use undertone::phases::{ModelConfig, Transcriber};
//!
//! let device = DeviceSpec::Auto.resolve()?;
//! let whisper = ModelConfig::default().load(&device, 42)?; // the bundled whisper-nano-cw
//! let transcriber = Transcriber::new(whisper, &device, None, None)?;
//! let clip = CwSynth::new(CwConfig { clean: 1.0, ..Default::default() }, 1)?.sample(0);
//! println!("{:?} was sent, {:?} was read", clip.text, transcriber.audio(&clip.audio));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use undertone_data as data;
pub use undertone_kernels as kernels;
pub use undertone_model as model;
pub use undertone_ops as ops;
pub use undertone_phases as phases;
pub use undertone_store as store;
pub use undertone_tasks as tasks;
pub use undertone_train as train;
