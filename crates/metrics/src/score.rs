//! Precision, recall and F1.

/// Agreement of found with expected items; each value is in `[0, 1]`.
///
/// A value whose divisor is 0 is 0, as in scikit-learn, seqeval and rouge-score.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Share of the found items that were expected.
    pub precision: f64,
    /// Share of the expected items that were found.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
}

impl Score {
    /// Returns the score of `matched` items among `found` and `expected` ones.
    ///
    /// With `P = m/f` and `R = m/e`, `2PR / (P + R) = 2m / (e + f)`.
    pub fn of_counts(matched: usize, expected: usize, found: usize) -> Self {
        let part = |of: usize, whole: usize| if whole > 0 { of as f64 / whole as f64 } else { 0.0 };
        Self {
            precision: part(matched, found),
            recall: part(matched, expected),
            f1: part(2 * matched, expected + found),
        }
    }
}

// Sums, of which `Rouge` takes the mean.
sums!(Score { precision, recall, f1 });

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_to_divide_by_is_zero() {
        assert_eq!(Score::of_counts(0, 0, 0), Score::default());
        assert_eq!(Score::of_counts(0, 3, 0), Score::default());
        assert_eq!(Score::of_counts(0, 0, 3), Score::default());
    }

    proptest! {
        #[test]
        fn f1_is_the_harmonic_mean(matched in 1usize..50, missed in 0usize..50, spurious in 0usize..50) {
            let Score { precision, recall, f1 } = Score::of_counts(matched, matched + missed, matched + spurious);
            prop_assert!((f1 - 2.0 * precision * recall / (precision + recall)).abs() < 1e-12);
            prop_assert!(f1 <= precision.max(recall) + 1e-12 && f1 + 1e-12 >= precision.min(recall));
        }
    }
}
