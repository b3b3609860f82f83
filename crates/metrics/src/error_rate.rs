//! Character and word error rates.

use crate::tokens::{is_python_space, words};

/// Edits between hypotheses and references, summed over a corpus.
///
/// The rate of a corpus is all edits over all reference symbols, not the mean of the rates of its texts: a long text
/// has more weight than a short one, and texts with an empty reference can be included. For those, every symbol of the
/// hypothesis is an insertion that adds to the edits and nothing to the length. The rate may exceed 1.
///
/// ```
/// # use undertone_metrics::{ErrorRate, wer};
/// let pairs = [("the cat sat", "the cat sat"), ("", "uh"), ("on the mat", "on mat")];
/// let total: ErrorRate = pairs.into_iter().map(|(reference, hypothesis)| wer(reference, hypothesis)).sum();
/// assert_eq!(total.rate(), Some(2.0 / 6.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorRate {
    /// Edits from the references to the hypotheses.
    pub edits: Edits,
    /// Number of symbols in the references.
    pub length: usize,
}

/// Edits of a shortest path from a reference to a hypothesis.
///
/// Their total is unique. Its split may not be (`ab` becomes `bc` by two substitutions, or by a deletion and an
/// insertion); this selects the same path as RapidFuzz, and with it jiwer, on texts of ordinary length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edits {
    /// Number of substituted reference symbols.
    pub substitutions: usize,
    /// Number of hypothesis symbols that are not in the reference.
    pub insertions: usize,
    /// Number of reference symbols that are not in the hypothesis.
    pub deletions: usize,
}

/// Returns the character error rate of one text, in Unicode scalar values.
///
/// Leading and trailing white space (as of Python's `str.strip`) is ignored; a space between words is a character like any other.
pub fn cer(reference: &str, hypothesis: &str) -> ErrorRate {
    let reference: Vec<char> = reference.trim_matches(is_python_space).chars().collect();
    let hypothesis: Vec<char> = hypothesis.trim_matches(is_python_space).chars().collect();
    ErrorRate::between(&reference, &hypothesis)
}

/// Returns the word error rate of one text. Words are separated by white space.
pub fn wer(reference: &str, hypothesis: &str) -> ErrorRate {
    let [reference, hypothesis] = [reference, hypothesis].map(|text| words(text).collect::<Vec<_>>());
    ErrorRate::between(&reference, &hypothesis)
}

impl ErrorRate {
    /// Returns the Levenshtein distance between two sequences of any symbols.
    pub fn between<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> Self {
        Self { edits: levenshtein(reference, hypothesis), length: reference.len() }
    }

    /// Number of reference symbols that the hypotheses have, too.
    ///
    /// Hits, substitutions and deletions add up to the length; insertions come on top.
    pub fn hits(&self) -> usize {
        self.length - self.edits.substitutions - self.edits.deletions
    }

    /// Edits per reference symbol; `None` if there is no reference symbol.
    pub fn rate(&self) -> Option<f64> {
        (self.length > 0).then(|| self.edits.total() as f64 / self.length as f64)
    }
}

sums!(Edits { substitutions, insertions, deletions });
sums!(ErrorRate { edits, length });

impl Edits {
    /// Total number of edits.
    pub fn total(&self) -> usize {
        self.substitutions + self.insertions + self.deletions
    }

    fn substitute(self) -> Self {
        Self { substitutions: self.substitutions + 1, ..self }
    }

    fn insert(self) -> Self {
        Self { insertions: self.insertions + 1, ..self }
    }

    fn delete(self) -> Self {
        Self { deletions: self.deletions + 1, ..self }
    }
}

/// Computes the usual table, one row at a time: `row[j]` is the path from the reference so far to the first `j` symbols
/// of the hypothesis. Each cell holds the edits of one shortest path and not just their number. So the whole table is
/// not needed to trace the path back, and memory grows with the hypothesis alone.
fn levenshtein<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> Edits {
    let (reference, hypothesis) = without_common_ends(reference, hypothesis);
    let mut row: Vec<Edits> =
        (0..=hypothesis.len()).map(|insertions| Edits { insertions, ..Edits::default() }).collect();
    for expected in reference {
        let mut diagonal = row[0];
        row[0] = diagonal.delete();
        for (j, found) in hypothesis.iter().enumerate() {
            let (above, left) = (row[j + 1], row[j]);
            let matched = if expected == found { diagonal } else { diagonal.substitute() };
            let least = matched.total().min(above.total() + 1).min(left.total() + 1);
            // Ties are resolved as in RapidFuzz. It inserts only if that is cheaper than the diagonal it came from,
            // which is stricter than being a shortest path.
            row[j + 1] = if above.total() + 1 == least {
                above.delete()
            } else if left.total() + 1 == diagonal.total() {
                left.insert()
            } else {
                matched
            };
            diagonal = above;
        }
    }
    row[hypothesis.len()]
}

