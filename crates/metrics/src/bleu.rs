//! Corpus BLEU.

use std::array;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::LazyLock;

use regex::Regex;

use crate::tokens::{is_python_space, ngrams, shared, words};

/// Maximum length of the n-grams.
const ORDER: usize = 4;

/// Counts from which BLEU is computed, summed over a corpus (Papineni et al., "BLEU: a Method for Automatic Evaluation
/// of Machine Translation", 2002).
///
/// BLEU is a value of the whole corpus and not the mean over its sentences. It equals sacrebleu's with its defaults:
/// the tokenizer of mteval-v13a, case-sensitive, n-grams up to 4, exponential smoothing.
///
/// ```
/// # use undertone_metrics::{Bleu, bleu};
/// let pairs =
///     [("The cat sat on the mat.", "The cat sat on a mat."), ("It was late, at last.", "It was late at last.")];
/// let total: Bleu = pairs.into_iter().map(|(reference, hypothesis)| bleu(&[reference], hypothesis)).sum();
/// assert_eq!(total.matches, [12, 8, 4, 1]);
/// assert!(total.score().unwrap() < 1.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bleu {
    /// Number of the hypotheses' n-grams that a reference also contains, for n from 1 to 4.
    pub matches: [usize; ORDER],
    /// Number of n-grams of the hypotheses, for n from 1 to 4.
    pub totals: [usize; ORDER],
    /// Number of tokens of the hypotheses.
    pub hypothesis_length: usize,
    /// Number of tokens of the references. With several references it is that of the one nearest to the hypothesis in
    /// length, and of two equally near the shorter.
    pub reference_length: usize,
}

/// Returns the counts of one sentence, or another aligned unit, with one or more references.
pub fn bleu<R: AsRef<str>>(references: &[R], hypothesis: &str) -> Bleu {
    let hypothesis = tokenize(hypothesis);
    let references: Vec<Vec<String>> = references.iter().map(|reference| tokenize(reference.as_ref())).collect();
    let lengths = references.iter().map(Vec::len);
    let nearest = lengths.min_by_key(|length| (length.abs_diff(hypothesis.len()), *length));
    Bleu {
        matches: array::from_fn(|i| shared(&ngrams(&hypothesis, i + 1), &most(&references, i + 1))),
        totals: array::from_fn(|i| hypothesis.len().saturating_sub(i)),
        hypothesis_length: hypothesis.len(),
        reference_length: nearest.unwrap_or(0),
    }
}

impl Bleu {
    /// BLEU in `[0, 1]`; sacrebleu and papers print it times 100. `None` if there is no token in any hypothesis or
    /// reference.
    ///
    /// It is 0 if no token matches, or if no hypothesis is long enough for one n-gram of each length.
    pub fn score(&self) -> Option<f64> {
        if self.hypothesis_length + self.reference_length == 0 {
            return None;
        }
        if self.matches == [0; ORDER] {
            // Smoothing would give a positive value.
            return Some(0.0);
        }
        let logarithms: f64 = self.precisions().iter().map(|precision| precision.ln()).sum();
        Some(self.brevity_penalty() * (logarithms / ORDER as f64).exp())
    }

    /// Share of matching n-grams, for n from 1 to 4, smoothed.
    ///
    /// The first precision that would be 0 is as if half an n-gram matched, the second as if a quarter did, and so on
    /// (Chen and Cherry, "A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU", 2014, method 3).
    /// It is 0 for a length without any n-gram.
    pub fn precisions(&self) -> [f64; ORDER] {
        let mut credit = 1.0;
        array::from_fn(|i| match (self.matches[i], self.totals[i]) {
            (_, 0) => 0.0,
            (0, total) => {
                credit /= 2.0;
                credit / total as f64
            }
            (matches, total) => matches as f64 / total as f64,
        })
    }

    /// Brevity penalty for hypotheses shorter than their references: a factor of `exp(1 - r/h)`, and 1 for longer ones.
    pub fn brevity_penalty(&self) -> f64 {
        let (hypothesis, reference) = (self.hypothesis_length as f64, self.reference_length as f64);
        if hypothesis >= reference { 1.0 } else { (1.0 - reference / hypothesis).exp() }
    }
}

impl AddAssign for Bleu {
    fn add_assign(&mut self, other: Self) {
        for i in 0..ORDER {
            self.matches[i] += other.matches[i];
            self.totals[i] += other.totals[i];
        }
        self.hypothesis_length += other.hypothesis_length;
        self.reference_length += other.reference_length;
    }
}

sums!(Bleu);

