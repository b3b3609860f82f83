//! Search for a learning rate by successive halving.
//!
//! All rates train for a few steps, the better half for twice as many, and so on, until two are left for the longest trials
//! (Jamieson and Talwalkar, 2016). Each trial is a whole run of its length, with warm-up and decay: the early part of a longer
//! run would favour low rates, because a high one pays off once it has decayed.

use undertone_metrics::Direction;

/// Settings of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct RateOptions {
    /// Rates to try first. If the best of them is the lowest or the highest one, more are tried beyond it.
    pub rates: Vec<f64>,
    /// Optimizer steps of the longest trials.
    pub steps: u64,
}

/// One trial of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateTrial {
    /// Learning rate.
    pub rate: f64,
    /// Optimizer steps.
    pub steps: u64,
    /// Validation metric after them; `None` if training diverged.
    pub value: Option<f64>,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSearch {
    /// Best rate of the longest trials.
    pub best: f64,
    /// Trials, in the order in which they ran.
    pub trials: Vec<RateTrial>,
}

/// Reason why a search has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RateError {
    /// The rates do not make a search.
    #[error("a search needs at least two different learning rates that are above 0: you gave {0}")]
    Rates(String),
    /// Too few steps.
    #[error(
        "{steps} steps are too few for a search: its shortest trials take a quarter of them, so give at least {}",
        QUARTER
    )]
    Steps {
        /// Steps of the longest trials.
        steps: u64,
    },
    /// Training diverged at every rate.
    #[error("training diverged at every learning rate from {lowest} to {highest}: try lower ones")]
    Diverged {
        /// Lowest rate.
        lowest: f64,
        /// Highest rate.
        highest: f64,
    },
    /// The metric is the same at every rate.
    #[error(
        "the metric is {value} at every learning rate after {steps} steps, so it cannot tell them apart: take more steps, or let \
         another metric decide, like the loss"
    )]
    Indifferent {
        /// Value of the metric.
        value: f64,
        /// Steps of the trials.
        steps: u64,
    },
}

/// Number of lengths of trials: a quarter of the steps, half of them, all.
const LENGTHS: u32 = 3;

/// Fewest steps of a search: the shortest trials are 4 steps.
const QUARTER: u64 = 16;

/// Most rates that are tried beyond the given ones, on either side.
const MOST_BEYOND: usize = 4;

impl RateOptions {
    /// Returns seven rates around `rate`, which is one of them: each about 3.2 times the one before, rounded to two digits.
    ///
    /// ```
    /// assert_eq!(undertone_fit::RateOptions::around(3e-4), [9.5e-6, 3e-5, 9.5e-5, 3e-4, 9.5e-4, 3e-3, 9.5e-3]);
    /// ```
    pub fn around(rate: f64) -> Vec<f64> {
        (-3..=3)
            .map(|half| if half == 0 { rate } else { in_two_digits(rate * 10_f64.powf(f64::from(half) / 2.0)) })
            .collect()
    }

    /// Returns the steps of the trials of each length, the shortest first.
    pub fn lengths(&self) -> Vec<u64> {
        (0..LENGTHS).rev().map(|halvings| self.steps >> halvings).collect()
    }

    /// Returns the number of steps of all trials, without those beyond the given rates.
    pub fn total_steps(&self) -> u64 {
        let counts = (0..).scan(self.rates.len(), |left, _| Some(std::mem::replace(left, kept(*left)) as u64));
        self.lengths().iter().zip(counts).map(|(steps, count)| steps * count).sum()
    }

    /// Checks the options, and returns the rates in ascending order.
    ///
    /// # Errors
    /// When there are fewer than two rates, one is not above 0, or there are too few steps.
    pub fn validate(&self) -> Result<Vec<f64>, RateError> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        if rates.len() < 2 || !rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            return Err(RateError::Rates(self.rates.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")));
        }
        if self.steps < QUARTER {
            return Err(RateError::Steps { steps: self.steps });
        }
        Ok(rates)
    }
}

/// Rounds to two significant digits.
fn in_two_digits(x: f64) -> f64 {
    format!("{x:.1e}").parse().unwrap_or(x)
}

/// Number of rates that go on from so many: half of them, but two for the longest trials.
fn kept(rates: usize) -> usize {
    rates.div_ceil(2).max(2)
}

/// Searches for the best learning rate. `trial` trains with a rate for a number of steps and returns the validation metric,
/// which improves in `direction`, or `None` if training diverged.
///
/// # Errors
/// When the options are no search, no rate is better than another, or `trial` fails.
pub fn search_rates<E: From<RateError>>(
    options: &RateOptions,
    direction: Direction,
    mut trial: impl FnMut(f64, u64) -> Result<Option<f64>, E>,
) -> Result<RateSearch, E> {
    let mut rates = options.validate()?;
    let mut best = rates[0];
    let mut trials = Vec::new();
    for (round, steps) in options.lengths().into_iter().enumerate() {
        let mut run = |rate| -> Result<RateTrial, E> {
            let value = trial(rate, steps)?.filter(|value| value.is_finite());
            let trial = RateTrial { rate, steps, value };
            trials.push(trial);
            Ok(trial)
        };
        let mut found = rates.iter().map(|rate| run(*rate)).collect::<Result<Vec<_>, E>>()?;
        if round == 0 {
            for _ in 0..2 * MOST_BEYOND {
                let Some(rate) = beyond(&found, direction) else { break };
                found.push(run(rate)?);
            }
            check(&found)?;
        }
        found.retain(|trial| trial.value.is_some());
        found.sort_by(|a, b| cost(a, direction).total_cmp(&cost(b, direction)).then(a.rate.total_cmp(&b.rate)));
        found.truncate(kept(found.len()));
        // If all of the longest trials diverged, the ones before decide.
        if let Some(first) = found.first() {
            best = first.rate;
            rates = found.iter().map(|trial| trial.rate).collect();
            rates.sort_by(f64::total_cmp);
        }
    }
    Ok(RateSearch { best, trials })
}

