use std::marker::PhantomData;

use crate::loader::{Collate, Dataset, SampleError};

/// Adapter that makes a dataset of Burn a dataset of this crate.
///
/// Burn's datasets have no epochs: a sample is the same in each. A sample for which Burn's `get` returns an error is a
/// bad sample, which the loader handles as [`LoaderConfig::on_bad_sample`](crate::loader::LoaderConfig::on_bad_sample)
/// says.
///
/// ```
/// use std::sync::Arc;
///
/// use burn::data::dataset::InMemDataset;
/// use undertone_data::interop::{BurnDataset, Items};
/// use undertone_data::loader::{Loader, LoaderConfig};
///
/// let numbers = BurnDataset::new("numbers", InMemDataset::new((0..10).collect::<Vec<u32>>()));
/// let config = LoaderConfig { batch_size: 4, shuffle: false, ..LoaderConfig::default() };
/// let loader = Loader::new(Arc::new(numbers), Arc::new(Items), config)?;
/// let batches = loader.epoch(0, 0).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(batches, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
/// # Ok::<(), undertone_data::loader::LoaderError>(())
/// ```
pub struct BurnDataset<D, I> {
    dataset: D,
    name: String,
    lengths: Option<Vec<f64>>,
    item: PhantomData<fn() -> I>,
}

impl<D: burn::data::dataset::Dataset<I>, I> BurnDataset<D, I> {
    /// Wraps a dataset; its samples are called `name[index]` in error messages.
    pub fn new(name: impl Into<String>, dataset: D) -> Self {
        Self { dataset, name: name.into(), lengths: None, item: PhantomData }
    }

    /// Sets the length of each sample, in a unit of your choice, for batches that depend on length. A sample beyond the
    /// end of the list has no length, which such a loader refuses.
    pub fn with_lengths(mut self, lengths: Vec<f64>) -> Self {
        self.lengths = Some(lengths);
        self
    }
}

impl<D: burn::data::dataset::Dataset<I>, I: Send> Dataset for BurnDataset<D, I> {
    type Item = I;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize, _epoch: u64) -> Result<I, SampleError> {
        Ok(self.dataset.get(index)?)
    }

    fn name(&self, index: usize) -> String {
        format!("{}[{index}]", self.name)
    }

    fn length(&self, index: usize) -> Option<f64> {
        self.lengths.as_ref().and_then(|lengths| lengths.get(index).copied())
    }
}

/// Collator that returns the samples themselves, for a Burn `Batcher` to convert to tensors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Items;

impl<I: Send> Collate<I> for Items {
    type Batch = Vec<I>;

    fn collate(&self, items: Vec<I>) -> Result<Vec<I>, SampleError> {
        Ok(items)
    }

    /// The size of the samples in the list; memory that they point to is not counted.
    fn bytes(batch: &Vec<I>) -> usize {
        size_of_val(batch.as_slice())
    }
}
