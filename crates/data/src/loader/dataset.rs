//! What the loader reads: samples by index, and how a batch is made of several.

use super::SampleError;

/// Samples by index. `get` runs on the worker threads.
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item: Send;

    /// How many samples there are. It must not change while a [`Loader`](super::Loader) holds the dataset.
    fn len(&self) -> usize;

    /// Loads sample `index`. Whatever is random about it must come from `index` and `epoch`, never from call order.
    fn get(&self, index: usize, epoch: u64) -> Result<Self::Item, SampleError>;

    /// What a person would call this sample: its file, its line, its key. It ends up in error messages.
    fn name(&self, index: usize) -> String;

    /// How long sample `index` is, in a unit of the dataset's own (seconds, tokens), for batches that go by length. It
    /// is asked once for every sample, when a [`Loader`](super::Loader) that needs it is made, so it must not decode anything.
    fn length(&self, index: usize) -> Option<f64> {
        let _ = index;
        None
    }

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

    /// The host memory that `batch` holds, to be counted against [`LoaderConfig::prefetch_bytes`](super::LoaderConfig::prefetch_bytes).
    fn bytes(batch: &Self::Batch) -> usize;
}
