//! The worker threads of a loader.

use std::sync::Arc;

use super::queue::{Job, Made, Queue};
use super::{Collate, Dataset, LoaderError, OnBadSample, SampleError, Skipped};
use crate::guarded::caught;

/// Number of samples of a batch that an error lists by name.
const NAMES: usize = 8;

/// A worker thread, which makes batches until the queue stops.
pub(super) struct Worker<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    collate: Arc<C>,
    on_bad_sample: OnBadSample,
    queue: Arc<Queue<C::Batch>>,
}

impl<D: Dataset, C: Collate<D::Item>> Worker<D, C> {
    pub fn new(dataset: Arc<D>, collate: Arc<C>, on_bad_sample: OnBadSample, queue: Arc<Queue<C::Batch>>) -> Self {
        queue.enter();
        Self { dataset, collate, on_bad_sample, queue }
    }

    pub fn run(self) {
        while let Some(job) = self.queue.claim() {
            if let Some(made) = self.make(&job) {
                self.queue.complete(job, made);
            }
        }
    }

    /// Makes one batch; returns `None` if it is no longer needed.
    fn make(&self, job: &Job) -> Option<Made<C::Batch>> {
        let epoch = job.plan.epoch;
        let samples = job.plan.samples(job.batch);
        let mut items = Vec::with_capacity(samples.len());
        let mut skipped = Vec::new();
        for &index in samples {
            if job.cancelled() {
                return None;
            }
            match self.load(index, epoch) {
                Ok(item) => items.push(item),
                Err(LoaderError::Sample { name, source, .. }) if self.on_bad_sample == OnBadSample::Skip => {
                    skipped.push(Skipped { index, name, epoch, reason: source.to_string() });
                }
                Err(error) => return Some(Made { batch: Err(error), bytes: 0, skipped }),
            }
        }
        if items.is_empty() {
            return Some(Made { batch: Ok(None), bytes: 0, skipped });
        }
        Some(match self.collate(items) {
            Ok((batch, bytes)) => Made { batch: Ok(Some(batch)), bytes, skipped },
            Err(failure) => {
                let names = self.names(samples.iter().filter(|&&index| skipped.iter().all(|s| s.index != index)));
                let batch = job.batch;
                let error = match failure {
                    Failure::Error(source) => LoaderError::Collate { batch, epoch, names, source },
                    Failure::Panic(message) => LoaderError::CollatePanic { batch, epoch, names, message },
                };
                Made { batch: Err(error), bytes: 0, skipped }
            }
        })
    }

    fn load(&self, index: usize, epoch: u64) -> Result<D::Item, LoaderError> {
        match caught(|| self.dataset.get(index, epoch)) {
            Ok(Ok(item)) => Ok(item),
            Ok(Err(source)) => Err(LoaderError::Sample { name: self.name(index), index, epoch, source }),
            Err(message) => Err(LoaderError::SamplePanic { name: self.name(index), index, epoch, message }),
        }
    }

    /// Returns the batch and the number of bytes it holds.
    fn collate(&self, items: Vec<D::Item>) -> Result<(C::Batch, usize), Failure> {
        let made = caught(|| {
            let batch = self.collate.collate(items)?;
            let bytes = C::bytes(&batch);
            Ok((batch, bytes))
        });
        made.map_err(Failure::Panic)?.map_err(Failure::Error)
    }

    /// Returns the names of the first few samples and the number of the others, for an error message.
    fn names<'a>(&self, samples: impl Iterator<Item = &'a usize>) -> String {
        let samples: Vec<_> = samples.collect();
        let shown = samples.iter().take(NAMES).map(|&&index| format!("`{}`", self.name(index)));
        let mut names = shown.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = samples.len().checked_sub(NAMES) {
            names.push_str(&format!(" and {more} more"));
        }
        names
    }

    /// Returns the dataset's name for a sample, even if computing the name panics.
    fn name(&self, index: usize) -> String {
        caught(|| self.dataset.name(index)).unwrap_or_else(|_| format!("#{index}"))
    }
}

impl<D: Dataset, C: Collate<D::Item>> Drop for Worker<D, C> {
    fn drop(&mut self) {
        self.queue.leave();
    }
}

/// Error of samples that could not be collated.
enum Failure {
    Error(SampleError),
    Panic(String),
}
