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
/// Samples are loaded and collated on the loader's threads; `upload` makes tensors of a batch on the thread that reads.
///
/// A batch that cannot be made comes out as `Err`, with the sample's name and the way out, and the next call goes on with
/// the batch after it; where the loader leaves bad samples out, they are left out here too ([`Loader::skipped`]). Nothing
/// panics.
///
/// `slice` and `to_device` share the loader and its threads. A slice cuts the *epoch's order*, not the data set: each batch
/// belongs to the slice in which its first sample lies, so slices that lie side by side have every batch once. With
/// batches of different sizes (a budget, `drop_last`, samples left out) progress may end below the number of samples.
pub struct BurnDataLoader<D: Dataset, C: Collate<D::Item>, O> {
    loader: Arc<Loader<D, C>>,
    upload: Arc<Upload<C::Batch, O>>,
    device: Device,
    /// Of each epoch's order, in samples.
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

    /// Begins with this epoch, as a run does that goes on where it was interrupted.
    pub fn from_epoch(self, epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), ..self }
    }

    /// The loader underneath: what it left out, for example.
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
    /// The first batch that is another slice's.
    end: usize,
    upload: &'a Upload<B, O>,
    device: &'a Device,
    range: Range<usize>,
}

impl<B, O> Iterator for Batches<'_, B, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        // At the end of the epoch the loader has the last word: that nothing at all could be read.
        if self.batches.cursor() >= self.end && self.range.end < self.batches.samples() {
            return None;
        }
        let batch = self.batches.next()?;
        // A batch that loses all of its samples is passed over; the one after it may be another slice's.
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
