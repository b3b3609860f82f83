//! ROUGE-1, ROUGE-2 and ROUGE-L.

use crate::Score;
use crate::porter::stem;
use crate::tokens::{ngrams, shared};

/// ROUGE scores of summaries, summed over a corpus.
///
/// The scores of a corpus are the means of the scores of its texts (Lin, "ROUGE: A Package for Automatic Evaluation of
/// Summaries", 2004). Every value lies in `[0, 1]`; papers print it times 100.
///
/// ```
/// # use undertone_metrics::{Rouge, rouge};
/// let pairs = [("The police killed the gunman.", "police kill the gunman"), ("It rained.", "It snowed.")];
/// let total: Rouge = pairs.into_iter().map(|(reference, summary)| rouge(reference, summary)).sum();
/// assert!((total.rouge1().unwrap().recall - (4.0 / 5.0 + 1.0 / 2.0) / 2.0).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rouge {
    /// Sums of the texts' scores.
    unigrams: Score,
    bigrams: Score,
    subsequence: Score,
    texts: usize,
}

/// Returns the ROUGE scores of one summary, as the Python package `rouge-score` does with `use_stemmer=True`.
///
/// A word is a run of ASCII letters and digits, in lower case; words of more than three characters are replaced by
/// their stems. All other characters separate words. An empty side scores 0.
///
/// The values differ slightly from ROUGE-1.5.5. With `-m`, that looks a word up in WordNet's lists of exceptions
/// (`said` is `say`) before it applies Porter's stemmer, in its first published version, and so matches a little more.
/// For the lead baseline of XSum it gives 16.30 ROUGE-1, 1.60 ROUGE-2 and 11.95 ROUGE-L (F1, times 100); this gives
/// 16.01, 1.58 and 11.79.
pub fn rouge(reference: &str, summary: &str) -> Rouge {
    let (expected, found) = (tokenize(reference), tokenize(summary));
    let of_ngrams = |n: usize| {
        let count = |tokens: &[String]| (tokens.len() + 1).saturating_sub(n);
        Score::of_counts(shared(&ngrams(&expected, n), &ngrams(&found, n)), count(&expected), count(&found))
    };
    let subsequence = Score::of_counts(common_subsequence(&expected, &found), expected.len(), found.len());
    Rouge { unigrams: of_ngrams(1), bigrams: of_ngrams(2), subsequence, texts: 1 }
}

impl Rouge {
    /// Number of scored texts.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// ROUGE-1, of single words; `None` without a text.
    pub fn rouge1(&self) -> Option<Score> {
        self.mean(self.unigrams)
    }

    /// ROUGE-2, of pairs of neighbouring words; `None` without a text.
    pub fn rouge2(&self) -> Option<Score> {
        self.mean(self.bigrams)
    }

    /// ROUGE-L, of the longest common subsequence of words; `None` without a text.
    ///
    /// The subsequence is over whole texts, without sentence boundaries (`rougeL`, not `rougeLsum`).
    pub fn rouge_l(&self) -> Option<Score> {
        self.mean(self.subsequence)
    }

    fn mean(&self, sum: Score) -> Option<Score> {
        let texts = self.texts as f64;
        let mean = Score { precision: sum.precision / texts, recall: sum.recall / texts, f1: sum.f1 / texts };
        (self.texts > 0).then_some(mean)
    }
}

sums!(Rouge { unigrams, bigrams, subsequence, texts });

fn tokenize(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let tokens = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|token| !token.is_empty());
    tokens.map(|token| if token.len() > 3 { stem(token) } else { token.to_owned() }).collect()
}

