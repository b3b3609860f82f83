//! The loader: batches in a fixed order, made ahead of time by persistent threads.
//!
//! The order of an epoch comes from `(seed, epoch)` alone ([`epoch_order`]). A worker takes the next batch in that
//! order, loads its samples one after the other and collates them; finished batches wait until their turn. So the
//! stream is the same for any number of workers, and an epoch resumes at any batch without replaying the ones before.
//!
//! ```text
//! delivered          claimed                                  end of the epoch
//!     |  ready, in work  |  waits until the prefetch budget allows  |
//! ```

mod config;
mod error;
mod order;
mod queue;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

pub use config::{LoaderConfig, LoaderConfigError, Workers};
pub use error::{LoaderError, SampleError};
pub use order::{Order, epoch_order};

use queue::{Plan, Queue};
use worker::Worker;

/// How long dropping a [`Loader`] waits for a worker that is in the middle of a sample. Workers look at the stop flag
/// between samples; one whose sample takes longer than this is left to end by itself.
const PATIENCE: Duration = Duration::from_millis(800);

/// Samples by index. `get` runs on the worker threads.
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item: Send;

    /// How many samples there are. It must not change while a [`Loader`] holds the dataset.
    fn len(&self) -> usize;

    /// Loads sample `index`. Whatever is random about it must come from `index` and `epoch`, never from call order.
    fn get(&self, index: usize, epoch: u64) -> Result<Self::Item, SampleError>;

    /// What a person would call this sample: its file, its line, its key. It ends up in error messages.
    fn name(&self, index: usize) -> String;

    /// Whether there is no sample at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes one batch of several samples. `collate` runs on the worker threads.
pub trait Collate<I>: Send + Sync {
    /// What the training loop receives.
    type Batch: Send;

    /// Puts the samples together, in the order given.
    fn collate(&self, items: Vec<I>) -> Result<Self::Batch, SampleError>;

    /// The host memory that `batch` holds, to be counted against [`LoaderConfig::prefetch_bytes`].
    fn bytes(batch: &Self::Batch) -> usize;
}

/// A dataset, a way to collate it, and the threads that do both.
///
/// The threads start in [`Loader::new`], serve every epoch, and are joined when the loader is dropped.
pub struct Loader<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    config: LoaderConfig,
    order: Option<Box<dyn Order>>,
    queue: Arc<Queue<C::Batch>>,
    threads: Vec<JoinHandle<()>>,
}

impl<D, C> Loader<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Checks the config and starts the workers.
    pub fn new(dataset: Arc<D>, collate: Arc<C>, config: LoaderConfig) -> Result<Self, LoaderError> {
        config.validate()?;
        let workers = config.workers.count();
        let queue = Arc::new(Queue::new(config.prefetch_batches, config.prefetch_bytes));
        // Built first, so that a thread that cannot be spawned drops the loader and with it the earlier threads.
        let mut loader = Self { dataset, config, order: None, queue, threads: Vec::with_capacity(workers) };
        for index in 0..workers {
            let worker = Worker::new(loader.dataset.clone(), collate.clone(), loader.queue.clone());
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
    /// Takes samples in this order instead of the one that `shuffle` means.
    pub fn with_order(mut self, order: impl Order + 'static) -> Self {
        self.order = Some(Box::new(order));
        self
    }

    /// The batches of one epoch from `start_batch` on; loading begins at once, before the first `next`.
    ///
    /// A `start_batch` at or past the end gives an empty iterator. Several epochs may be read at the same time, each
    /// with a prefetch budget of its own.
    pub fn epoch(&self, epoch: u64, start_batch: usize) -> Epoch<'_, C::Batch> {
        let LoaderConfig { batch_size, shuffle, seed, .. } = self.config;
        let samples = self.dataset.len();
        let order = match &self.order {
            Some(order) => order.epoch(epoch),
            None if shuffle => epoch_order(samples, seed, epoch),
            None => (0..samples).collect(),
        };
        let plan = Plan { epoch, order, batch_size, batches: self.batches_per_epoch() };
        let start = start_batch.min(plan.batches);
        let end = plan.batches;
        Epoch { queue: &self.queue, run: self.queue.open(plan, start), next: start, end }
    }

    /// How many batches an epoch has: the incomplete last one counts unless `drop_last` is set.
    pub fn batches_per_epoch(&self) -> usize {
        let LoaderConfig { batch_size, drop_last, .. } = self.config;
        if drop_last { self.dataset.len() / batch_size } else { self.dataset.len().div_ceil(batch_size) }
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

/// The batches of one epoch, in order. Dropping it midway gives up what was prefetched.
///
/// An error stands for its batch alone: the next call goes on with the batch after it.
pub struct Epoch<'a, B> {
    queue: &'a Queue<B>,
    run: u64,
    next: usize,
    end: usize,
}

impl<B> Epoch<'_, B> {
    /// The batch that the next call to `next` returns: what a checkpoint stores to go on from here.
    pub fn cursor(&self) -> usize {
        self.next
    }
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(self.queue.take(self.run))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<B> ExactSizeIterator for Epoch<'_, B> {}

impl<B> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        self.queue.close(self.run);
    }
}
