use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;

use crate::loader::{Collate, Dataset, Epoch, Loader};

type Upload<B, O> = dyn Fn(B, &Device) -> O + Send + Sync;

/// A [`Loader`] as Burn's `DataLoader`: every call of `iter` is the next epoch.
///
/// Samples are loaded and collated on the loader's threads; `upload` converts a batch to tensors on the thread that
/// reads.
///
/// A batch that cannot be made is returned as `Err`, with the sample's name and a remedy, and the next call continues
/// with the batch after it. If the loader skips bad samples, they are skipped here too ([`Loader::skipped`]). Nothing
/// panics.
///
/// `slice` and `to_device` share the loader and its threads. A slice cuts the *epoch's order*, not the dataset: each
/// batch belongs to the slice that contains its first sample, so adjoining slices have every batch once. With batches
/// of different sizes (a budget, `drop_last`, skipped samples) the progress may end below the number of samples.
pub struct BurnDataLoader<D: Dataset, C: Collate<D::Item>, O> {
    loader: Arc<Loader<D, C>>,
    upload: Arc<Upload<C::Batch, O>>,
    device: Device,
    /// Range of each epoch's order, in samples.
    range: Range<usize>,
    epoch: AtomicU64,
}

impl<D: Dataset, C: Collate<D::Item>, O> BurnDataLoader<D, C, O> {
    /// Reads the loader from epoch 0 on. With [`Items`](super::Items) as the loader's collator, `upload` is
    /// `|items, device| batcher.batch(items, device)` of a Burn `Batcher`.
    pub fn new(
        loader: Arc<Loader<D, C>>,
        device: Device,
        upload: impl Fn(C::Batch, &Device) -> O + Send + Sync + 'static,
    ) -> Self {
        let range = 0..loader.dataset().len();
        Self { loader, upload: Arc::new(upload), device, range, epoch: AtomicU64::new(0) }
    }

    /// Starts with this epoch, for a run that is resumed.
    pub fn from_epoch(self, epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), ..self }
    }

    /// Returns the underlying loader, for example for its skipped samples.
    pub fn loader(&self) -> &Loader<D, C> {
        &self.loader
    }

    fn with(&self, device: Device, range: Range<usize>) -> Self {
        let (loader, upload) = (self.loader.clone(), self.upload.clone());
        Self { loader, upload, device, range, epoch: AtomicU64::new(self.epoch.load(Ordering::Relaxed)) }
    }
}

impl<D, C, O> DataLoader<O> for BurnDataLoader<D, C, O>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
    O: Send + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed);
        let first = self.loader.first_batch_from(epoch, self.range.start);
        let end = self.loader.first_batch_from(epoch, self.range.end);
        let batches = self.loader.epoch(epoch, first);
        Box::new(Batches { batches, end, upload: &*self.upload, device: &self.device, range: self.range.clone() })
    }

    fn num_items(&self) -> usize {
        self.range.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.with(device.clone(), self.range.clone()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let within = |at: usize| (self.range.start + at).min(self.range.end);
        Arc::new(self.with(self.device.clone(), within(start)..within(end)))
    }
}

struct Batches<'a, B, O> {
    batches: Epoch<'a, B>,
    /// First batch that belongs to another slice.
    end: usize,
    upload: &'a Upload<B, O>,
    device: &'a Device,
    range: Range<usize>,
}

impl<B, O> Iterator for Batches<'_, B, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        // At the end of the epoch the loader is asked once more, because it may report that no sample was readable.
        if self.batches.cursor() >= self.end && self.range.end < self.batches.samples() {
            return None;
        }
        let batch = self.batches.next()?;
        // A batch that loses all of its samples is skipped; the next one may belong to another slice.
        if self.batches.cursor() > self.end {
            return None;
        }
        Some(batch.map(|batch| (self.upload)(batch, self.device)).map_err(DatasetError::new))
    }
}

impl<B, O> DataLoaderIterator<O> for Batches<'_, B, O> {
    fn progress(&self) -> Progress {
        let done = self.batches.samples_before().clamp(self.range.start, self.range.end) - self.range.start;
        Progress::new(done, self.range.len(), Some("items".into()))
    }
}
