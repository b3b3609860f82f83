//! Words of a running text, as corpora for tagging have them.

/// Marks that are words of their own before a word, and after one.
const OPENING: &str = "\"'“”‘’„«‹([{<¿¡`";
const CLOSING: &str = "\"'“”‘’»›)]}>.,;:!?…。，！？、`";

/// Returns the words of a text. Punctuation before and after a word is a word of its own, and so is the `'s` of a genitive, as in the
/// sentences of CoNLL that taggers learn from. Pieces without a letter or digit (`:-)`) and the points of abbreviations (`U.S.`) stay whole.
pub(super) fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().flat_map(divided).collect()
}

fn divided(piece: &str) -> Vec<&str> {
    if !piece.contains(char::is_alphanumeric) {
        return vec![piece];
    }
    let (mut before, mut after, mut word) = (Vec::new(), Vec::new(), piece);
    while let Some(mark) = word.chars().next().filter(|mark| OPENING.contains(*mark)) {
        let (first, rest) = word.split_at(mark.len_utf8());
        before.push(first);
        word = rest;
    }
    while let Some(mark) = word.chars().next_back().filter(|mark| CLOSING.contains(*mark) && !is_abbreviated(word)) {
        let (rest, last) = word.split_at(word.len() - mark.len_utf8());
        after.push(last);
        word = rest;
    }
    let genitive = ["'s", "’s"].into_iter().find_map(|end| Some(word.len() - word.strip_suffix(end)?.len()));
    let (word, genitive) = word.split_at(word.len() - genitive.unwrap_or_default());
    let parts = before.into_iter().chain([word, genitive]).chain(after.into_iter().rev());
    parts.filter(|part| !part.is_empty()).collect()
}

/// Whether the point at the end of a word belongs to it: of an initial (`J.`), or of an abbreviation with other points (`U.S.`).
fn is_abbreviated(word: &str) -> bool {
    let Some(stem) = word.strip_suffix('.') else { return false };
    let parts: Vec<&str> = stem.split('.').collect();
    let is_letter = |part: &&str| part.chars().count() == 1 && part.chars().all(char::is_alphabetic);
    parts.iter().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn punctuation_is_apart_from_words() {
        for (text, expected) in [
            ("\"London is big,\" said Peter.", &["\"", "London", "is", "big", ",", "\"", "said", "Peter", "."][..]),
            (
                "In London, “Peter” met (J. Smith).",
                &["In", "London", ",", "“", "Peter", "”", "met", "(", "J.", "Smith", ")", "."],
            ),
            (
                "The U.S. won 10,000.5 at 5:30, didn't it?",
                &["The", "U.S.", "won", "10,000.5", "at", "5:30", ",", "didn't", "it", "?"],
            ),
            (
                "Peter's @you #tag :-) e.g. so... http://a.b/c?d",
                &["Peter", "'s", "@you", "#tag", ":-)", "e.g.", "so", ".", ".", ".", "http://a.b/c?d"],
            ),
            ("  a\tb\n", &["a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_character_is_lost(text in "\\PC{0,40}") {
            let words = words(&text);
            prop_assert!(words.iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace)));
            prop_assert_eq!(words.concat(), text.split_whitespace().collect::<String>());
        }
    }
}
