//! Which batch to try next, and which to take, as pure arithmetic: nothing here runs a model.

use super::probe::Probe;
use std::str::FromStr;

/// Search for the largest batch that fits: 1, then doubling as long as batches fit, then bisection.
///
/// It tries no batch size twice, and only sizes between the largest that fitted and the smallest that did not. It
/// therefore needs at most twice the binary logarithm of its cap. Probes need not be monotone: the result always
/// fitted.
///
/// ```
/// use undertone_fit::tune::Search;
///
/// let mut search = Search::new(1000);
/// while let Some(batch) = search.next() {
///     search.record(batch, batch <= 23);
/// }
/// assert_eq!(search.largest(), Some(23));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    cap: usize,
    /// Largest batch that fitted; 0 before the first.
    fits: usize,
    /// Smallest batch that did not fit.
    fails: Option<usize>,
}

/// Bisection ends when the possible gain is below the batch divided by this number, because a probe costs more than
/// that is worth.
const RESOLUTION: usize = 16;

impl Search {
    /// Makes a search for at most `cap` samples.
    pub fn new(cap: usize) -> Self {
        Self { cap: cap.max(1), fits: 0, fails: None }
    }

    /// Returns the batch size to try next; `None` when the search is done.
    #[allow(clippy::should_implement_trait)] // an iterator would have to be told in between
    pub fn next(&self) -> Option<usize> {
        match self.fails {
            None if self.fits >= self.cap => None,
            None => Some((2 * self.fits).clamp(1, self.cap)),
            Some(fails) if fails - self.fits <= (self.fits / RESOLUTION).max(1) => None,
            Some(fails) => Some(self.fits + (fails - self.fits) / 2),
        }
    }

    /// Records the result of a probe of `batch`. One that crashed did not fit.
    pub fn record(&mut self, batch: usize, fits: bool) {
        let possible = self.fails.is_none_or(|fails| batch < fails) && batch > self.fits;
        match fits {
            _ if !possible => {}
            true => self.fits = batch,
            false => self.fails = Some(batch),
        }
    }

    /// Maximum batch size.
    pub fn cap(&self) -> usize {
        self.cap
    }

    /// Largest batch that fitted so far.
    pub fn largest(&self) -> Option<usize> {
        Some(self.fits).filter(|fits| *fits > 0)
    }
}

/// Goal of the choice of a batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Samples per second. If accumulation keeps the effective batch, every split trains the same, so only speed is
    /// left to choose. Of batches whose speed is within [`NOISE`] of the fastest, the smallest leaves the most memory
    /// free.
    #[default]
    Throughput,
    /// Largest batch that fits.
    Largest,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "throughput" => Ok(Self::Throughput),
            "largest" => Ok(Self::Largest),
            _ => Err(format!("there is no objective `{text}`: choose throughput or largest")),
        }
    }
}

/// Relative differences in speed below this are noise of the machine.
pub const NOISE: f64 = 0.03;

/// Returns the batch size to use, of those that fit and are at most `limit`; `limit` itself if there is none.
pub fn choose(goal: Goal, probes: &[Probe], limit: usize) -> usize {
    let fitting = || {
        let fits = probes.iter().filter(|probe| probe.batch <= limit);
        fits.filter_map(|probe| Some((probe.batch, probe.outcome.samples_per_second()?)))
    };
    match goal {
        Goal::Largest => limit,
        Goal::Throughput => {
            let fastest = fitting().map(|(_, rate)| rate).fold(0.0, f64::max);
            let fast = fitting().filter(|(_, rate)| *rate >= (1.0 - NOISE) * fastest);
            fast.map(|(batch, _)| batch).min().unwrap_or(limit)
        }
    }
}

/// Split of the samples of an optimizer step into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Samples per batch.
    pub batch: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
}

impl Plan {
    /// Splits `effective` samples into batches of at most `largest`. It chooses a batch that divides `effective` evenly
    /// if that reduces the batch by less than half. Otherwise a step gets as few additional samples as batches of one
    /// size allow.
    pub fn of(effective: usize, largest: usize) -> Self {
        let (effective, largest) = (effective.max(1), largest.max(1));
        let divisor = (1..=largest.min(effective)).rev().find(|batch| effective.is_multiple_of(*batch)).unwrap_or(1);
        if 2 * divisor > largest.min(effective) {
            return Self { batch: divisor, accumulation: effective / divisor };
        }
        let accumulation = effective.div_ceil(largest);
        Self { batch: effective.div_ceil(accumulation), accumulation }
    }

