//! Threads that compute the batches of one optimizer step at the same time, on the CPU.
//!
//! The operations of a small batch are too short to be split over all cores: a batch on each core keeps them busier. What a
//! batch adds to the step does not depend on where it was computed, and is added in the order of the batches: a step gives
//! the same bits either way.

use crate::memory::{available_memory_bytes, resident_memory_bytes};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::sync::{Mutex, PoisonError};

/// Share of the available memory that batches beside the first may take.
const MEMORY_SHARE: f64 = 0.7;

/// How the batches of a step are computed.
#[derive(Debug, Default)]
pub(super) enum Concurrency {
    /// One after the other, until a step has shown what it needs.
    #[default]
    Undecided,
    /// One after the other.
    Sequential,
    /// Several at a time.
    SideBySide(Workers),
}

impl Concurrency {
    /// How many batches are computed at a time.
    pub fn at_a_time(&self) -> usize {
        match self {
            Self::SideBySide(workers) => workers.groups(),
            Self::Undecided | Self::Sequential => 1,
        }
    }

    /// Decides for steps of so many batches, after the first one of them.
    pub fn settle(&mut self, batches: usize) {
        if matches!(self, Self::Undecided) {
            // Without more threads the batches are computed all the same.
            *self = Workers::new(batches).ok().flatten().map_or(Self::Sequential, Self::SideBySide);
        }
    }
}

/// Groups of threads, of which each computes one batch at a time.
#[derive(Debug)]
pub(super) struct Workers {
    pools: Vec<ThreadPool>,
}

impl Workers {
    /// For steps of `batches` batches, with the cores of rayon's current pool: as many groups as there are batches and cores,
    /// and as the memory allows. That has to be asked after a step: every group is taken to need as much as this process
    /// holds now, which is more than a batch does. Nothing where there would be a single group.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(batches: usize) -> Result<Option<Self>, ThreadPoolBuildError> {
        let cores = rayon::current_num_threads();
        let groups = batches.min(cores).min(groups_in_memory(resident_memory_bytes(), available_memory_bytes()));
        if groups < 2 {
            return Ok(None);
        }
        // 5 cores for 2 groups are 3 and 2.
        let threads = |group: usize| cores / groups + usize::from(group < cores % groups);
        let pool = |group| ThreadPoolBuilder::new().num_threads(threads(group)).build();
        Ok(Some(Self { pools: (0..groups).map(pool).collect::<Result<_, _>>()? }))
    }

    /// How many items are worked on at a time.
    pub fn groups(&self) -> usize {
        self.pools.len()
    }

    /// What `work` makes of the items, in their order. It is given one of `states` that no other group has, of which there
    /// must be as many as groups.
    pub fn run<S: Send, T: Send, R: Send>(
        &self,
        states: Vec<S>,
        items: impl Iterator<Item = T> + Send,
        work: impl Fn(&mut S, usize, T) -> R + Sync,
    ) -> Vec<R> {
        let items = Mutex::new(items.enumerate());
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let group = |mut state: S| {
            let mut results = Vec::new();
            while let Some((index, item)) = next() {
                results.push((index, work(&mut state, index, item)));
            }
            results
        };
        let (group, mut results) = (&group, Vec::new());
        std::thread::scope(|scope| {
            let groups: Vec<_> = self
                .pools
                .iter()
                .zip(states)
                .map(|(pool, state)| scope.spawn(move || pool.install(|| group(state))))
                .collect();
            for group in groups {
                results.extend(group.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// How many batches there is memory for at a time; one where that is unknown.
fn groups_in_memory(resident: Option<u64>, available: Option<u64>) -> usize {
    let (Some(resident), Some(available)) = (resident, available) else { return 1 };
    1 + (available as f64 * MEMORY_SHARE / resident.max(1) as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(cores: usize, batches: usize) -> Option<Workers> {
        let pool = ThreadPoolBuilder::new().num_threads(cores).build().expect("threads");
        pool.install(|| Workers::new(batches)).expect("threads")
    }

    #[test]
    fn cores_are_shared_out_between_batches() {
        assert!(workers(1, 4).is_none() && workers(4, 1).is_none());
        let threads = |cores, batches| -> Vec<usize> {
            workers(cores, batches).expect("groups").pools.iter().map(ThreadPool::current_num_threads).collect()
        };
        assert_eq!(threads(2, 8), [1, 1]);
        assert_eq!(threads(5, 2), [3, 2]);
        assert_eq!(threads(4, 4), [1, 1, 1, 1]);
    }

    #[test]
    fn memory_bounds_what_is_computed_at_a_time() {
        assert_eq!(groups_in_memory(Some(1 << 30), Some(10 << 30)), 8);
        assert_eq!(groups_in_memory(Some(8 << 30), Some(10 << 30)), 1);
        assert_eq!(groups_in_memory(None, Some(1)), 1);
    }

    #[test]
    fn results_have_the_order_of_their_items() {
        let workers = workers(3, 3).expect("groups");
        let work = |state: &mut usize, index: usize, item: u64| {
            std::thread::sleep(std::time::Duration::from_millis(item));
            *state += 1;
            (index, item, rayon::current_num_threads())
        };
        let results = workers.run(vec![0; workers.groups()], [9, 1, 5, 0, 3].into_iter(), work);
        assert_eq!(results, [(0, 9, 1), (1, 1, 1), (2, 5, 1), (3, 0, 1), (4, 3, 1)]);
    }

    #[test]
    #[should_panic(expected = "the third")]
    fn a_panic_is_that_of_the_caller() {
        let workers = workers(2, 3).expect("groups");
        let _ = workers.run(vec![(), ()], 0..3, |(), index, _| assert!(index < 2, "the third"));
    }
}
