//! Steps that the normalisers share.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use unicode_normalization::UnicodeNormalization;

/// Compiles a constant pattern.
pub(super) fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a built-in pattern is valid")
}

/// Converts to lower case, with spaces for the four ASCII separators, which only Python counts as white space.
pub(super) fn lowercase(text: &str) -> String {
    text.to_lowercase().replace(|character| matches!(character, '\x1c'..='\x1f'), " ")
}

/// Removes remarks in brackets: `[laughter]`, `<unk>`, `(inaudible)`.
pub(super) fn remove_bracketed(text: &str) -> String {
    static BRACKETS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[<\[][^>\]]*[>\]]"));
    static PARENTHESES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\([^)]+\)"));
    PARENTHESES.replace_all(&BRACKETS.replace_all(text, ""), "").into_owned()
}

/// Replaces every mark, symbol and punctuation character that remains after composition (NFKC) by a space.
pub(super) fn remove_symbols(text: &str) -> String {
    static SYMBOLS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\p{M}\p{S}\p{P}]"));
    let composed: String = text.nfkc().collect();
    SYMBOLS.replace_all(&composed, " ").into_owned()
}

/// Replaces every symbol and punctuation character by a space; diacritics are removed.
pub(super) fn remove_symbols_and_diacritics(text: &str) -> String {
    static SYMBOLS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\p{M}\p{S}\p{P}]"));
    SYMBOLS.replace_all(&remove_diacritics(text), " ").into_owned()
}

/// The same, but keeps the symbols that are part of numbers.
pub(super) fn remove_symbols_but_of_numbers(text: &str) -> String {
    static SYMBOLS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[[\p{M}\p{S}\p{P}]--[.%$¢€£]]"));
    SYMBOLS.replace_all(&remove_diacritics(text), " ").into_owned()
}

/// Replaces every run of white space by one space.
pub(super) fn single_spaces(text: &str) -> String {
    static SPACES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+"));
    SPACES.replace_all(text, " ").into_owned()
}

/// Decomposes (NFKD), removes the non-spacing marks, and spells out the letters that do not decompose.
fn remove_diacritics(text: &str) -> String {
    static MARKS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\p{Mn}œŒøØæÆßẞđĐðÐþÞłŁ]"));
    let decomposed: String = text.nfkd().collect();
    let plain = MARKS.replace_all(&decomposed, |mark: &Captures| match &mark[0] {
        "œ" => "oe",
        "Œ" => "OE",
        "ø" => "o",
        "Ø" => "O",
        "æ" => "ae",
        "Æ" => "AE",
        "ß" => "ss",
        "ẞ" => "SS",
        "đ" | "ð" => "d",
        "Đ" | "Ð" => "D",
        "þ" | "Þ" => "th",
        "ł" => "l",
        "Ł" => "L",
        _ => "",
    });
    plain.into_owned()
}
