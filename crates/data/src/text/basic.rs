//! The normaliser for any language.

use super::clean;

/// Whisper's normaliser for any language: lower case, no bracketed remarks, no punctuation or symbols, single spaces.
///
/// Its results are those of `transformers`' `BasicTextNormalizer`, including the space that remains of a full stop at
/// the end (error rates trim it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BasicNormalizer {
    /// Whether to strip diacritics: `é` becomes `e`, `ß` becomes `ss`. Otherwise marks are kept where Unicode composes
    /// them with their letter.
    pub remove_diacritics: bool,
}

impl BasicNormalizer {
    /// Returns the normalised text.
    pub fn normalize(&self, text: &str) -> String {
        let text = clean::remove_bracketed(&clean::lowercase(text));
        let text = if self.remove_diacritics {
            clean::remove_symbols_and_diacritics(&text)
        } else {
            clean::remove_symbols(&text)
        };
        clean::single_spaces(&text.to_lowercase())
    }
}
