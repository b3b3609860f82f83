//! Assignment of samples to the batches of an epoch.

use super::order::{generator, shuffle};
use super::{Budget, LoaderConfig};

/// Length of the stretches within which [`Planner`] groups by length, in batches. A larger value would leave less
/// padding and less randomness.
const STRETCH: f64 = 50.0;
/// Minimum number of stretches in an epoch. With fewer, the same samples of similar length would meet in every epoch.
const STRETCHES: f64 = 4.0;

/// Batches of one epoch: its samples in order, and the end of each batch.
pub(super) struct Plan {
    pub epoch: u64,
    order: Vec<usize>,
    ends: Vec<usize>,
}

impl Plan {
    /// Returns the number of batches.
    pub fn batches(&self) -> usize {
        self.ends.len()
    }

    /// Returns the samples of one batch.
    pub fn samples(&self, batch: usize) -> &[usize] {
        &self.order[self.before(batch)..self.ends[batch]]
    }

    /// Returns the number of samples in the batches before this one.
    pub fn before(&self, batch: usize) -> usize {
        batch.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Returns the number of samples in all batches.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

/// Makes plans from orders.
pub(super) struct Planner {
    batch_size: usize,
    budget: Option<Budget>,
    group: bool,
    shuffle: bool,
    drop_last: bool,
    seed: u64,
    /// Length of each sample; empty if batches do not depend on length.
    lengths: Vec<f64>,
}

impl Planner {
    /// Returns a planner for samples of these lengths; none are needed if batches do not depend on length.
    pub fn new(config: &LoaderConfig, lengths: Vec<f64>) -> Self {
        let LoaderConfig { batch_size, budget, group_by_length: group, shuffle, drop_last, seed, .. } = *config;
        Self { batch_size, budget, group, shuffle, drop_last, seed, lengths }
    }

    /// Returns the batches of an epoch whose samples have this order.
    pub fn plan(&self, epoch: u64, mut order: Vec<usize>) -> Plan {
        if self.group {
            return self.grouped(epoch, order);
        }
        let mut ends = self.cut(&order);
        if self.drop_last && !self.ends_full(&order, &ends) {
            ends.pop();
        }
        order.truncate(ends.last().copied().unwrap_or_default());
        Plan { epoch, order, ends }
    }

    /// Takes the order one stretch at a time, sorts each stretch by length, cuts it into batches and shuffles those.
    /// Samples move within their stretch alone. A batch that a stretch does not fill continues in the next.
    fn grouped(&self, epoch: u64, mut order: Vec<usize>) -> Plan {
        if self.drop_last && self.budget.is_none() {
            order.truncate(order.len() - order.len() % self.batch_size);
        }
        let total: f64 = order.iter().map(|&index| self.worth(index)).sum();
        let stretch = (total / STRETCHES).clamp(1.0, STRETCH);
        let mut rng = generator(b"undertone groups", self.seed, epoch);
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut samples: Vec<usize> = Vec::new();
        let mut rest = order.into_iter().peekable();
        while rest.peek().is_some() {
            let mut worth = 0.0;
            while let Some(index) = rest.next_if(|_| worth < stretch) {
                worth += self.worth(index);
                samples.push(index);
            }
            let last = rest.peek().is_none();
            let mut cut = self.sorted(std::mem::take(&mut samples), last && self.drop_last);
            if !last && cut.last().is_some_and(|batch| !self.full(batch)) {
                samples = cut.pop().unwrap_or_default();
            }
            if self.shuffle {
                shuffle(&mut cut, &mut rng);
            }
            batches.extend(cut);
        }
        // With the longest sample first, the program runs out of memory at once or not at all.
        let size = |batch: &Vec<usize>| (self.longest(batch), batch.len());
        let larger = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        // The first of equals: `max_by` would return the last.
        let largest = (0..batches.len()).rev().max_by(|&a, &b| larger(&size(&batches[a]), &size(&batches[b])));
        if let Some(largest) = largest {
            batches.swap(0, largest);
        }
        let ends = batches.iter().scan(0, |end, batch| {
            *end += batch.len();
            Some(*end)
        });
        Plan { epoch, ends: ends.collect(), order: batches.concat() }
    }

    /// Returns the samples of a stretch in batches, from the longest down. If all batches must be `full`, the last
    /// samples of the unsorted stretch are left out, so that the choice is random. By length it would always be the
    /// shortest ones.
    fn sorted(&self, samples: Vec<usize>, full: bool) -> Vec<Vec<usize>> {
        let mut keep = samples.len();
        let mut sorted: Vec<(usize, usize)> = samples.into_iter().enumerate().collect();
        sorted.sort_by(|(_, a), (_, b)| self.length(*b).total_cmp(&self.length(*a)));
        loop {
            let kept: Vec<usize> = sorted.iter().filter(|(place, _)| *place < keep).map(|(_, index)| *index).collect();
            let ends = self.cut(&kept);
            if !full || self.ends_full(&kept, &ends) {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                return starts.zip(&ends).map(|(start, &end)| kept[start..end].to_vec()).collect();
            }
            keep -= 1;
        }
    }

    /// Returns the cost of each batch, if its samples have lengths: its number of samples, padded to the longest.
    pub fn costs(&self, plan: &Plan) -> Option<Vec<f64>> {
        let cost = |batch: usize| {
            let samples = plan.samples(batch);
            let longest = self.longest(samples);
            samples.len() as f64 * self.budget.map_or(longest, |budget| budget.cost(longest))
        };
        (!self.lengths.is_empty()).then(|| (0..plan.batches()).map(cost).collect())
    }

    /// Returns the ends of batches that each hold as many consecutive samples as allowed.
    fn cut(&self, samples: &[usize]) -> Vec<usize> {
        let mut ends = Vec::new();
        let (mut count, mut longest) = (0, 0.0);
        for (place, &index) in samples.iter().enumerate() {
            let length = self.length(index);
            if count > 0 && self.exceeds(count + 1, length.max(longest)) {
                ends.push(place);
                (count, longest) = (0, 0.0);
            }
            (count, longest) = (count + 1, length.max(longest));
        }
        if count > 0 {
            ends.push(samples.len());
        }
        ends
    }

    /// Returns whether the last batch is full, or there is none.
    fn ends_full(&self, samples: &[usize], ends: &[usize]) -> bool {
        match ends {
            [] => true,
            [end] => self.full(&samples[..*end]),
            [.., start, end] => self.full(&samples[*start..*end]),
        }
    }

    /// Returns whether one more sample as long as the longest would exceed the maximum.
    fn full(&self, batch: &[usize]) -> bool {
        self.exceeds(batch.len() + 1, self.longest(batch))
    }

    /// Returns whether this many samples, padded to this length, exceed the maximum of a batch.
    fn exceeds(&self, count: usize, length: f64) -> bool {
        count > self.batch_size || self.budget.is_some_and(|budget| count as f64 * budget.cost(length) > budget.max)
    }

    /// Returns the fraction of a batch that a sample fills.
    fn worth(&self, index: usize) -> f64 {
        let share = 1.0 / self.batch_size as f64;
        self.budget.map_or(share, |budget| (budget.cost(self.length(index)) / budget.max).clamp(share, 1.0))
    }

    fn longest(&self, batch: &[usize]) -> f64 {
        batch.iter().map(|&index| self.length(index)).fold(0.0, f64::max)
    }

    /// Returns the length of a sample; none if the order names an invalid index, which loading it will report.
    fn length(&self, index: usize) -> f64 {
        self.lengths.get(index).copied().unwrap_or_default()
    }
}
