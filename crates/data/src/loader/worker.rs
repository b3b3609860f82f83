//! What a loader thread does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::queue::{Job, Outcome, Queue};
use super::{Collate, Dataset, LoaderError};

/// How many samples of a batch an error lists by name.
const NAMES: usize = 8;

/// One loader thread: it makes batches until the queue stops.
pub(super) struct Worker<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    collate: Arc<C>,
    queue: Arc<Queue<C::Batch>>,
}

impl<D: Dataset, C: Collate<D::Item>> Worker<D, C> {
    pub fn new(dataset: Arc<D>, collate: Arc<C>, queue: Arc<Queue<C::Batch>>) -> Self {
        queue.enter();
        Self { dataset, collate, queue }
    }

    pub fn run(self) {
        while let Some(job) = self.queue.claim() {
            let outcome = catch(|| self.make(&job)).unwrap_or_else(|message| {
                let (batch, epoch, names) = self.describe(&job);
                Some(Err(LoaderError::CollatePanic { batch, epoch, names, message }))
            });
            if let Some(outcome) = outcome {
                self.queue.complete(job, outcome);
            }
        }
    }

    /// One batch; `None` if nobody waits for it any more.
    fn make(&self, job: &Job) -> Option<Outcome<C::Batch>> {
        let samples = job.plan.samples(job.batch);
        let mut items = Vec::with_capacity(samples.len());
        for &index in samples {
            if job.cancelled() {
                return None;
            }
            match self.load(index, job.plan.epoch) {
                Ok(item) => items.push(item),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(match self.collate.collate(items) {
            Ok(batch) => {
                let bytes = C::bytes(&batch);
                Ok((batch, bytes))
            }
            Err(source) => {
                let (batch, epoch, names) = self.describe(job);
                Err(LoaderError::Collate { batch, epoch, names, source })
            }
        })
    }

    fn load(&self, index: usize, epoch: u64) -> Result<D::Item, LoaderError> {
        match catch(|| self.dataset.get(index, epoch)) {
            Ok(Ok(item)) => Ok(item),
            Ok(Err(source)) => Err(LoaderError::Sample { name: self.name(index), index, epoch, source }),
            Err(message) => Err(LoaderError::SamplePanic { name: self.name(index), index, epoch, message }),
        }
    }

    /// The batch, its epoch and its samples, for an error about all of it.
    fn describe(&self, job: &Job) -> (usize, u64, String) {
        let samples = job.plan.samples(job.batch);
        let shown = samples.iter().take(NAMES).map(|&index| format!("`{}`", self.name(index)));
        let mut names = shown.collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = samples.len().checked_sub(NAMES) {
            names.push_str(&format!(" and {more} more"));
        }
        (job.batch, job.plan.epoch, names)
    }

    /// The dataset's name for a sample, even if naming it panics as well.
    fn name(&self, index: usize) -> String {
        catch(|| self.dataset.name(index)).unwrap_or_else(|_| format!("#{index}"))
    }
}

impl<D: Dataset, C: Collate<D::Item>> Drop for Worker<D, C> {
    fn drop(&mut self) {
        self.queue.leave();
    }
}

/// Runs `f` and turns a panic into its message. What a panic leaves half-done inside a dataset is the dataset's affair,
/// as it would be with a lock that is poisoned.
fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
    })
}
