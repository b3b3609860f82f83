//! Units of comparison: words, or characters in scripts without spaces between words.

use std::collections::HashMap;
use std::ops::Range;

use unicode_normalization::char::is_combining_mark;

use crate::text::{BasicNormalizer, is_unspaced};

/// Numbers of normalised words; equal words have equal numbers.
#[derive(Default)]
pub(super) struct Numbers(HashMap<String, u32>);

/// A text as a sequence of units.
pub(super) struct Units {
    /// Numbers of the units, in order.
    pub numbers: Vec<u32>,
    /// Index of the word that contains each unit: a hyphenated word has several.
    pub word_of: Vec<usize>,
    /// Words as byte ranges of the text, with the punctuation that belongs to them: together everything but white
    /// space.
    pub words: Vec<Range<usize>>,
}

impl Units {
    pub fn new(text: &str, numbers: &mut Numbers) -> Self {
        let normalizer = BasicNormalizer { remove_diacritics: true };
        let mut units = Self { numbers: Vec::new(), word_of: Vec::new(), words: Vec::new() };
        let mut pending = None;
        for Range { start, end } in words(text) {
            let normal = normalizer.normalize(&text[start..end]);
            if normal.trim().is_empty() {
                // Separate punctuation belongs to the word before it, or at the beginning to the word after it.
                match units.words.last_mut() {
                    Some(word) => word.end = end,
                    None => pending = pending.or(Some(start)),
                }
                continue;
            }
            units.words.push(pending.take().unwrap_or(start)..end);
            for part in normal.split_whitespace() {
                let next = numbers.0.len() as u32;
                units.numbers.push(*numbers.0.entry(part.to_owned()).or_insert(next));
                units.word_of.push(units.words.len() - 1);
            }
        }
        units
    }
}

/// Returns the words between white space; in a script without spaces, each character is one.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut after_space = true;
    // First character of the current word that is not an opening bracket or quote.
    let mut core: Option<char> = None;
    for (at, character) in text.char_indices() {
        if character.is_whitespace() {
            after_space = true;
            continue;
        }
        let unspaced = core.is_some_and(is_unspaced);
        let mark = is_combining_mark(character);
        let starts = match character {
            character if is_unspaced(character) && !mark => core.is_some(),
            character if is_opening(character) || character.is_alphanumeric() => unspaced && !mark,
            _ => false,
        };
        if starts || after_space {
            words.push(at..at);
            core = None;
        }
        core = core.or(Some(character).filter(|character| !is_opening(*character)));
        if let Some(word) = words.last_mut() {
            word.end = at + character.len_utf8();
        }
        after_space = false;
    }
    words
}

fn is_opening(character: char) -> bool {
    "([{<«“‘„‚¿¡（「『《〈【〔［｛".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        words(text).into_iter().map(|word| &text[word]).collect()
    }

    #[test]
    fn words_are_between_spaces_or_single_characters() {
        assert_eq!(split(" Well,  don't (you)\tsay!"), ["Well,", "don't", "(you)", "say!"]);
        assert_eq!(split("你好，「世界」。ok"), ["你", "好，", "「世", "界」。", "ok"]);
        assert_eq!(split("3人のHello世"), ["3", "人", "の", "Hello", "世"]);
        assert_eq!(split("ที่นี่"), ["ที่", "นี่"]);
        assert_eq!(split("well-\"known\" (ok)."), ["well-\"known\"", "(ok)."]);
        assert!(split("  ").is_empty());
    }

    #[test]
    fn punctuation_goes_with_its_word_and_forms_count_as_one() {
        let numbers = &mut Numbers::default();
        let text = "– Well-known CAFÉ — yes";
        let units = Units::new(text, numbers);
        let words: Vec<&str> = units.words.iter().map(|word| &text[word.clone()]).collect();
        assert_eq!(words, ["– Well-known", "CAFÉ —", "yes"]);
        assert_eq!(units.word_of, [0, 0, 1, 2]);
        assert_eq!(Units::new("well known cafe yes", numbers).numbers, units.numbers);
    }
}
