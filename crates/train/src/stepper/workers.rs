//! Threads that compute the batches of one optimizer step at the same time, on the CPU.
//!
//! The operations of a small batch are too short to be split over all cores; a batch on each core keeps them busier.
//! The contribution of a batch does not depend on where it was computed, and contributions are added in the order of
//! the batches. A step therefore gives the same bits either way.

use crate::memory::{available_memory_bytes, resident_memory_bytes};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::sync::{Mutex, PoisonError};

/// Share of the available memory that batches besides the first may take.
const MEMORY_SHARE: f64 = 0.7;

/// Order in which the batches of a step are computed.
#[derive(Debug, Default)]
pub(super) enum Concurrency {
    /// One after the other, until the memory use of a step is known.
    #[default]
    Undecided,
    /// One after the other.
    Sequential,
    /// Several at the same time.
    SideBySide(Workers),
}

impl Concurrency {
    /// Number of batches that are computed at the same time.
    pub fn at_a_time(&self) -> usize {
        match self {
            Self::SideBySide(workers) => workers.groups(),
            Self::Undecided | Self::Sequential => 1,
        }
    }

    /// Decides for steps of so many batches in each of `processes`, which may share this machine's memory. To be called after the
    /// first of them.
    pub fn settle(&mut self, batches: usize, processes: usize) {
        if matches!(self, Self::Undecided) {
            // If the system gives no more threads, the batches are computed one after the other.
            *self = Workers::new(batches, processes).ok().flatten().map_or(Self::Sequential, Self::SideBySide);
        }
    }
}

/// Groups of threads. Each group computes one batch at a time.
#[derive(Debug)]
pub(super) struct Workers {
    pools: Vec<ThreadPool>,
}

impl Workers {
    /// Makes groups for steps of `batches` batches, from the cores of rayon's current pool: as many as there are
    /// batches and cores, and as the memory allows. Call it after a step: it assumes that every group needs as much
    /// memory as this process holds now, which is more than a batch needs. What is available is divided among the `processes`.
    /// `None` if there would be a single group.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(batches: usize, processes: usize) -> Result<Option<Self>, ThreadPoolBuildError> {
        let cores = rayon::current_num_threads();
        let available = available_memory_bytes().map(|bytes| bytes / processes.max(1) as u64);
        let groups = batches.min(cores).min(groups_in_memory(resident_memory_bytes(), available));
        if groups < 2 {
            return Ok(None);
        }
        // For example, 5 cores make groups of 3 and 2.
        let threads = |group: usize| cores / groups + usize::from(group < cores % groups);
        let pool = |group| ThreadPoolBuilder::new().num_threads(threads(group)).build();
        Ok(Some(Self { pools: (0..groups).map(pool).collect::<Result<_, _>>()? }))
    }

    /// Number of items that are processed at the same time.
    pub fn groups(&self) -> usize {
        self.pools.len()
    }

    /// Applies `work` to the items, and returns the results in the order of the items. Each group has one of `states`
    /// to itself; there must be as many as groups.
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

/// Returns the number of batches for which there is memory at the same time; 1 if that is unknown.
fn groups_in_memory(resident: Option<u64>, available: Option<u64>) -> usize {
    let (Some(resident), Some(available)) = (resident, available) else { return 1 };
    1 + (available as f64 * MEMORY_SHARE / resident.max(1) as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(cores: usize, batches: usize) -> Option<Workers> {
        let pool = ThreadPoolBuilder::new().num_threads(cores).build().expect("threads");
        pool.install(|| Workers::new(batches, 1)).expect("threads")
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
