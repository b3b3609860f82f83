//! Undertone: fine-tuning Whisper and routed task adapters, in Rust, on Burn.
//!
//! This crate is the facade that research code imports. It re-exports the others under one name; each of them can be
//! used alone.
//!
//! **Call [`register`] once, before a configuration or a model is loaded.** It adds the built-in kinds that no other
//! crate depends on: without it, the bundled model and configurations with the key `cw` are refused.
//!
//! | module | what it is for |
//! |---|---|
//! | [`ops`] | differentiable operations and devices |
//! | [`store`] | parameters by name, tensors on disk |
//! | [`hub`] | models and datasets from the Hugging Face hub, through its cache |
//! | [`model`] | Whisper, BERT and RoBERTa: networks, decoding, tokenizers, adapters, Hugging Face folders |
//! | [`data`] | audio, features, augmentation, manifests, the loader |
//! | [`cw`] | the Morse synthesiser, a source of samples like any other |
//! | [`metrics`] | error rates, overlap of texts, answers, entities; which way each is better |
//! | [`tasks`] | kinds of tasks: heads, labels, losses, answers, scores; a registry for one's own |
//! | [`train`] | the Learner: the training loop, checkpoints |
//! | [`fit`] | whether training fits a device: the memory model, presets, advice, the search for a batch |
//! | [`report`] | what is read from a run's directory: its page, the analysis, the monitor |
//! | [`exchange`] | models in the formats of other programs |
//! | [`transcribe`] | audio of any length to text: decoding, voice activity, word times, subtitles |
//! | [`phases`] | experiments: configuration, fine-tuning, evaluation, prediction |
//!
//! ```
//! use undertone::cw::{CwConfig, CwSynth};
//! use undertone::ops::DeviceSpec;
//! use undertone::phases::ModelConfig;
//! use undertone::transcribe::{TranscribeOptions, Transcriber};
//!
//! undertone::register()?; // the bundled model reads Morse, and `cw` is what reads it
//! let device = DeviceSpec::Auto.resolve()?;
//! let whisper = ModelConfig::default().load(&device, 42)?; // the bundled whisper-nano-cw
//! let transcriber = Transcriber::new(whisper, &device, TranscribeOptions::default())?;
//! let clip = CwSynth::new(CwConfig { clean: 1.0, ..Default::default() }, 1)?.sample(0);
//! println!("{:?} was sent, {:?} was read", clip.text, transcriber.audio(&clip.audio));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use undertone_cw as cw;
pub use undertone_data as data;
pub use undertone_exchange as exchange;
pub use undertone_fit as fit;
pub use undertone_hub as hub;
pub use undertone_kernels as kernels;
pub use undertone_metrics as metrics;
pub use undertone_model as model;
pub use undertone_ops as ops;
pub use undertone_phases as phases;
pub use undertone_report as report;
pub use undertone_store as store;
pub use undertone_tasks as tasks;
pub use undertone_train as train;
pub use undertone_transcribe as transcribe;

/// Registers the built-in kinds that no other crate depends on: the source of speech `cw`, which is the default of
/// configurations, the reader `cw`, which the bundled model needs, and the augmentation `cw`. Further calls change
/// nothing. Programs made with `undertone_cli::main` call it by themselves.
///
/// ```standalone_crate
/// use undertone::phases::Experiment;
///
/// let settings = ["data.train.cw.wpm=[20, 25]".to_owned()];
/// let refused = Experiment::load(None, &settings).expect_err("`cw` is not registered").to_string();
/// assert!(refused.contains("call `undertone::register()`"), "{refused}");
/// undertone::register()?;
/// let experiment = Experiment::load(None, &settings)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If another kind has one of their names.
pub fn register() -> Result<(), data::source::NameTaken> {
    cw::register()
}
