//! Text backbones: BERT (Devlin et al., 2019), DistilBERT (Sanh et al., 2019) and RoBERTa (Liu et al., 2019) encoders, their tokenizer, and their
//! Hugging Face folder.

mod config;
mod encoder;
mod folder;
mod head;
mod modules;
mod tokenizer;
mod vocabulary;

pub use crate::folder::FolderError;
pub use config::{TextEncoderConfig, TextModelType};
pub use encoder::{
    AddNorm, Intermediate, SelfAttention, TextAttention, TextBlock, TextBlocks, TextEmbeddings, TextEncoder,
    tensor_name,
};
pub use folder::PretrainedText;
pub use head::TextHead;
pub use tokenizer::{TextTokenizer, TextTokenizerError};
