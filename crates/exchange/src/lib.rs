//! Models in the formats of other programs.
//!
//! Each format is a module of its own with a function that writes a model. Such a function first checks that the format
//! can hold the model, and writes nothing if it cannot. Writes are atomic: a file is there whole or not at all.
//!
//! | module | program |
//! |---|---|
//! | [`ggml`] | whisper.cpp |
//!
//! [`verify`](mod@verify) runs an exported model in the programs that read it, and compares their transcripts.

mod error;
pub mod ggml;
pub mod verify;

pub use error::ExchangeError;
