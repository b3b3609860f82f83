//! Accuracy and F1 of single decisions.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;
use std::ops::AddAssign;

use crate::Score;

/// Confusion matrix: counts of predicted labels by reference label, over an evaluation set.
///
/// ```
/// # use undertone_metrics::ConfusionMatrix;
/// let decisions = [("yes", "yes"), ("yes", "no"), ("no", "no"), ("no", "no")];
/// let matrix: ConfusionMatrix<&str> = decisions.into_iter().collect();
/// assert_eq!(matrix.count("yes", "no"), 1);
/// assert_eq!(matrix.accuracy(), Some(0.75));
/// assert!((matrix.macro_f1().unwrap() - (2.0 / 3.0 + 0.8) / 2.0).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix<L> {
    /// Counts by reference, then by prediction; no count is 0.
    rows: BTreeMap<L, BTreeMap<L, usize>>,
}

impl<L: Ord> ConfusionMatrix<L> {
    /// Adds one decision.
    pub fn add(&mut self, reference: L, prediction: L) {
        self.add_many(reference, prediction, 1);
    }

    /// Number of decisions for `prediction` whose reference is `reference`.
    pub fn count<Q>(&self, reference: &Q, prediction: &Q) -> usize
    where
        L: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.rows.get(reference).and_then(|row| row.get(prediction)).copied().unwrap_or(0)
    }

    /// Every label that occurs as a reference or as a prediction, in order.
    pub fn labels(&self) -> BTreeSet<&L> {
        self.cells().flat_map(|(reference, prediction, _)| [reference, prediction]).collect()
    }

    /// Number of decisions.
    pub fn decisions(&self) -> usize {
        self.cells().map(|(.., count)| count).sum()
    }

    /// Share of correct decisions, in `[0, 1]`; `None` without a decision.
    pub fn accuracy(&self) -> Option<f64> {
        let decisions = self.decisions();
        let right: usize = self.cells().filter(|(reference, prediction, _)| reference == prediction).map(|c| c.2).sum();
        (decisions > 0).then(|| right as f64 / decisions as f64)
    }

    /// Precision, recall and F1 of each label that occurs as a reference or as a prediction, in order.
    pub fn by_label(&self) -> impl Iterator<Item = (&L, Score)> {
        let mut tallies: BTreeMap<&L, Tally> = BTreeMap::new();
        for (reference, prediction, count) in self.cells() {
            tallies.entry(reference).or_default().expected += count;
            tallies.entry(prediction).or_default().found += count;
            if reference == prediction {
                tallies.entry(reference).or_default().matched += count;
            }
        }
        tallies.into_iter().map(|(label, t)| (label, Score::of_counts(t.matched, t.expected, t.found)))
    }

    /// Mean F1 of the labels that occur as a reference or as a prediction, in `[0, 1]`; `None` without a decision.
    ///
    /// Every label has the same weight. This is scikit-learn's `f1_score(average="macro", zero_division=0)`; labels
    /// that do not occur are left out.
    pub fn macro_f1(&self) -> Option<f64> {
        let scores: Vec<f64> = self.by_label().map(|(_, score)| score.f1).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    fn add_many(&mut self, reference: L, prediction: L, count: usize) {
        *self.rows.entry(reference).or_default().entry(prediction).or_insert(0) += count;
    }

    fn cells(&self) -> impl Iterator<Item = (&L, &L, usize)> {
        self.rows.iter().flat_map(|(reference, row)| row.iter().map(move |(found, count)| (reference, found, *count)))
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
        Self { rows: BTreeMap::new() }
    }
}

/// Collects pairs of a reference and a prediction.
impl<L: Ord> FromIterator<(L, L)> for ConfusionMatrix<L> {
    fn from_iter<I: IntoIterator<Item = (L, L)>>(decisions: I) -> Self {
        let mut matrix = Self::default();
        matrix.extend(decisions);
        matrix
    }
}

/// Adds pairs of a reference and a prediction.
impl<L: Ord> Extend<(L, L)> for ConfusionMatrix<L> {
    fn extend<I: IntoIterator<Item = (L, L)>>(&mut self, decisions: I) {
        for (reference, prediction) in decisions {
            self.add(reference, prediction);
        }
    }
}

impl<L: Ord + Clone> AddAssign for ConfusionMatrix<L> {
    fn add_assign(&mut self, other: Self) {
        for (reference, row) in other.rows {
            for (prediction, count) in row {
                self.add_many(reference.clone(), prediction, count);
            }
        }
    }
}

impl<L: Ord + Clone> Sum for ConfusionMatrix<L> {
    fn sum<I: Iterator<Item = Self>>(matrices: I) -> Self {
        matrices.fold(Self::default(), |mut total, matrix| {
            total += matrix;
            total
        })
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
            assert!((matrix.macro_f1().unwrap() - case.macro_f1).abs() < 1e-12);
            let (labels, scores): (Vec<&String>, Vec<Score>) = matrix.by_label().unzip();
            assert_eq!(labels, case.labels.iter().collect::<Vec<_>>());
            assert_eq!(labels, matrix.labels().into_iter().collect::<Vec<_>>());
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
        assert_eq!((empty.accuracy(), empty.macro_f1()), (None, None));
        assert_eq!((empty.decisions(), empty.count(&0, &0)), (0, 0));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_add_up_to_the_whole(
            decisions in prop::collection::vec((0u8..5, 0u8..5), 1..40),
            cut: prop::sample::Index,
        ) {
            let whole: ConfusionMatrix<u8> = decisions.iter().copied().collect();
            let (first, rest) = decisions.split_at(cut.index(decisions.len()));
            let parts = [rest, first].map(|part| part.iter().copied().collect::<ConfusionMatrix<u8>>());
            prop_assert_eq!(&parts.into_iter().sum::<ConfusionMatrix<u8>>(), &whole);
            prop_assert_eq!(whole.decisions(), decisions.len());
            for rate in [whole.accuracy().unwrap(), whole.macro_f1().unwrap()] {
                prop_assert!((0.0..=1.0).contains(&rate));
            }
        }

        #[test]
        fn right_decisions_score_1(labels in prop::collection::vec(0u8..5, 1..40)) {
            let matrix: ConfusionMatrix<u8> = labels.into_iter().map(|label| (label, label)).collect();
            prop_assert_eq!((matrix.accuracy(), matrix.macro_f1()), (Some(1.0), Some(1.0)));
        }
    }
}
