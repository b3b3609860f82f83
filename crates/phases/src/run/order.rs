//! The order of samples of several tasks.

use crate::config::CurriculumConfig;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use undertone_data::loader::{LoaderConfig, Mixture, MixtureError, Order};

/// Order of samples in batches of either one task or all tasks. Each sample occurs once per epoch. With a temperature,
/// those of small tasks occur more often, and those of large tasks take turns over epochs.
#[derive(Clone, Debug)]
pub struct TaskOrder {
    /// Tasks as sources that each contribute their share of an epoch.
    tasks: Mixture,
    lengths: Vec<usize>,
    batch_size: usize,
    batches: usize,
    seed: u64,
    curriculum: Option<(CurriculumConfig, u64)>,
    accumulation: usize,
}

impl TaskOrder {
    /// Returns an order of mixed batches of tasks with these numbers of samples, numbered one task after the other.
    pub fn new(lengths: Vec<usize>, loader: &LoaderConfig) -> Self {
        let LoaderConfig { batch_size, drop_last, seed, .. } = *loader;
        let samples = lengths.iter().sum::<usize>();
        let batches = if drop_last { samples / batch_size } else { samples.div_ceil(batch_size) };
        let tasks = Mixture::whole(lengths.clone(), seed);
        Self { tasks, lengths, batch_size, batches, seed, curriculum: None, accumulation: 1 }
    }

    /// Draws tasks in proportion to the `temperature`-th root of their numbers of samples: in proportion to the numbers
    /// with 1, nearly uniformly with a large temperature.
    ///
    /// # Errors
    /// When the temperature is not above 0, or leaves nothing for a task.
    pub fn with_temperature(mut self, temperature: f64) -> Result<Self, MixtureError> {
        self.tasks = Mixture::tempered(self.lengths.clone(), temperature, self.seed)?;
        Ok(self)
    }

    /// Sets the number of batches per optimizer step.
    pub fn with_accumulation(mut self, accumulation: usize) -> Self {
        self.accumulation = accumulation;
        self
    }

    /// Adds a curriculum from batches of one task to mixed batches over `steps` optimizer steps.
    pub fn with_curriculum(mut self, curriculum: CurriculumConfig, steps: u64) -> Self {
        self.curriculum = Some((curriculum, steps));
        self
    }

    /// Returns the number of batches per epoch.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Returns the optimizer step of a batch of an epoch. The tail of each epoch is a step of its own.
    pub fn step(&self, epoch: u64, batch: usize) -> u64 {
        let before = epoch.saturating_mul(self.batches.div_ceil(self.accumulation) as u64);
        before.saturating_add((batch / self.accumulation) as u64)
    }
}

impl Order for TaskOrder {
    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let samples = self.lengths.iter().sum();
        let mut left = self.tasks.sources(epoch);
        // Samples are taken from the end.
        left.iter_mut().for_each(|samples| samples.reverse());
        let mut rng = ChaCha8Rng::seed_from_u64(undertone_ops::seeds::of_number(self.seed, epoch));
        let mut order = Vec::with_capacity(samples);
        let mut batch = 0;
        while order.len() < samples {
            let single = self.curriculum.map_or(0.0, |(c, steps)| c.at(self.step(epoch, batch), steps));
            let one = (uniform(&mut rng) < single).then(|| draw(&left, &mut rng));
            for _ in 0..self.batch_size.min(samples - order.len()) {
                // If a task runs out of samples in its batch, other tasks fill the rest.
                let task = one.filter(|task| !left[*task].is_empty()).unwrap_or_else(|| draw(&left, &mut rng));
                order.extend(left[task].pop());
            }
            batch += 1;
        }
        order
    }
}

/// Draws a task in proportion to its remaining samples, so that all tasks run out together.
fn draw(left: &[Vec<usize>], rng: &mut ChaCha8Rng) -> usize {
    let total: usize = left.iter().map(Vec::len).sum();
    let mut at = (uniform(rng) * total as f64) as usize;
    for (task, samples) in left.iter().enumerate() {
        if at < samples.len() {
            return task;
        }
        at -= samples.len();
    }
    left.iter().rposition(|samples| !samples.is_empty()).unwrap_or_default()
}

