//! Input of the loader: samples by index, and the collator that makes a batch of several.

use super::SampleError;

/// A dataset: samples by index. `get` runs on the worker threads.
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item: Send;

    /// Returns the number of samples. It must not change while a [`Loader`](super::Loader) holds the dataset.
    fn len(&self) -> usize;

    /// Loads sample `index`. All randomness must come from `index` and `epoch`, never from the order of calls.
    fn get(&self, index: usize, epoch: u64) -> Result<Self::Item, SampleError>;

    /// Returns a readable name for this sample, such as its file, line or key. Error messages show it.
    fn name(&self, index: usize) -> String;

    /// Returns the length of sample `index` in a unit of the dataset's choice (seconds, tokens), for batches that
    /// depend on length. It is called once for every sample, when a [`Loader`](super::Loader) that needs it is made, so
    /// it must not decode anything.
    fn length(&self, index: usize) -> Option<f64> {
        let _ = index;
        None
    }

    /// Returns whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A collator: makes one batch of several samples. `collate` runs on the worker threads.
pub trait Collate<I>: Send + Sync {
    /// Type of a batch, as the training loop receives it.
    type Batch: Send;

    /// Combines the samples, in the order given.
    fn collate(&self, items: Vec<I>) -> Result<Self::Batch, SampleError>;

    /// Returns the host memory that `batch` holds, which counts against
    /// [`LoaderConfig::prefetch_bytes`](super::LoaderConfig::prefetch_bytes).
    fn bytes(batch: &Self::Batch) -> usize;
}
