//! The data loader: batches in a fixed order, prefetched by persistent worker threads.
//!
//! The order of an epoch comes from `(seed, epoch)` alone ([`epoch_order`], or an [`Order`] such as a [`Mixture`] of
//! sources). It is cut into batches before any of them is made: by number of samples, by cost ([`Budget`]), or by
//! similar length. A worker takes the next batch, loads its samples one after the other and collates them; finished
//! batches wait until their turn. So the stream is the same for any number of workers, and an epoch resumes at any
//! batch without replaying the batches before it.
//!
//! ```text
//! delivered          claimed                                  end of the epoch
//!     |  ready, in work  |  waits until the prefetch budget allows  |
//! ```

mod config;
mod dataset;
mod error;
mod mixture;
mod order;
mod plan;
mod queue;
mod share;
mod skip;
#[cfg(test)]
mod tests;
mod worker;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

pub use config::{Budget, LoaderConfig, LoaderConfigError, OnBadSample, Workers};
pub use dataset::{Collate, Dataset};
pub use error::{LoaderError, SampleError};
pub use mixture::{Mixture, MixtureError};
pub use order::{Order, epoch_order};
pub use share::BatchShare;
pub use skip::{Skipped, Skips};

use plan::{Plan, Planner};
use queue::{GivenUp, Queue};
use skip::{Ledger, Tally, lock};
use worker::Worker;

/// Longest time that dropping a [`Loader`] waits for a worker in the middle of a sample. Workers check the stop flag
/// between samples; a worker whose sample takes longer than this ends by itself later.
const PATIENCE: Duration = Duration::from_millis(800);

/// A dataset, a collator for it, and the threads that run both.
///
/// The threads start in [`Loader::new`], serve every epoch, and are joined when the loader is dropped.
pub struct Loader<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    config: LoaderConfig,
    order: Option<Box<dyn Order>>,
    planner: Planner,
    /// Batches of the epoch requested last.
    plan: Mutex<Option<Arc<Plan>>>,
    ledger: Arc<Mutex<Ledger>>,
    queue: Arc<Queue<C::Batch>>,
    given_up: Option<Box<GivenUp>>,
    threads: Vec<JoinHandle<()>>,
}

impl<D, C> Loader<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Checks the config, reads the lengths of the samples if batches depend on them, and starts the workers.
    pub fn new(dataset: Arc<D>, collate: Arc<C>, config: LoaderConfig) -> Result<Self, LoaderError> {
        config.validate()?;
        let by_length = config.group_by_length || config.budget.is_some();
        let lengths = if by_length { lengths(&*dataset)? } else { Vec::new() };
        let (workers, on_bad_sample) = (config.workers.count(), config.on_bad_sample);
        // Built first, so that a thread that cannot be spawned drops the loader and with it the earlier threads.
        let mut loader = Self {
            dataset,
            order: None,
            planner: Planner::new(&config, lengths),
            plan: Mutex::default(),
            ledger: Arc::default(),
            queue: Arc::new(Queue::new(config.prefetch_batches, config.prefetch_bytes)),
            given_up: None,
            threads: Vec::with_capacity(workers),
            config,
        };
        for index in 0..workers {
            let worker = Worker::new(loader.dataset.clone(), collate.clone(), on_bad_sample, loader.queue.clone());
            let thread = Builder::new()
                .name(format!("loader-{index}"))
                .spawn(move || worker.run())
                .map_err(|source| LoaderError::Spawn { index, source })?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }
}

impl<D: Dataset, C: Collate<D::Item>> Loader<D, C> {
    /// Takes samples in this order instead of the one that `shuffle` selects. Its indices must be below the dataset's
    /// length.
    ///
    /// Batches are still cut as the config says. Grouping by length moves samples within a stretch of the order;
    /// `shuffle` then only decides whether the batches of a stretch are shuffled.
    pub fn with_order(mut self, order: impl Order + 'static) -> Self {
        self.order = Some(Box::new(order));
        self.plan = Mutex::default();
        self
    }

    /// Waits for batches only until `given_up` returns true. It is called ten times a second during a wait; from then
    /// on a batch that is not ready is [`LoaderError::GivenUp`]. This ends a wait that could last for ever, for example
    /// for a sample that is read from a network.
    pub fn until(mut self, given_up: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.given_up = Some(Box::new(given_up));
        self
    }

    /// Returns a hash of the samples' names in the dataset's order, which tells loaders with different samples apart.
    pub fn fingerprint(&self) -> u64 {
        // The hasher gives the same result for the same names in every process of one program.
        let mut hasher = DefaultHasher::new();
        (0..self.dataset.len()).for_each(|index| self.dataset.name(index).hash(&mut hasher));
        hasher.finish()
    }

