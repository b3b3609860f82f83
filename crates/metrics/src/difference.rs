//! Differences between two systems on the same samples, by the paired bootstrap.

use crate::Interval;
use crate::interval::corpora;
use serde::{Deserialize, Serialize};

/// Difference of a metric between two systems that answered the same samples: the first one's value minus the second
/// one's.
///
/// It is the paired bootstrap over samples (Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR
/// performance evaluation", 2004): both systems are scored on each of the corpora that are drawn, so that what makes a
/// sample hard for both of them cancels out. That two intervals overlap does not say that two systems are equally good;
/// whether the interval of the difference contains 0 does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Difference over all samples.
    pub difference: f64,
    /// Confidence interval of the difference.
    pub interval: Interval,
    /// Two-sided p-value of the hypothesis that there is no difference: twice the share of the drawn corpora whose
    /// difference has the other sign or is 0, at most 1. It is never 0: 1,000 corpora can tell no less than 0.002.
    pub p_value: f64,
}

/// Difference of a metric between two systems over `samples` samples. Each of `first` and `second` is given the indices
/// of the samples of a corpus, as for [`bootstrap`](crate::bootstrap); corpora in which one has no value are left out.
/// `None` with fewer than two samples, or if one has no value over all samples.
///
/// ```
/// use undertone_metrics::paired_bootstrap;
///
/// let (tuned, stock) = ([0.0, 0.1, 0.0, 0.2], [0.3, 0.5, 0.2, 0.9]);
/// let mean = |values: &[f64; 4], drawn: &mut dyn Iterator<Item = usize>| {
///     Some(drawn.map(|index| values[index]).sum::<f64>() / 4.0)
/// };
/// let found = paired_bootstrap(4, |drawn| mean(&tuned, drawn), |drawn| mean(&stock, drawn)).expect("four samples");
/// assert!((found.difference + 0.4).abs() < 1e-12 && found.interval.high < 0.0 && found.p_value < 0.01);
/// ```
pub fn paired_bootstrap(
    samples: usize,
    first: impl Fn(&mut dyn Iterator<Item = usize>) -> Option<f64>,
    second: impl Fn(&mut dyn Iterator<Item = usize>) -> Option<f64>,
) -> Option<Difference> {
    if samples < 2 {
        return None;
    }
    let between = |drawn: &[usize]| {
        let difference = first(&mut drawn.iter().copied())? - second(&mut drawn.iter().copied())?;
        difference.is_finite().then_some(difference)
    };
    let all: Vec<usize> = (0..samples).collect();
    let difference = between(&all)?;
    let drawn: Vec<f64> = corpora(samples).filter_map(|drawn| between(&drawn)).collect();
    let interval = Interval::of(drawn.iter().copied())?;
    let share = |is: fn(&f64) -> bool| {
        // The difference over all samples counts as one more corpus, so that no finite number of them gives 0.
        (1 + drawn.iter().filter(|value| is(value)).count()) as f64 / (1 + drawn.len()) as f64
    };
    let p_value = f64::min(1.0, 2.0 * f64::min(share(|value| *value <= 0.0), share(|value| *value >= 0.0)));
    Some(Difference { difference, interval, p_value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;
    use proptest::prelude::*;

    fn mean(values: &[f64]) -> impl Fn(&mut dyn Iterator<Item = usize>) -> Option<f64> + '_ {
        |drawn| {
            let (sum, count) = drawn.fold((0.0, 0.0), |(sum, count), index| (sum + values[index], count + 1.0));
            (count > 0.0).then(|| sum / count)
        }
    }

    fn between(first: &[f64], second: &[f64]) -> Option<Difference> {
        paired_bootstrap(first.len(), mean(first), mean(second))
    }

    /// Samples differ by 10 and systems by 0.5: the two intervals overlap, and the difference is certain all the same.
    #[test]
    fn what_is_hard_for_both_cancels_out() {
        let second: Vec<f64> = (0..40).map(|sample| f64::from(sample % 11)).collect();
        let first: Vec<f64> =
            (0..40).map(|sample| f64::from(sample % 11) - if sample % 2 == 0 { 0.4 } else { 0.6 }).collect();
        let [a, b] = [&first, &second].map(|values| bootstrap(40, mean(values)).expect("an interval"));
        assert!(a.high > b.low, "{a:?} {b:?}");
        let found = between(&first, &second).expect("a difference");
        assert!((found.difference + 0.5).abs() < 1e-12, "{found:?}");
        assert!(found.interval.low > -0.55 && found.interval.high < -0.45, "{found:?}");
        assert_eq!(found.p_value, 2.0 / 1001.0);
    }

    /// The p-value of a mean of independent differences is known: that of a normal distribution.
    #[test]
    fn the_p_value_is_that_of_the_normal_distribution() {
        let second = [0.0; 400];
        // Of 400 samples 220 are better by 1 and 180 worse by 1: 0.1 with a standard error of 0.0497, 2.01 of them.
        let first: Vec<f64> = (0..400).map(|sample| if sample < 220 { 1.0 } else { -1.0 }).collect();
        let found = between(&first, &second).expect("a difference");
        assert!((found.p_value - 0.044).abs() < 0.015, "{found:?}");
        assert!(found.interval.low > -0.01 && found.interval.low < 0.02, "{found:?}");
    }

    #[test]
    fn a_system_does_not_differ_from_itself() {
        let values = [1.0, 2.0, 3.0];
        let same = Difference { difference: 0.0, interval: Interval { low: 0.0, high: 0.0 }, p_value: 1.0 };
        assert_eq!(between(&values, &values), Some(same));
        assert_eq!(between(&values[..1], &values[..1]), None, "one sample tells nothing");
        assert_eq!(paired_bootstrap(3, mean(&values), |_| None), None);
    }

    proptest! {
        #[test]
        fn the_other_way_round_is_the_same_with_the_other_sign(
            pairs in prop::collection::vec((-9i32..9, -9i32..9), 2..12),
        ) {
            let (first, second): (Vec<f64>, Vec<f64>) =
                pairs.into_iter().map(|(a, b)| (f64::from(a), f64::from(b))).unzip();
            let (there, back) = (between(&first, &second).expect("one"), between(&second, &first).expect("one"));
            prop_assert!((there.difference + back.difference).abs() < 1e-12);
            prop_assert!((there.interval.low + back.interval.high).abs() < 1e-12);
            prop_assert_eq!(there.p_value, back.p_value);
            prop_assert!(there.p_value > 0.0 && there.p_value <= 1.0);
            prop_assert!(there.interval.low <= there.interval.high);
        }
    }
}