/// Maximum number of occurrences of each n-gram in one reference.
fn most(references: &[Vec<String>], n: usize) -> HashMap<&[String], usize> {
    let mut most = HashMap::new();
    for (ngram, count) in references.iter().flat_map(|reference| ngrams(reference, n)) {
        let highest = most.entry(ngram).or_insert(0);
        *highest = count.max(*highest);
    }
    most
}

/// Tokenizes as mteval-v13a does in sacrebleu.
///
/// The rules apply one after the other. Matches of a rule do not overlap, so a run of full stops is split unevenly.
fn tokenize(text: &str) -> Vec<String> {
    static RULES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
        [
            // ASCII punctuation except ' , - .
            (r"([[:punct:]--[',\-.]])", " $1 "),
            // Full stops and commas after a non-digit, then before a non-digit.
            (r"([^0-9])([.,])", "$1 $2 "),
            (r"([.,])([^0-9])", " $1 $2"),
            (r"([0-9])(-)", "$1 $2 "),
        ]
        .map(|(pattern, replacement)| (Regex::new(pattern).expect("a valid pattern"), replacement))
    });
    let text = text.trim_end_matches(is_python_space).replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let unescaped = text.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    // A space at both ends gives the first and last character the neighbour that the rules require.
    let parted = RULES.iter().fold(format!(" {unescaped} "), |text, (pattern, replacement)| {
        pattern.replace_all(&text, *replacement).into_owned()
    });
    words(&parted).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        tokenized: Vec<(String, String)>,
        corpora: Vec<Corpus>,
    }

    #[derive(Deserialize)]
    struct Corpus {
        /// References and hypothesis of each sentence.
        sentences: Vec<(Vec<String>, String)>,
        score: f64,
        counts: [usize; ORDER],
        totals: [usize; ORDER],
        precisions: [f64; ORDER],
        bp: f64,
        sys_len: usize,
        ref_len: usize,
    }

    fn fixture() -> Fixture {
        serde_json::from_str(include_str!("../tests/fixtures/bleu.json")).unwrap()
    }

    #[test]
    fn tokens_are_those_of_sacrebleu() {
        let tokenized = fixture().tokenized;
        assert!(tokenized.len() > 30);
        for (text, expected) in tokenized {
            assert_eq!(tokenize(&text).join(" "), expected, "{text:?}");
        }
    }

    #[test]
    fn scores_are_those_of_sacrebleu() {
        let corpora = fixture().corpora;
        assert!(corpora.len() > 20);
        for corpus in corpora {
            let total: Bleu =
                corpus.sentences.iter().map(|(references, hypothesis)| bleu(references, hypothesis)).sum();
            assert_eq!((total.matches, total.totals), (corpus.counts, corpus.totals));
            assert_eq!((total.hypothesis_length, total.reference_length), (corpus.sys_len, corpus.ref_len));
            assert!((total.brevity_penalty() - corpus.bp).abs() < 1e-12);
            assert!((100.0 * total.score().unwrap() - corpus.score).abs() < 1e-9);
            // sacrebleu omits the precisions if nothing matches.
            if corpus.counts != [0; ORDER] {
                for (ours, theirs) in total.precisions().into_iter().zip(corpus.precisions) {
                    assert!((100.0 * ours - theirs).abs() < 1e-9);
                }
            }
        }
    }

    #[test]
    fn no_token_has_no_score() {
        let none: [&str; 0] = [];
        assert_eq!(Bleu::default().score(), None);
        assert_eq!(bleu(&[""], " ").score(), None);
        assert_eq!(bleu(&none, "a b c d").score(), Some(0.0));
        assert_eq!(bleu(&["a b c d"], "").score(), Some(0.0));
    }

    proptest! {
        #[test]
        fn a_text_scores_1_against_itself(
            text in "[a-zA-Z0-9]{1,6}( [a-z.,&;é-]{1,6}){3,8}",
            other in "[a-z ]{0,20}",
        ) {
            // Four words or more make an n-gram of each length.
            prop_assert!((bleu(&[&text], &text).score().unwrap() - 1.0).abs() < 1e-12);
            prop_assert!((bleu(&[&other, &text], &text).score().unwrap() - 1.0).abs() < 1e-12);
        }

        #[test]
        fn scores_are_bounded_and_order_is_free(
            pairs in prop::collection::vec(("[ab. ]{0,16}", "[ab. ]{0,16}"), 1..6),
        ) {
            let forth: Bleu = pairs.iter().map(|(a, b)| bleu(&[a], b)).sum();
            let back: Bleu = pairs.iter().rev().map(|(a, b)| bleu(&[a], b)).sum();
            prop_assert_eq!(forth, back);
            prop_assert!(forth.score().is_none_or(|score| (0.0..=1.0).contains(&score)));
        }
    }
}