/// Removes equal symbols at both ends, which cost nothing; most hypotheses are nearly right, so little remains to
/// compare.
fn without_common_ends<'a, T: PartialEq>(mut a: &'a [T], mut b: &'a [T]) -> (&'a [T], &'a [T]) {
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (a, b) = (&a[prefix..], &b[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (&a[..a.len() - suffix], &b[..b.len() - suffix])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// Hits, substitutions, deletions, insertions.
    type Counts = (usize, usize, usize, usize);

    #[derive(Deserialize)]
    struct Fixture {
        pairs: Vec<Pair>,
        corpus_words: Counts,
        corpus_chars: Counts,
        corpus_wer: f64,
        corpus_cer: f64,
    }

    #[derive(Deserialize)]
    struct Pair {
        reference: String,
        hypothesis: String,
        words: Counts,
        chars: Counts,
    }

    fn counts(rate: ErrorRate) -> Counts {
        let Edits { substitutions, insertions, deletions } = rate.edits;
        (rate.hits(), substitutions, deletions, insertions)
    }

    #[test]
    fn counts_and_rates_are_those_of_jiwer() {
        let fixture: Fixture = serde_json::from_str(include_str!("../tests/fixtures/jiwer.json")).unwrap();
        assert!(fixture.pairs.len() > 50);
        let (mut words, mut chars) = (ErrorRate::default(), ErrorRate::default());
        for Pair { reference, hypothesis, words: expected_words, chars: expected_chars } in &fixture.pairs {
            let (word, char) = (wer(reference, hypothesis), cer(reference, hypothesis));
            assert_eq!(counts(word), *expected_words, "words of {reference:?} and {hypothesis:?}");
            assert_eq!(counts(char), *expected_chars, "chars of {reference:?} and {hypothesis:?}");
            words += word;
            chars += char;
        }
        assert_eq!((counts(words), counts(chars)), (fixture.corpus_words, fixture.corpus_chars));
        assert!((words.rate().unwrap() - fixture.corpus_wer).abs() < 1e-12);
        assert!((chars.rate().unwrap() - fixture.corpus_cer).abs() < 1e-12);
    }

    #[test]
    fn an_empty_reference_counts_insertions_and_no_length() {
        let empty = wer(" ", "two words");
        assert_eq!((counts(empty), empty.length), ((0, 0, 0, 2), 0));
        assert_eq!(empty.rate(), None);
        assert_eq!(wer("", "").rate(), None);
        assert_eq!((empty + wer("a b c d", "a b c d")).rate(), Some(0.5));
        assert_eq!(cer("abc", "").rate(), Some(1.0));
    }

    #[test]
    fn separators_at_the_ends_are_white_space_as_in_python() {
        assert_eq!(cer("one two\u{1c}", "\u{1f}one two").rate(), Some(0.0));
        assert_eq!(wer("one two\u{1c}", "one two").rate(), Some(0.0));
    }

    /// The table by its definition.
    fn distance(a: &[char], b: &[char]) -> usize {
        match (a, b) {
            (rest, []) | ([], rest) => rest.len(),
            ([x, a_rest @ ..], [y, b_rest @ ..]) if x == y => distance(a_rest, b_rest),
            ([_, a_rest @ ..], [_, b_rest @ ..]) => {
                1 + distance(a_rest, b_rest).min(distance(a_rest, b)).min(distance(a, b_rest))
            }
        }
    }

    proptest! {
        #[test]
        fn the_distance_is_the_least(a in "[abc]{0,6}", b in "[abc]{0,6}") {
            let (left, right): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
            let rate = cer(&a, &b);
            prop_assert_eq!(rate.edits.total(), distance(&left, &right));
            prop_assert_eq!(right.len() + rate.edits.deletions, left.len() + rate.edits.insertions);
            prop_assert_eq!(cer(&b, &a).edits.total(), rate.edits.total());
            prop_assert_eq!(rate.hits() + rate.edits.substitutions + rate.edits.insertions, right.len());
        }
    }
}
