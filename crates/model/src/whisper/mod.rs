//! Whisper (Radford et al., 2022): network, decoding, tokenizer, and Hugging Face folder.

mod attention;
mod bundled;
mod companions;
mod config;
mod decoder;
mod encoder;
mod folder;
mod generate;
mod generation_config;
mod layers_kept;
mod local_init;
mod network;
mod tokenizer;
mod vocabulary;

pub use crate::folder::FolderError;
pub use attention::{KeyValue, MultiHeadAttention};
pub use bundled::{BUNDLED, bundled};
pub use config::{WhisperConfig, WhisperConfigError};
pub use decoder::{DecoderCache, DecoderLayer, WhisperDecoder};
pub use encoder::{EncoderLayer, TappedStates, WhisperEncoder};
pub use folder::PretrainedWhisper;
pub use generate::{GenerateOptions, Generated, NoSpeech, TimestampRules};
pub use generation_config::GenerationConfig;
pub use network::Whisper;
pub use tokenizer::{TokenizerError, WhisperTokenizer};
