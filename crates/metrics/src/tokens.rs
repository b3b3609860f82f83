//! Token sequences for the text metrics.

use std::collections::HashMap;
use std::hash::Hash;

/// Words of a text, split at white space as by Python's `str.split()`.
///
/// That is Unicode's white space plus the four information separators.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_python_space).filter(|word| !word.is_empty())
}

/// Whether Python's `str.isspace()` holds.
pub(super) fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Number of occurrences of each run of `n` tokens; `n` is at least 1.
pub(super) fn ngrams<T: Hash + Eq>(tokens: &[T], n: usize) -> HashMap<&[T], usize> {
    let mut counts = HashMap::new();
    for ngram in tokens.windows(n) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

/// Number of occurrences that two counts share.
pub(super) fn shared<K: Hash + Eq>(a: &HashMap<K, usize>, b: &HashMap<K, usize>) -> usize {
    a.iter().filter_map(|(ngram, count)| b.get(ngram).map(|other| *count.min(other))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_part_where_python_parts_them() {
        let text = " a\u{1c}b\u{a0}c\u{2003}d\u{85}e\u{200b}f\n";
        assert_eq!(words(text).collect::<Vec<_>>(), ["a", "b", "c", "d", "e\u{200b}f"]);
    }

    #[test]
    fn an_ngram_is_shared_as_often_as_it_occurs_in_both() {
        let (a, b) = (["x", "y", "x", "y", "x"], ["x", "y", "z", "x", "y"]);
        assert_eq!(ngrams(&a, 2)[["x", "y"].as_slice()], 2);
        assert_eq!(shared(&ngrams(&a, 1), &ngrams(&b, 1)), 4);
        assert_eq!(shared(&ngrams(&a, 2), &ngrams(&b, 2)), 2);
        assert!(ngrams(&a, 6).is_empty());
    }
}
