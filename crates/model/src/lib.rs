//! Whisper, BERT and RoBERTa on Burn: networks, heads for text tasks, decoding, tokenizers, adapters and a router over
//! them, and the open formats in which they are loaded and saved.
//!
//! Models are loaded from folders in the Hugging Face layout and saved to folders that transformers loads. Module paths
//! are Hugging Face's tensor names, weights keep its `[out, in]` layout, and configurations use its keys.
//!
//! This crate knows neither data nor training: you pass features as tensors and compute the loss yourself.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use undertone_model::whisper::WhisperConfig;
//!
//! let device = Device::default();
//! let config = WhisperConfig { vocab_size: 60, ..WhisperConfig::new(32, 64, 2, [4, 4]) };
//! let model = config.init(&device);
//! let mel = Tensor::<3>::zeros([1, config.num_mel_bins, 200], &device);
//! let ids = Tensor::<2, Int>::from_ints([[3, 1, 4]], &device);
//! assert_eq!(model.forward(mel, ids).dims(), [1, 3, 60]);
//! ```

pub mod adaptable;
pub mod adapters;
pub mod backbone;
pub mod boxed;
mod checkpointing;
mod config_error;
mod flops;
mod folder;
pub mod frozen;
mod frozen_dtype;
pub mod heads;
pub mod known_inputs;
pub mod layers;
pub mod limits;
pub mod peft;
pub mod router;
mod shapes;
pub mod target;
#[cfg(test)]
mod testing;
pub mod text;
pub mod text_decoder;
mod tokenizer_file;
pub mod whisper;
mod whisper_backbone;
pub mod word_counts;

pub use config_error::ConfigError;
pub use folder::{FolderError, WrongSize, is_model_file, read_files};
