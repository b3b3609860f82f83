//! Confidence intervals of corpus metrics, by the bootstrap.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// 95 % confidence interval of a metric over an evaluation set, in the metric's own unit. As JSON it is `[low, high]`.
///
/// It is the percentile bootstrap over samples (Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR
/// performance evaluation", 2004): 1,000 corpora of the same number of samples are drawn with replacement, and the
/// interval has all but the lowest and highest 2.5 % of their values. It shows how much the metric depends on which
/// samples the set happens to have, and nothing of how training differs between seeds. Below some 30 samples it is too
/// narrow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Scores of single samples, with their sum.
///
/// ```
/// use undertone_metrics::{SampleScores, bootstrap, wer};
///
/// let mut scores = SampleScores::default();
/// scores.add(wer("the cat sat", "the cat sat"));
/// scores.add(wer("on the mat", "on mat"));
/// assert_eq!(scores.sum().rate(), Some(1.0 / 6.0));
/// let interval = bootstrap(scores.len(), |drawn| scores.sum_of(drawn).rate()).expect("two samples");
/// assert_eq!((interval.low, interval.high), (0.0, 1.0 / 3.0));
/// ```
#[derive(Debug, Clone, Default)]
pub struct SampleScores<T> {
    sum: T,
    samples: Vec<T>,
}

/// Number of corpora that are drawn.
const RESAMPLES: usize = 1000;

/// Share of their values that is left out at each end.
const TAIL: f64 = 0.025;

impl<T: Clone + Default + AddAssign> SampleScores<T> {
    /// Adds the score of a sample.
    pub fn add(&mut self, sample: T) {
        self.sum += sample.clone();
        self.samples.push(sample);
    }

    /// Score of all samples.
    pub fn sum(&self) -> &T {
        &self.sum
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Sum of the scores of some samples, each as often as its index is given.
    pub fn sum_of(&self, samples: &mut dyn Iterator<Item = usize>) -> T {
        let mut sum = T::default();
        samples.for_each(|index| sum += self.samples[index].clone());
        sum
    }
}

/// Confidence interval of a metric over `samples` samples. `metric` is given the indices of the samples of a corpus;
/// corpora without a value are left out. `None` with fewer than two samples, or if no corpus has a value. The same
/// samples in the same order give the same interval.
pub fn bootstrap(samples: usize, metric: impl Fn(&mut dyn Iterator<Item = usize>) -> Option<f64>) -> Option<Interval> {
    if samples < 2 {
        return None;
    }
    Interval::of(corpora(samples).filter_map(|drawn| metric(&mut drawn.iter().copied())))
}

/// Draws the samples of each corpus, always the same ones for the same number of samples.
pub(crate) fn corpora(samples: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    // Lemire, "Fast random integer generation in an interval", 2019, without its rejection: the bias is below
    // `samples` / 2^64.
    let mut draw = move || ((u128::from(rng.next_u64()) * samples as u128) >> 64) as usize;
    (0..RESAMPLES).map(move |_| (0..samples).map(|_| draw()).collect())
}

impl Interval {
    /// Interval of all values but the lowest and the highest; those that are not finite are left out. `None` without
    /// any.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let cut = (TAIL * values.len() as f64) as usize;
        Some(Self { low: values[cut], high: values[last - cut] })
    }
}

impl From<[f64; 2]> for Interval {
    fn from([low, high]: [f64; 2]) -> Self {
        Self { low, high }
    }
}

impl From<Interval> for [f64; 2] {
    fn from(Interval { low, high }: Interval) -> Self {
        [low, high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorRate, wer};
    use proptest::prelude::*;

    fn scores(samples: impl IntoIterator<Item = (usize, usize)>) -> SampleScores<ErrorRate> {
        let mut scores = SampleScores::default();
        for (errors, length) in samples {
            let reference: Vec<usize> = (0..length).collect();
            let hypothesis: Vec<usize> = (0..length).map(|i| if i < errors { usize::MAX } else { i }).collect();
            scores.add(ErrorRate::between(&reference, &hypothesis));
        }
        scores
    }

    fn interval(scores: &SampleScores<ErrorRate>) -> Option<Interval> {
        bootstrap(scores.len(), |drawn| scores.sum_of(drawn).rate())
    }

    /// The error of a mean of independent samples is known: `sqrt(p (1 - p) / n)` for a share.
    #[test]
    fn the_interval_of_a_share_is_that_of_the_normal_distribution() {
        let scores = scores((0..400).map(|i| (usize::from(i % 5 == 0), 1)));
        let interval = interval(&scores).expect("an interval");
        let half = 1.96 * (0.2f64 * 0.8 / 400.0).sqrt();
        assert!((interval.low - (0.2 - half)).abs() < 0.006, "{interval:?}");
        assert!((interval.high - (0.2 + half)).abs() < 0.006, "{interval:?}");
    }

    #[test]
    fn one_sample_or_no_value_gives_no_interval() {
        assert_eq!((interval(&scores([(1, 2)])), interval(&scores([(0, 0), (0, 0)]))), (None, None));
        assert_eq!(interval(&scores([(1, 2), (1, 2)])), Some(Interval { low: 0.5, high: 0.5 }));
    }

    #[test]
    fn it_is_a_pair_in_json() {
        let interval = Interval { low: 0.25, high: 0.5 };
        let json = serde_json::to_string(&interval).expect("JSON");
        assert_eq!(json, "[0.25,0.5]");
        assert_eq!(serde_json::from_str::<Interval>(&json).expect("an interval"), interval);
    }

    proptest! {
        #[test]
        fn the_interval_lies_within_the_rates_of_the_samples(
            texts in prop::collection::vec(("[ab]( [ab]){0,4}", "[ab ]{0,9}"), 2..9),
        ) {
            let samples: Vec<ErrorRate> = texts.iter().map(|(reference, hypothesis)| wer(reference, hypothesis)).collect();
            let rates: Vec<f64> = samples.iter().filter_map(ErrorRate::rate).collect();
            let mut scores = SampleScores::default();
            samples.into_iter().for_each(|sample| scores.add(sample));
            let Interval { low, high } = interval(&scores).expect("an interval");
            let (least, most) = rates.iter().fold((f64::MAX, 0.0), |(a, b), rate| (rate.min(a), rate.max(b)));
            prop_assert!(least <= low && low <= high && high <= most, "{low} to {high} of {rates:?}");
        }
    }
}