    /// Returns the batches of one epoch from `start_batch` on; loading begins at once, before the first `next`.
    ///
    /// A `start_batch` at or past the end gives an empty iterator. Several epochs may be read at the same time, each
    /// with a prefetch budget of its own.
    pub fn epoch(&self, epoch: u64, start_batch: usize) -> Epoch<'_, C::Batch> {
        self.share(epoch, start_batch, BatchShare::default())
    }

    /// Returns the batches of an epoch from `start_batch` on that belong to one of the ranks that share it. The other
    /// batches are neither read nor made.
    ///
    /// # Panics
    /// If `rank` is not below `count`, or a step has no batches.
    pub fn share(&self, epoch: u64, start_batch: usize, share: BatchShare) -> Epoch<'_, C::Batch> {
        let plan = self.plan(epoch);
        let numbers: Arc<[usize]> = self.planner.share(&plan, start_batch, share).into();
        let tally = Tally::new(self.ledger.clone(), epoch, plan.len(), self.config.max_bad_share);
        Epoch {
            queue: &self.queue,
            run: self.queue.open(plan.clone(), numbers.clone()),
            behind: start_batch.min(plan.batches()),
            plan,
            numbers,
            next: 0,
            // In a part of an epoch it can happen without an error that no sample is readable.
            answered: start_batch > 0 || share.count > 1,
            tally,
            given_up: self.given_up.as_deref(),
        }
    }

    /// Returns the number of batches of an epoch, including those that lose all of their samples because they are bad.
    ///
    /// It is the same for every epoch unless there is a `budget`. The first call for an epoch computes its order.
    pub fn batches(&self, epoch: u64) -> usize {
        // Without a budget the plan of any epoch will do, so that the orders of a thousand epochs need not be computed.
        let known = if self.config.budget.is_none() { lock(&self.plan).clone() } else { None };
        known.unwrap_or_else(|| self.plan(epoch)).batches()
    }

    /// Returns the first batch of an epoch that begins with the sample at this place of the epoch's order, or with a
    /// later one.
    pub fn first_batch_from(&self, epoch: u64, place: usize) -> usize {
        let plan = self.plan(epoch);
        (0..plan.batches()).find(|batch| plan.before(*batch) >= place).unwrap_or(plan.batches())
    }

    /// Returns the mean number of samples per optimizer step, if each step takes this many batches of the epoch. The
    /// last step, which may be incomplete, counts only if it is the only one.
    pub fn samples_per_step(&self, epoch: u64, batches: usize) -> f64 {
        let plan = self.plan(epoch);
        match (plan.batches().div_ceil(batches), plan.batches()) {
            (0, _) => 0.0,
            (1, all) => plan.before(all) as f64,
            (steps, _) => plan.before((steps - 1) * batches) as f64 / (steps - 1) as f64,
        }
    }

    /// Returns the samples left out of the batches delivered so far, in all epochs together.
    pub fn skipped(&self) -> Skips {
        lock(&self.ledger).skips()
    }

    /// Returns [`Skips::samples`] alone, which is cheap enough to call after every batch.
    pub fn skipped_samples(&self) -> usize {
        lock(&self.ledger).samples()
    }

    fn plan(&self, epoch: u64) -> Arc<Plan> {
        let mut last = lock(&self.plan);
        if let Some(plan) = last.as_ref().filter(|plan| plan.epoch == epoch) {
            return plan.clone();
        }
        let order = match &self.order {
            Some(order) => order.epoch(epoch),
            None if self.config.shuffle => epoch_order(self.dataset.len(), self.config.seed, epoch),
            None => (0..self.dataset.len()).collect(),
        };
        last.insert(Arc::new(self.planner.plan(epoch, order))).clone()
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Returns the config that the loader was made with.
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }
}

impl<D: Dataset, C: Collate<D::Item>> Drop for Loader<D, C> {
    fn drop(&mut self) {
        let all_left = self.queue.stop(PATIENCE);
        for thread in self.threads.drain(..).filter(|thread| all_left || thread.is_finished()) {
            // Workers catch every panic of a dataset or a collator, so the result holds no information.
            let _ = thread.join();
        }
    }
}

/// Returns the length of every sample.
fn lengths<D: Dataset>(dataset: &D) -> Result<Vec<f64>, LoaderError> {
    let length = |index| {
        let length = dataset.length(index).filter(|length| length.is_finite() && *length >= 0.0);
        length.ok_or_else(|| LoaderError::Length { name: dataset.name(index), index })
    };
    (0..dataset.len()).map(length).collect()
}

/// Iterator over the batches of one epoch, in order. Dropping it midway discards the prefetched batches.
///
/// An error concerns its batch alone: the next call continues with the batch after it, or, after
/// [`LoaderError::GivenUp`], waits for the same batch again. A batch that loses all of its samples is passed over. An
/// epoch that loses all of its batches in this way ends with [`LoaderError::NothingReadable`]; otherwise a caller that
/// reads epoch after epoch would do so for ever.
pub struct Epoch<'a, B> {
    queue: &'a Queue<B>,
    run: u64,
    plan: Arc<Plan>,
    /// Batches of this reader, and the number of them delivered.
    numbers: Arc<[usize]>,
    next: usize,
    /// Batches before this one are done.
    behind: usize,
    /// Whether the epoch has given a batch or an error.
    answered: bool,
    tally: Tally,
    given_up: Option<&'a GivenUp>,
}

impl<B> Epoch<'_, B> {
    /// Returns the number of batches of the epoch before this point, including those passed over. A checkpoint stores
    /// it to resume from here.
    pub fn cursor(&self) -> usize {
        self.behind
    }

    /// Returns the number of samples of the epoch before this point, including those left out.
    pub fn samples_before(&self) -> usize {
        self.plan.before(self.behind)
    }

    /// Returns the number of samples in all batches of the epoch.
    pub fn samples(&self) -> usize {
        self.plan.len()
    }
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&number) = self.numbers.get(self.next) {
            let Some(made) = self.queue.take(self.run, self.given_up) else {
                return Some(Err(LoaderError::GivenUp { batch: number, epoch: self.plan.epoch }));
            };
            self.behind = number + 1;
            self.next += 1;
            let within = self.tally.count(self.plan.before(self.behind), made.skipped);
            let batch = within.and(made.batch).transpose();
            if batch.is_some() {
                self.answered = true;
                return batch;
            }
        }
        let unreadable = (!self.answered).then(|| self.tally.nothing_readable()).flatten();
        self.answered = true;
        unreadable.map(Err)
    }

    /// At most the remaining batches, or the error that there was none.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.numbers.len() - self.next;
        (0, Some(left.max(usize::from(!self.answered))))
    }
}

impl<B> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        self.queue.close(self.run);
    }
}
