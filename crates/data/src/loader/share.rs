//! Division of an epoch's batches among ranks.

use super::plan::{Plan, Planner};

/// One of the ranks that share an epoch; by default the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShare {
    /// Rank, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub count: usize,
    /// Number of batches per step, of all ranks together. Batches are divided step by step, and an epoch is read from
    /// the beginning of a step on.
    pub window: usize,
}

impl Default for BatchShare {
    fn default() -> Self {
        Self { rank: 0, count: 1, window: 1 }
    }
}

impl Planner {
    /// Returns the batches from `start` on that belong to this share, in their order. In each step every rank has the
    /// same number of batches, give or take one. If samples have lengths, batches are divided by cost, so that ranks
    /// wait less for each other; otherwise they are divided in turn.
    pub fn share(&self, plan: &Plan, start: usize, share: BatchShare) -> Vec<usize> {
        let BatchShare { rank, count, window } = share;
        assert!(rank < count && window > 0, "a share of something");
        let all = start..plan.batches();
        if count == 1 {
            return all.collect();
        }
        let Some(costs) = self.costs(plan) else { return all.filter(|batch| batch % count == rank).collect() };
        let mut own = Vec::new();
        for begin in all.step_by(window) {
            let mut batches: Vec<usize> = (begin..plan.batches().min(begin + window)).collect();
            // Batches in descending order of cost, dealt back and forth: the rank that is first in one round is last in
            // the next.
            batches.sort_by(|a, b| costs[*b].total_cmp(&costs[*a]).then(a.cmp(b)));
            let dealt = batches.chunks(count).enumerate().filter_map(|(round, batches)| {
                let turn = if round % 2 == 0 { rank } else { count - 1 - rank };
                batches.get(turn).copied()
            });
            let first = own.len();
            own.extend(dealt);
            own[first..].sort_unstable();
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::LoaderConfig;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_batch_is_one_processs_and_none_has_much_more_to_do(
            lengths in prop::collection::vec(0.1_f64..30.0, 1..120),
            count in 1usize..5,
            accumulation in 1usize..5,
            batch_size in 1usize..5,
            steps in 0usize..3,
            group_by_length: bool,
        ) {
            let config = LoaderConfig { batch_size, group_by_length, ..Default::default() };
            let planner = Planner::new(&config, lengths.clone());
            let plan = planner.plan(0, (0..lengths.len()).collect());
            let window = count * accumulation;
            let start = steps * window;
            let shares: Vec<Vec<usize>> =
                (0..count).map(|rank| planner.share(&plan, start, BatchShare { rank, count, window })).collect();
            let mut all = shares.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (start..plan.batches()).collect::<Vec<_>>());
            prop_assert!(shares.iter().all(|share| share.is_sorted()));
            let Some(costs) = planner.costs(&plan) else { return Ok(()) };
            for begin in (start..plan.batches()).step_by(window) {
                let cost = |share: &Vec<usize>| -> f64 {
                    share.iter().filter(|batch| (begin..begin + window).contains(batch)).map(|batch| costs[*batch]).sum()
                };
                let [least, most] = [f64::min, f64::max].map(|of| shares.iter().map(cost).reduce(of).expect("some"));
                let largest = (begin..plan.batches().min(begin + window)).map(|batch| costs[batch]).fold(0.0, f64::max);
                prop_assert!(most - least <= largest + 1e-9, "{most} and {least}, of which the largest is {largest}");
            }
        }
    }
}
