//! Whisper (Radford et al., 2022): network, decoding, tokenizer, and Hugging Face folder.

mod attention;
mod bundled;
mod compact;
#[cfg(test)]
mod compact_tests;
mod companions;
mod config;
mod conformer;
mod decoder;
mod encoder;
mod folder;
mod generate;
mod generation_config;
mod growth;
mod language;
mod layers_kept;
mod local_init;
mod network;
mod options;
mod tensors;
mod tokenizer;
mod vocabulary;

pub use crate::folder::FolderError;
pub use attention::{KeyValue, MultiHeadAttention};
pub use bundled::{BUNDLED, bundled};
pub use config::WhisperConfig;
pub use conformer::{ConvolutionModule, DepthwiseConv1d, FeedForward};
pub use decoder::{DecoderCache, DecoderLayer, WhisperDecoder};
pub use encoder::{EncoderLayer, WhisperEncoder};
pub use folder::PretrainedWhisper;
pub use generate::{GenerateOptions, Generated, NoSpeech, TimestampRules};
pub use generation_config::GenerationConfig;
pub use growth::GrowthError;
pub use language::{language_code, language_codes};
pub use network::Whisper;
pub use options::{EncoderBlock, PositionEmbeddings};
pub use tokenizer::{TokenizerError, WhisperTokenizer};