fn cost(trial: &RateTrial, direction: Direction) -> f64 {
    trial.value.map_or(f64::INFINITY, |value| direction.as_cost(value))
}

/// Returns a rate beyond the best one, if that is at the end of those that were tried.
fn beyond(found: &[RateTrial], direction: Direction) -> Option<f64> {
    let mut sorted: Vec<&RateTrial> = found.iter().collect();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let costs: Vec<f64> = sorted.iter().map(|trial| cost(trial, direction)).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let last = sorted.len() - 1;
    // Where several rates are equally good, the best one is inside.
    let (low, high) = (costs.iter().position(|cost| *cost == least)?, costs.iter().rposition(|cost| *cost == least)?);
    match (low, high) {
        _ if !least.is_finite() => None,
        (0, 0) => Some(in_two_digits(sorted[0].rate * sorted[0].rate / sorted[1].rate)),
        (low, _) if low == last => Some(in_two_digits(sorted[last].rate * sorted[last].rate / sorted[last - 1].rate)),
        _ => None,
    }
}

/// Refuses to go on if no rate is better than another.
fn check(found: &[RateTrial]) -> Result<(), RateError> {
    let rates = || found.iter().map(|trial| trial.rate);
    let mut values = found.iter().filter_map(|trial| trial.value);
    let Some(first) = values.next() else {
        let (lowest, highest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        return Err(RateError::Diverged { lowest, highest });
    };
    let mut others = values.peekable();
    if others.peek().is_some() && others.all(|value| value == first) {
        return Err(RateError::Indifferent { value: first, steps: found[0].steps });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches where the metric is the distance to `best` in powers of ten, and training diverges above `limit`.
    fn search(options: &RateOptions, best: f64, limit: f64) -> Result<RateSearch, RateError> {
        search_rates(options, Direction::Lower, |rate, _| Ok((rate <= limit).then(|| (rate / best).log10().abs())))
    }

    fn options(steps: u64) -> RateOptions {
        RateOptions { rates: RateOptions::around(3e-4), steps }
    }

    #[test]
    fn the_better_half_takes_twice_the_steps() {
        let found = search(&options(400), 1e-3, 1.0).expect("found");
        assert_eq!(found.best, 9.5e-4);
        let rates_of = |steps| {
            let mut rates: Vec<f64> =
                found.trials.iter().filter(|trial| trial.steps == steps).map(|trial| trial.rate).collect();
            rates.sort_by(f64::total_cmp);
            rates
        };
        assert_eq!(rates_of(100), RateOptions::around(3e-4));
        assert_eq!(rates_of(200), [3e-4, 9.5e-4, 3e-3, 9.5e-3]);
        assert_eq!(rates_of(400), [9.5e-4, 3e-3]);
        assert_eq!(options(400).total_steps(), found.trials.iter().map(|trial| trial.steps).sum::<u64>());
    }

    #[test]
    fn higher_may_be_better_and_longer_trials_decide() {
        let options = RateOptions { rates: vec![0.1, 0.2, 0.3], steps: 16 };
        let value = |rate: f64, steps| if steps == 16 && rate == 0.2 { 0.0 } else { 1.0 - (rate - 0.2).abs() };
        let found = search_rates::<RateError>(&options, Direction::Higher, |rate, steps| Ok(Some(value(rate, steps))));
        assert_eq!(found.expect("found").best, 0.1, "0.2 was the best one of the shorter trials");
    }

    #[test]
    fn rates_that_cannot_be_told_apart_are_no_result() {
        let same = |value| search_rates::<RateError>(&options(100), Direction::Lower, |_, _| Ok(value));
        assert_eq!(same(Some(1.0)), Err(RateError::Indifferent { value: 1.0, steps: 25 }));
        let diverged = Err(RateError::Diverged { lowest: 9.5e-6, highest: 9.5e-3 });
        assert_eq!(same(None), diverged);
        assert_eq!(same(Some(f64::NAN)), diverged);
        assert_eq!(search(&options(15), 1.0, 1.0), Err(RateError::Steps { steps: 15 }));
        for rates in [vec![1e-3], vec![1e-3, 1e-3], vec![1e-3, 0.0], vec![1e-3, f64::INFINITY]] {
            assert!(matches!(search(&RateOptions { rates, steps: 100 }, 1.0, 1.0), Err(RateError::Rates(_))));
        }
    }

    #[test]
    fn a_failed_trial_ends_the_search() {
        #[derive(Debug, PartialEq)]
        struct Failed;
        impl From<RateError> for Failed {
            fn from(_: RateError) -> Self {
                unreachable!("the rates are fine")
            }
        }
        assert_eq!(search_rates(&options(100), Direction::Lower, |_, _| Err(Failed)), Err(Failed));
    }

    proptest! {
        #[test]
        fn the_result_is_the_nearest_rate_also_beyond_the_given_ones(best in -6.5_f64..-1.5, limit in -4.0_f64..0.0) {
            let (best, limit) = (10_f64.powf(best), 10_f64.powf(limit));
            let found = search(&options(64), best, limit).expect("found");
            let distance = |rate: f64| (rate / best).log10().abs();
            let tried = found.trials.iter().filter(|trial| trial.value.is_some());
            let nearest = tried.map(|trial| distance(trial.rate)).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(distance(found.best), nearest);
            prop_assert!(distance(found.best) < 0.27 || 1.9 * best > limit, "{} for {}", found.best, best);
        }
    }
}