    /// Samples per optimizer step.
    pub fn effective(self) -> usize {
        self.batch * self.accumulation
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Outcome;
    use super::*;
    use proptest::prelude::*;

    /// Runs a search to its end. Returns the batches it tried, and the result.
    fn run(cap: usize, mut fits: impl FnMut(usize) -> bool) -> (Vec<(usize, bool)>, Option<usize>) {
        let mut search = Search::new(cap);
        let mut tried = Vec::new();
        while let Some(batch) = search.next() {
            let found = fits(batch);
            search.record(batch, found);
            tried.push((batch, found));
            assert!(tried.len() < 200, "the search does not end: {tried:?}");
        }
        (tried, search.largest())
    }

    fn log2(n: usize) -> usize {
        n.ilog2() as usize
    }

    proptest! {
        /// Realistic memory: a part for the model, and a part for each sample.
        #[test]
        fn the_largest_that_fits_is_found_to_its_resolution(
            cap in 1_usize..5000, model in 0_u64..10_000, sample in 1_u64..500, budget in 1_u64..200_000,
        ) {
            let fits = |batch: usize| model + sample * batch as u64 <= budget;
            let truth = (1..=cap).rev().find(|batch| fits(*batch));
            let (tried, found) = run(cap, fits);
            prop_assert_eq!(found.is_some(), truth.is_some());
            if let (Some(found), Some(truth)) = (found, truth) {
                prop_assert!(fits(found) && found <= cap);
                prop_assert!(truth - found <= found / RESOLUTION, "{} instead of {}", found, truth);
            }
            prop_assert!(tried.len() <= 2 * (log2(cap) + 2));
            prop_assert!(tried.iter().all(|(batch, _)| (1..=cap).contains(batch)));
        }

        /// Allocators round, fragment and cache, and probes crash. The result still fitted when it was tried, nothing
        /// is tried twice, and nothing that failed is below the result.
        #[test]
        fn noise_ends_the_search_with_something_that_fitted(
            cap in 1_usize..5000, budget in 1_u64..100_000, noise in prop::collection::vec(0_u64..40_000, 64),
            crashes in prop::collection::vec(prop::bool::weighted(0.2), 64),
        ) {
            let mut turn = 0;
            let (tried, found) = run(cap, |batch| {
                turn += 1;
                20 * batch as u64 + noise[turn % 64] <= budget && !crashes[turn % 64]
            });
            match found {
                Some(found) => {
                    prop_assert!(tried.contains(&(found, true)));
                    prop_assert!(tried.iter().all(|(batch, fitted)| *fitted || *batch > found));
                }
                None => prop_assert_eq!(&tried, &vec![(1, false)]),
            }
            let mut batches: Vec<usize> = tried.iter().map(|(batch, _)| *batch).collect();
            batches.sort_unstable();
            batches.dedup();
            prop_assert_eq!(batches.len(), turn);
        }

        #[test]
        fn a_plan_never_exceeds_what_fits_and_hardly_the_effective_batch(effective in 1_usize..2000, largest in 1_usize..3000) {
            let plan = Plan::of(effective, largest);
            prop_assert!(plan.batch >= 1 && plan.batch <= largest);
            prop_assert!(plan.effective() >= effective);
            prop_assert!(plan.effective() - effective < plan.accumulation);
            prop_assert!(2 * plan.batch >= largest.min(effective) || plan.effective() == effective);
        }

        #[test]
        fn the_choice_fits(
            rates in prop::collection::vec((1_usize..64, prop::option::of(0.1_f64..100.0)), 1..12), limit in 1_usize..64,
        ) {
            let probes: Vec<Probe> = rates.iter().map(|(batch, rate)| probe(*batch, *rate)).collect();
            for goal in [Goal::Throughput, Goal::Largest] {
                let chosen = choose(goal, &probes, limit);
                prop_assert!(chosen <= limit);
                prop_assert!(chosen == limit || probes.iter().any(|p| p.batch == chosen && p.outcome.fits()));
            }
        }
    }

    fn probe(batch: usize, rate: Option<f64>) -> Probe {
        let outcome = match rate {
            Some(samples_per_second) => Outcome::Fits { peak_bytes: None, samples_per_second },
            None => Outcome::OutOfMemory { reason: String::new() },
        };
        Probe { batch, accumulation: 1, outcome }
    }

    #[test]
    fn nothing_fits_after_one_probe() {
        assert_eq!(run(64, |_| false), (vec![(1, false)], None));
    }

    #[test]
    fn doubling_comes_before_bisection() {
        let (tried, found) = run(1000, |batch| batch <= 11);
        let batches: Vec<usize> = tried.iter().map(|(batch, _)| *batch).collect();
        assert_eq!((batches, found), (vec![1, 2, 4, 8, 16, 12, 10, 11], Some(11)));
        assert_eq!(run(6, |_| true).0.iter().map(|(batch, _)| *batch).collect::<Vec<_>>(), [1, 2, 4, 6]);
    }

    #[test]
    fn speed_decides_and_memory_breaks_ties() {
        let probes = [(1, Some(5.0)), (2, Some(9.0)), (4, Some(9.9)), (8, Some(10.0)), (12, Some(8.0)), (16, None)];
        let probes = probes.map(|(batch, rate)| probe(batch, rate));
        assert_eq!(choose(Goal::Throughput, &probes, 12), 4, "as fast as 8");
        assert_eq!(choose(Goal::Largest, &probes, 12), 12);
        assert_eq!(choose(Goal::Throughput, &probes, 2), 2);
        assert_eq!(choose(Goal::Throughput, &[], 3), 3);
    }

    #[test]
    fn plans_keep_the_effective_batch_where_they_can() {
        for (effective, largest, batch, accumulation) in
            [(16, 16, 16, 1), (16, 40, 16, 1), (16, 7, 4, 4), (12, 5, 4, 3), (7, 5, 4, 2), (14, 6, 5, 3), (1, 1, 1, 1)]
        {
            assert_eq!(Plan::of(effective, largest), Plan { batch, accumulation }, "{effective} by {largest}");
        }
    }
}
