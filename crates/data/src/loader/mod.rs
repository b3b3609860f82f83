//! The loader: batches in a fixed order, made ahead of time by persistent threads.
//!
//! The order of an epoch comes from `(seed, epoch)` alone ([`epoch_order`], or an [`Order`] such as a [`Mixture`] of
//! sources), and it is cut into batches before any of them is made: by number, by cost ([`Budget`]), by like length. A
//! worker takes the next batch, loads its samples one after the other and collates them; finished batches wait until
//! their turn. So the stream is the same for any number of workers, and an epoch resumes at any batch without replaying
//! the ones before.
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

/// How long dropping a [`Loader`] waits for a worker that is in the middle of a sample. Workers look at the stop flag
/// between samples; one whose sample takes longer than this is left to end by itself.
const PATIENCE: Duration = Duration::from_millis(800);

/// A dataset, a way to collate it, and the threads that do both.
///
/// The threads start in [`Loader::new`], serve every epoch, and are joined when the loader is dropped.
pub struct Loader<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    config: LoaderConfig,
    order: Option<Box<dyn Order>>,
    planner: Planner,
    /// The batches of the epoch asked for last.
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
    /// Checks the config, asks for the lengths if batches go by them, and starts the workers.
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
    /// Takes samples in this order instead of the one that `shuffle` means. Its indices are below the dataset's length.
    ///
    /// Batches are still cut as the config says: grouping by length moves samples within a stretch of the order, and
    /// `shuffle` is then whether the batches of a stretch are shuffled.
    pub fn with_order(mut self, order: impl Order + 'static) -> Self {
        self.order = Some(Box::new(order));
        self.plan = Mutex::default();
        self
    }

    /// Waits for batches only until `given_up` is true, which is asked ten times a second while there is one to wait for:
    /// from then on a batch that is not ready is [`LoaderError::GivenUp`]. A sample may take for ever, one read from a
    /// network for example, and this is the way out of waiting for it.
    pub fn until(mut self, given_up: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.given_up = Some(Box::new(given_up));
        self
    }

    /// A number by which two loaders are told apart that have other samples: it is of their names, in the dataset's order.
    pub fn fingerprint(&self) -> u64 {
        // The same for the same names in every process of one program.
        let mut hasher = DefaultHasher::new();
        (0..self.dataset.len()).for_each(|index| self.dataset.name(index).hash(&mut hasher));
        hasher.finish()
    }

    /// The batches of one epoch from `start_batch` on; loading begins at once, before the first `next`.
    ///
    /// A `start_batch` at or past the end gives an empty iterator. Several epochs may be read at the same time, each
    /// with a prefetch budget of its own.
    pub fn epoch(&self, epoch: u64, start_batch: usize) -> Epoch<'_, C::Batch> {
        self.share(epoch, start_batch, BatchShare::default())
    }

    /// Of an epoch's batches from `start_batch` on those of one of the processes that share it. The others are neither read nor
    /// made.
    ///
    /// # Panics
    /// If there are no processes, or a step has no batches.
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
            // Of a part of an epoch it is no wonder that nothing can be read.
            answered: start_batch > 0 || share.count > 1,
            tally,
            given_up: self.given_up.as_deref(),
        }
    }

    /// How many batches an epoch has, those included that lose all of their samples because they are bad.
    ///
    /// It is the same for every epoch unless there is a `budget`. The first call for an epoch makes its order.
    pub fn batches(&self, epoch: u64) -> usize {
        // Those of any epoch, so that nobody waits for the orders of a thousand.
        let known = if self.config.budget.is_none() { lock(&self.plan).clone() } else { None };
        known.unwrap_or_else(|| self.plan(epoch)).batches()
    }

    /// The first batch of an epoch that begins with the sample at this place of the epoch's order, or with a later one.
    pub fn first_batch_from(&self, epoch: u64, place: usize) -> usize {
        let plan = self.plan(epoch);
        (0..plan.batches()).find(|batch| plan.before(*batch) >= place).unwrap_or(plan.batches())
    }

    /// How many samples an optimizer step has in the mean, if each takes so many batches of this epoch. The last step, which
    /// the epoch may leave short, counts only where it is the only one.
    pub fn samples_per_step(&self, epoch: u64, batches: usize) -> f64 {
        let plan = self.plan(epoch);
        match (plan.batches().div_ceil(batches), plan.batches()) {
            (0, _) => 0.0,
            (1, all) => plan.before(all) as f64,
            (steps, _) => plan.before((steps - 1) * batches) as f64 / (steps - 1) as f64,
        }
    }

    /// What was left out of the batches delivered so far, by all epochs together.
    pub fn skipped(&self) -> Skips {
        lock(&self.ledger).skips()
    }

    /// How many samples that is: [`Skips::samples`], for those who ask after every batch.
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

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The config that the loader was made with.
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }
}

impl<D: Dataset, C: Collate<D::Item>> Drop for Loader<D, C> {
    fn drop(&mut self) {
        let all_left = self.queue.stop(PATIENCE);
        for thread in self.threads.drain(..).filter(|thread| all_left || thread.is_finished()) {
            // Workers catch every panic of a dataset or a collator, so there is nothing to learn from the result.
            let _ = thread.join();
        }
    }
}

/// The length of every sample.
fn lengths<D: Dataset>(dataset: &D) -> Result<Vec<f64>, LoaderError> {
    let length = |index| {
        let length = dataset.length(index).filter(|length| length.is_finite() && *length >= 0.0);
        length.ok_or_else(|| LoaderError::Length { name: dataset.name(index), index })
    };
    (0..dataset.len()).map(length).collect()
}

/// The batches of one epoch, in order. Dropping it midway gives up what was prefetched.
///
/// An error stands for its batch alone: the next call goes on with the batch after it, or asks for the same one again
/// where waiting for it was given up. A batch that loses all of its samples is passed over; an epoch that loses all of its
/// batches so ends with [`LoaderError::NothingReadable`], or whoever reads epoch after epoch would do so for ever.
pub struct Epoch<'a, B> {
    queue: &'a Queue<B>,
    run: u64,
    plan: Arc<Plan>,
    /// The batches of this reader, and how many of them it has had.
    numbers: Arc<[usize]>,
    next: usize,
    /// The batches before this one are behind.
    behind: usize,
    /// Whether anything came of it: a batch, or an error.
    answered: bool,
    tally: Tally,
    given_up: Option<&'a GivenUp>,
}

impl<B> Epoch<'_, B> {
    /// How many batches of the epoch are behind this point, those passed over included: what a checkpoint stores to go
    /// on from here.
    pub fn cursor(&self) -> usize {
        self.behind
    }

    /// How many samples of the epoch are behind this point, those left out included.
    pub fn samples_before(&self) -> usize {
        self.plan.before(self.behind)
    }

    /// How many samples the epoch has in all of its batches.
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

    /// At most the batches that are left, or the error that there was none.
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
