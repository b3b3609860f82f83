//! Transcripts without punctuation.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::is_unspaced;

/// Returns the text without its punctuation, in single spaces; unchanged if it consists of punctuation alone.
///
/// Punctuation within a word or number is kept: an apostrophe or hyphen between letters or digits, a point, comma or
/// colon between digits. Other punctuation between two words becomes a space, unless their script has no spaces.
pub(super) fn without_punctuation(text: &str) -> String {
    static PUNCTUATION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\p{P}$").expect("a built-in pattern is valid"));
    let characters: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    for (n, &character) in characters.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| characters[n]).filter(|c| c.is_alphanumeric());
        let after = characters.get(n + 1).copied().filter(|c| c.is_alphanumeric());
        if !PUNCTUATION.is_match(character.encode_utf8(&mut [0; 4])) || belongs(character, before, after) {
            kept.push(character);
        } else if !kept.ends_with(is_unspaced) {
            kept.push(' ');
        }
    }
    let words: Vec<&str> = kept.split_whitespace().collect();
    if words.is_empty() { text.to_owned() } else { words.join(" ") }
}

fn belongs(character: char, before: Option<char>, after: Option<char>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    match character {
        '\'' | '’' | '-' | '‐' => true,
        '.' | ',' | ':' => before.is_numeric() && after.is_numeric(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_goes_and_words_stay() {
        for (written, plain) in [
            ("Hello, world!", "Hello world"),
            ("Don't stop – it's well-known…", "Don't stop it's well-known"),
            ("It costs 3.50, or 1,000. At 10:30?", "It costs 3.50 or 1,000 At 10:30"),
            ("and/or; \"quoted\" (aside)", "and or quoted aside"),
            ("dogs' tails", "dogs tails"),
            ("你好，世界。", "你好世界"),
            ("¿Qué tal?", "Qué tal"),
            ("?!", "?!"),
            ("", ""),
        ] {
            assert_eq!(without_punctuation(written), plain);
        }
    }
}