/// Returns a uniform random number in `0..1`, with 53 bits.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sample_once_in_an_order_of_seed_and_epoch(
            lengths in prop::collection::vec(0_usize..40, 1..6), batch_size in 1_usize..9, seed: u64, epoch in 0_u64..5,
        ) {
            let loader = LoaderConfig { batch_size, seed, ..Default::default() };
            let order = TaskOrder::new(lengths.clone(), &loader).with_curriculum(CurriculumConfig::default(), 50);
            let found = order.epoch(epoch);
            prop_assert_eq!(&found, &order.epoch(epoch));
            let mut sorted = found;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lengths.iter().sum()).collect::<Vec<_>>());
        }
    }

    /// Returns the share of batches with one task in the first and the last quarter of an epoch.
    fn single_shares(order: &TaskOrder) -> [f64; 2] {
        let samples = order.epoch(0);
        let single: Vec<bool> =
            samples.chunks(8).map(|batch| batch.iter().all(|i| i / 2000 == batch[0] / 2000)).collect();
        let share = |of: &[bool]| of.iter().filter(|s| **s).count() as f64 / of.len() as f64;
        let quarter = single.len() / 4;
        [share(&single[..quarter]), share(&single[single.len() - quarter..])]
    }

    proptest! {
        #[test]
        fn a_temperature_evens_tasks_out_and_leaves_no_sample_behind(
            lengths in prop::collection::vec(0_usize..60, 1..6), temperature in 1.0_f64..50.0, seed: u64,
        ) {
            prop_assume!(lengths.iter().any(|length| *length > 0));
            let loader = LoaderConfig { batch_size: 4, seed, ..Default::default() };
            let plain = TaskOrder::new(lengths.clone(), &loader);
            prop_assert_eq!(plain.clone().with_temperature(1.0).expect("a temperature").epoch(3), plain.epoch(3));
            let order = plain.with_temperature(temperature);
            // The share of a small task beside large ones can be less than half a sample.
            prop_assume!(order.is_ok());
            let order = order.expect("an order");
            let total: usize = lengths.iter().sum();
            let mut seen = vec![0_usize; total];
            for epoch in 0..40 {
                let samples = order.epoch(epoch);
                prop_assert_eq!(samples.len(), total);
                samples.into_iter().for_each(|sample| seen[sample] += 1);
            }
            let mut first = 0;
            for length in &lengths {
                let own = &seen[first..first + length];
                let (least, most) = (own.iter().min().unwrap_or(&0), own.iter().max().unwrap_or(&0));
                prop_assert!(most - least <= 1, "every sample of a task as often as any other: {own:?}");
                first += length;
            }
        }
    }

    #[test]
    fn a_large_temperature_draws_evenly() {
        let loader = LoaderConfig { batch_size: 4, ..Default::default() };
        let order = TaskOrder::new(vec![1000, 100, 10], &loader);
        let counts = |order: &TaskOrder| {
            let samples = order.epoch(0);
            [0..1000, 1000..1100, 1100..1110].map(|task| samples.iter().filter(|sample| task.contains(*sample)).count())
        };
        assert_eq!(counts(&order), [1000, 100, 10]);
        assert_eq!(counts(&order.clone().with_temperature(2.0).expect("an order")), [784, 248, 78], "31.6 : 10 : 3.16");
        assert_eq!(counts(&order.with_temperature(1e6).expect("an order")), [370, 370, 370]);
    }

    #[test]
    fn the_curriculum_goes_from_single_to_mixed() {
        let order = TaskOrder::new(vec![2000; 4], &LoaderConfig { batch_size: 8, ..Default::default() });
        assert!(single_shares(&order).iter().all(|share| *share < 0.02), "mixed from the start without a curriculum");
        let [first, last] = single_shares(&order.with_curriculum(CurriculumConfig::default(), 1000));
        assert!((first - 0.72).abs() < 0.1 && (last - 0.28).abs() < 0.1, "{first}, {last}");
    }

    #[test]
    fn steps_count_windows_and_tails() {
        let loader = LoaderConfig { batch_size: 4, ..Default::default() };
        let order = TaskOrder::new(vec![10, 10], &loader).with_accumulation(2);
        // Five batches per epoch, two per step: the fifth is a step of its own.
        assert_eq!([(0, 0), (0, 3), (0, 4), (1, 0), (1, 2)].map(|(e, b)| order.step(e, b)), [0, 1, 2, 3, 4]);
    }
}
