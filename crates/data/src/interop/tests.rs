use std::collections::BTreeMap;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::transform::{Mapper, MapperDataset, PartialDataset, ShuffledDataset};
use burn::data::dataset::{Dataset as _, DatasetError, InMemDataset};
use burn::tensor::Device;

use super::*;
use crate::loader::{Dataset, Loader, LoaderConfig, OnBadSample, Workers};

fn numbers(count: u32) -> InMemDataset<u32> {
    InMemDataset::new((0..count).collect())
}

fn config(workers: usize) -> LoaderConfig {
    LoaderConfig { batch_size: 4, workers: Workers::Count(workers), ..LoaderConfig::default() }
}

fn loader<D: Dataset + 'static>(dataset: D, config: LoaderConfig) -> Arc<Loader<D, Items>> {
    Arc::new(Loader::new(Arc::new(dataset), Arc::new(Items), config).unwrap())
}

fn as_burn<D: Dataset + 'static>(loader: Arc<Loader<D, Items>>) -> BurnDataLoader<D, Items, Vec<D::Item>> {
    BurnDataLoader::new(loader, Device::flex(), |items, _| items)
}

/// Numbers of which every seventh cannot be read.
struct Holes;

impl burn::data::dataset::Dataset<u32> for Holes {
    fn get(&self, index: usize) -> Result<u32, DatasetError> {
        match index % 7 {
            6 => Err(DatasetError::new(std::io::Error::other("the disk has a hole"))),
            _ => Ok(index as u32),
        }
    }

    fn len(&self) -> usize {
        21
    }
}

struct Double;

impl Mapper<u32, u32> for Double {
    fn map(&self, item: &u32) -> u32 {
        2 * item
    }
}

#[test]
fn transforms_of_burn_are_sources() {
    let shuffled = ShuffledDataset::new(numbers(20), 3_u64);
    let expected: Vec<u32> = (5..15).map(|index| 2 * shuffled.get(index).unwrap()).collect();
    let mapped = MapperDataset::new(PartialDataset::new(shuffled, 5, 15), Double);
    let dataset = BurnDataset::new("mapped", mapped);
    assert_eq!((Dataset::len(&dataset), dataset.name(3)), (10, "mapped[3]".to_owned()));
    let loader = loader(dataset, LoaderConfig { shuffle: false, ..config(2) });
    let read: Vec<Vec<u32>> = loader.epoch(0, 0).map(Result::unwrap).collect();
    assert_eq!(read.concat(), expected);
}

#[test]
fn lengths_make_batches() {
    let dataset = BurnDataset::new("numbers", numbers(400)).with_lengths((0..400).map(f64::from).collect());
    let loader = loader(dataset, LoaderConfig { group_by_length: true, ..config(1) });
    let spread = |batch: Vec<u32>| f64::from(batch.iter().max().unwrap() - batch.iter().min().unwrap());
    let spreads: Vec<f64> = loader.epoch(0, 0).map(|batch| spread(batch.unwrap())).collect();
    // Four numbers out of 400 at random span 240 in the mean.
    assert!(spreads.iter().sum::<f64>() / spreads.len() as f64 <= 60.0, "{spreads:?}");
}

#[test]
fn order_and_contents_are_our_loaders_for_any_number_of_workers() {
    let ours = loader(BurnDataset::new("numbers", numbers(50)), config(1));
    for workers in [1, 2, 5] {
        let theirs = as_burn(loader(BurnDataset::new("numbers", numbers(50)), config(workers)));
        for epoch in 0..3 {
            let expected: Vec<_> = ours.epoch(epoch, 0).map(Result::unwrap).collect();
            let read: Vec<_> = theirs.iter().map(Result::unwrap).collect();
            assert_eq!(read, expected, "epoch {epoch} with {workers} workers");
        }
    }
    let later = as_burn(ours.clone()).from_epoch(7);
    assert!(later.iter().map(Result::unwrap).eq(ours.epoch(7, 0).map(Result::unwrap)));
}

#[test]
fn progress_counts_samples() {
    let loader = as_burn(loader(BurnDataset::new("numbers", numbers(10)), config(1)));
    let mut batches = loader.iter();
    let mut seen = vec![batches.progress().items_processed];
    while batches.next().is_some() {
        seen.push(batches.progress().items_processed);
    }
    assert_eq!((seen, batches.progress().items_total, loader.num_items()), (vec![0, 4, 8, 10], 10, 10));
    assert!(batches.progress().is_completed());
}

#[test]
fn slices_that_lie_side_by_side_have_every_batch_once() {
    let whole = as_burn(loader(BurnDataset::new("numbers", numbers(50)), config(2)));
    // Burn cuts by samples, in the middle of a batch here.
    let slices = [whole.slice(0, 17), whole.slice(17, 34), whole.slice(34, 50)];
    assert_eq!(slices.each_ref().map(|slice| slice.num_items()), [17, 17, 16]);
    for epoch in 0..2 {
        let expected: Vec<_> = whole.iter().map(Result::unwrap).collect();
        let parts: Vec<Vec<_>> = slices.iter().map(|slice| slice.iter().map(Result::unwrap).collect()).collect();
        assert!(parts.iter().all(|part| part.len() >= 4), "epoch {epoch}");
        assert_eq!(parts.concat(), expected, "epoch {epoch}");
    }
    let inner = whole.slice(8, 40).slice(8, 16);
    assert_eq!(inner.num_items(), 8);
    let of_another = whole.to_device(&Device::flex());
    assert!(of_another.iter().map(Result::unwrap).eq(whole.iter().map(Result::unwrap)));
}

#[test]
fn a_bad_sample_is_an_error_that_names_it_and_reading_goes_on() {
    let all = as_burn(loader(BurnDataset::new("holes", Holes), LoaderConfig { shuffle: false, ..config(2) }));
    let read: Vec<Result<Vec<u32>, String>> =
        all.iter().map(|batch| batch.map_err(|error| error.to_string())).collect();
    assert_eq!(read.len(), 6);
    assert_eq!(read.iter().filter(|batch| batch.is_err()).count(), 3);
    let said = read[1].as_ref().unwrap_err();
    assert!(said.contains("`holes[6]`") && said.contains("the disk has a hole"), "{said}");
    assert_eq!(read[2], Ok(vec![8, 9, 10, 11]));
}

#[test]
fn bad_samples_that_are_left_out_are_counted() {
    let skip = LoaderConfig { on_bad_sample: OnBadSample::Skip, max_bad_share: 0.5, ..config(2) };
    let all = as_burn(loader(BurnDataset::new("holes", Holes), skip));
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    for item in all.iter().flat_map(Result::unwrap) {
        *seen.entry(item).or_default() += 1;
    }
    assert_eq!((seen.len(), seen.values().sum::<usize>(), all.loader().skipped_samples()), (18, 18, 3));
}