/// Length of the longest common subsequence. One row of the table is kept: `row[j]` belongs to the first `j` tokens of
/// `b`.
fn common_subsequence<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// precision, recall, F1
    type Figures = (f64, f64, f64);

    #[derive(Deserialize)]
    struct Fixture {
        pairs: Vec<Pair>,
        corpus: Scores,
    }

    #[derive(Deserialize)]
    struct Pair {
        reference: String,
        summary: String,
        tokens: Vec<String>,
        #[serde(flatten)]
        scores: Scores,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Scores {
        rouge1: Figures,
        rouge2: Figures,
        rouge_l: Figures,
    }

    fn assert_scores(ours: &Rouge, theirs: &Scores, tolerance: f64, culprit: &str) {
        let measures = [
            (ours.rouge1(), theirs.rouge1, "ROUGE-1"),
            (ours.rouge2(), theirs.rouge2, "ROUGE-2"),
            (ours.rouge_l(), theirs.rouge_l, "ROUGE-L"),
        ];
        for (score, (precision, recall, f1), name) in measures {
            let score = score.unwrap();
            for (ours, theirs) in [(score.precision, precision), (score.recall, recall), (score.f1, f1)] {
                assert!((ours - theirs).abs() < tolerance, "{name} of {culprit}: {ours}, expected {theirs}");
            }
        }
    }

    #[test]
    fn scores_are_those_of_rouge_score() {
        let fixture: Fixture = serde_json::from_str(include_str!("../tests/fixtures/rouge.json")).unwrap();
        assert!(fixture.pairs.len() > 50);
        let mut total = Rouge::default();
        for Pair { reference, summary, tokens, scores } in &fixture.pairs {
            assert_eq!(&tokenize(summary), tokens);
            let ours = rouge(reference, summary);
            assert_scores(&ours, scores, 1e-12, &format!("{reference:?} and {summary:?}"));
            total += ours;
        }
        assert_eq!(total.texts(), fixture.pairs.len());
        assert_scores(&total, &fixture.corpus, 1e-12, "the corpus");
    }

    #[test]
    fn no_text_has_no_score() {
        assert_eq!(Rouge::default().rouge1(), None);
        assert_eq!(rouge("", "word").rouge1(), Some(Score::default()));
        assert_eq!(rouge("", "").rouge_l(), Some(Score::default()));
    }

    /// The lead baseline of XSum, if it is available in `../shared` beside the repository; skipped elsewhere.
    ///
    /// The expected figures are those of rouge-score 0.1.2 over the same files.
    #[test]
    fn the_lead_baseline_of_xsum_scores_as_rouge_score_has_it() {
        let Some(folder) = undertone_testing::shared("data/summarization/rouge_check") else { return };
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
        let (gold, lead) = (read("gold-test-sentences.txt"), read("lead-test-output.txt"));
        let total: Rouge = gold.lines().zip(lead.lines()).map(|(reference, summary)| rouge(reference, summary)).sum();
        assert_eq!(total.texts(), 11_334);
        let theirs = Scores {
            rouge1: (0.168493516, 0.163616109, 0.160075204),
            rouge2: (0.016694605, 0.016355749, 0.015827438),
            rouge_l: (0.124675029, 0.120498125, 0.117874581),
        };
        assert_scores(&total, &theirs, 1e-6, "the lead baseline");
    }

    /// The length by its definition.
    fn longest(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], _) | (_, []) => 0,
            ([x, a_rest @ ..], [y, b_rest @ ..]) if x == y => 1 + longest(a_rest, b_rest),
            ([_, a_rest @ ..], [_, b_rest @ ..]) => longest(a_rest, b).max(longest(a, b_rest)),
        }
    }

    proptest! {
        #[test]
        fn the_subsequence_is_the_longest(a in "[abc]{0,8}", b in "[abc]{0,8}") {
            prop_assert_eq!(common_subsequence(a.as_bytes(), b.as_bytes()), longest(a.as_bytes(), b.as_bytes()));
        }

        #[test]
        fn a_text_scores_1_against_itself(text in "[a-z]{1,9}( [a-zA-Z.é]{0,9}){1,8} word") {
            let score = rouge(&text, &text);
            for score in [score.rouge1(), score.rouge2(), score.rouge_l()] {
                prop_assert_eq!(score, Some(Score { precision: 1.0, recall: 1.0, f1: 1.0 }));
            }
        }

        #[test]
        fn scores_are_bounded_and_order_is_free(pairs in prop::collection::vec(("[ab ]{0,12}", "[ab ]{0,12}"), 1..6)) {
            let forth: Rouge = pairs.iter().map(|(a, b)| rouge(a, b)).sum();
            let back: Rouge = pairs.iter().rev().map(|(a, b)| rouge(b, a)).sum();
            for (forth, back) in
                [(forth.rouge1(), back.rouge1()), (forth.rouge2(), back.rouge2()), (forth.rouge_l(), back.rouge_l())]
            {
                let (forth, back) = (forth.unwrap(), back.unwrap());
                prop_assert!((forth.f1 - back.f1).abs() < 1e-12 && (forth.recall - back.precision).abs() < 1e-12);
                prop_assert!([forth.f1, forth.recall, forth.precision].iter().all(|x| (0.0..=1.0).contains(x)));
            }
        }
    }
}
