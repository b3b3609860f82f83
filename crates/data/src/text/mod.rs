//! Texts as they are compared: what differs between two transcripts in form alone is taken out before counting errors.

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
