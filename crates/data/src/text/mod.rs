//! Text normalisation: removes differences of form between two transcripts before errors are counted.

mod basic;
mod clean;
mod english;
mod numbers;
mod script;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use basic::BasicNormalizer;
pub use english::{EnglishNormalizer, NormalizerError};
pub use script::{append, is_unspaced};
