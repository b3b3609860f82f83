//! Models in the formats of other programs.
//!
//! Each format is a module of its own, with a function that writes a model, one that reads a model, or both. A writer first
//! checks that the format can hold the model, and writes nothing if it cannot. Writes are atomic: a file is there whole or
//! not at all. A reader maps the file into memory, and expands quantised weights to f32. Nothing in a file is run.
//!
//! | module | program | reads | writes |
//! |---|---|---|---|
//! | [`ggml`] | whisper.cpp | yes | yes |
//! | [`openai`] | openai-whisper | yes | |
//! | [`ctranslate2`] | CTranslate2, faster-whisper | yes | |
//!
//! [`Format::of`] tells the format of a file. [`verify`](mod@verify) runs an exported model in the programs that read it, and
//! compares their transcripts.
//!
//! The Hugging Face layout is not here: it is the one that all other crates work with (`undertone_model`).

pub mod ctranslate2;
mod error;
pub mod ggml;
mod names;
pub mod openai;
mod parts;
mod read;
pub mod verify;
mod vocabulary;

pub use error::ExchangeError;
pub use read::Format;
pub use vocabulary::spellings;
