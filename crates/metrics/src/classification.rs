//! Accuracy and F1 of single decisions.

use std::collections::BTreeMap;

use crate::Score;

/// Confusion matrix: counts of predicted labels by reference label, over an evaluation set.
///
/// ```
/// # use undertone_metrics::ConfusionMatrix;
/// let decisions = [("yes", "yes"), ("yes", "no"), ("no", "no"), ("no", "no")];
/// let matrix: ConfusionMatrix<&str> = decisions.into_iter().collect();
/// assert_eq!(matrix.accuracy(), Some(0.75));
/// let recalls: Vec<_> = matrix.by_label().map(|(label, score)| (*label, score.recall)).collect();
/// assert_eq!(recalls, [("no", 1.0), ("yes", 0.5)]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix<L> {
    /// Counts by reference and prediction; no count is 0.
    counts: BTreeMap<(L, L), usize>,
}

impl<L: Ord> ConfusionMatrix<L> {
    /// Adds one decision.
    pub fn add(&mut self, reference: L, prediction: L) {
        *self.counts.entry((reference, prediction)).or_insert(0) += 1;
    }

    /// Share of correct decisions, in `[0, 1]`; `None` without a decision.
    pub fn accuracy(&self) -> Option<f64> {
        let decisions: usize = self.counts.values().sum();
        let right: usize = self.counts.iter().filter(|((r, p), _)| r == p).map(|(_, count)| count).sum();
        (decisions > 0).then(|| right as f64 / decisions as f64)
    }

    /// Precision, recall and F1 of each label that occurs as a reference or as a prediction, in order.
    pub fn by_label(&self) -> impl Iterator<Item = (&L, Score)> {
        let mut tallies: BTreeMap<&L, Tally> = BTreeMap::new();
        for ((reference, prediction), count) in &self.counts {
            tallies.entry(reference).or_default().expected += count;
            tallies.entry(prediction).or_default().found += count;
            if reference == prediction {
                tallies.entry(reference).or_default().matched += count;
            }
        }
        tallies.into_iter().map(|(label, t)| (label, Score::of_counts(t.matched, t.expected, t.found)))
    }
}

#[derive(Default)]
struct Tally {
    matched: usize,
    expected: usize,
    found: usize,
}

impl<L> Default for ConfusionMatrix<L> {
    fn default() -> Self {
        Self { counts: BTreeMap::new() }
    }
}

/// Collects pairs of a reference and a prediction.
impl<L: Ord> FromIterator<(L, L)> for ConfusionMatrix<L> {
    fn from_iter<I: IntoIterator<Item = (L, L)>>(decisions: I) -> Self {
        let mut matrix = Self::default();
        decisions.into_iter().for_each(|(reference, prediction)| matrix.add(reference, prediction));
        matrix
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        references: Vec<String>,
        predictions: Vec<String>,
        accuracy: f64,
        macro_f1: f64,
        labels: Vec<String>,
        precision: Vec<f64>,
        recall: Vec<f64>,
        f1: Vec<f64>,
    }

    #[test]
    fn scores_are_those_of_scikit_learn() {
        let cases: Vec<Case> = serde_json::from_str(include_str!("../tests/fixtures/classification.json")).unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let matrix: ConfusionMatrix<String> = case.references.into_iter().zip(case.predictions).collect();
            assert!((matrix.accuracy().unwrap() - case.accuracy).abs() < 1e-12);
            let (labels, scores): (Vec<&String>, Vec<Score>) = matrix.by_label().unzip();
            assert_eq!(labels, case.labels.iter().collect::<Vec<_>>());
            let macro_f1 = scores.iter().map(|score| score.f1).sum::<f64>() / scores.len() as f64;
            assert!((macro_f1 - case.macro_f1).abs() < 1e-12);
            for (i, score) in scores.iter().enumerate() {
                assert!((score.precision - case.precision[i]).abs() < 1e-12, "precision of {}", labels[i]);
                assert!((score.recall - case.recall[i]).abs() < 1e-12, "recall of {}", labels[i]);
                assert!((score.f1 - case.f1[i]).abs() < 1e-12, "F1 of {}", labels[i]);
            }
        }
    }

    #[test]
    fn nothing_decided_has_no_rate() {
        let empty = ConfusionMatrix::<u8>::default();
        assert_eq!((empty.accuracy(), empty.by_label().count()), (None, 0));
    }

    proptest! {
        #[test]
        fn decisions_count_in_any_order(
            decisions in prop::collection::vec((0u8..5, 0u8..5), 1..40),
            cut: prop::sample::Index,
        ) {
            let whole: ConfusionMatrix<u8> = decisions.iter().copied().collect();
            let (first, rest) = decisions.split_at(cut.index(decisions.len()));
            prop_assert_eq!(&[rest, first].concat().into_iter().collect::<ConfusionMatrix<u8>>(), &whole);
            prop_assert!((0.0..=1.0).contains(&whole.accuracy().unwrap()));
            prop_assert!(whole.by_label().all(|(_, score)| (0.0..=1.0).contains(&score.f1)));
        }

        #[test]
        fn right_decisions_score_1(labels in prop::collection::vec(0u8..5, 1..40)) {
            let matrix: ConfusionMatrix<u8> = labels.into_iter().map(|label| (label, label)).collect();
            prop_assert_eq!(matrix.accuracy(), Some(1.0));
            prop_assert!(matrix.by_label().all(|(_, score)| score.f1 == 1.0));
        }
    }
}
