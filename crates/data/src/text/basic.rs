//! The normaliser for any language.

use super::clean;

/// Whisper's normaliser for any language: lower case, no bracketed remarks, no punctuation or symbols, single spaces.
///
/// Its answers are those of `transformers`' `BasicTextNormalizer`, down to the space that a full stop at the end
/// leaves behind (error rates trim it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BasicNormalizer {
    /// Also strips diacritics: `é` becomes `e`, `ß` becomes `ss`. Marks are otherwise kept where Unicode composes them
    /// with their letter.
    pub remove_diacritics: bool,
}

impl BasicNormalizer {
    /// The normalised text.
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
