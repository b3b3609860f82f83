//! A data set of one's own in the loader: `cargo run -p undertone --example own_dataset`.
//!
//! A [`Dataset`] gives samples by index, a [`Collate`] makes batches of them; both run on the loader's threads. The batches
//! of an epoch follow from seed and epoch alone, so they are the same for any number of workers, and an epoch resumes at any
//! batch without going through those before.

use std::error::Error;
use std::sync::Arc;
use undertone::data::loader::{Collate, Dataset, Loader, LoaderConfig, SampleError, Workers};

/// The numbers up to a limit, each as the steps that the Collatz rule takes from it down to 1.
struct Collatz {
    limit: usize,
}

/// The steps from `n`.
fn steps(n: usize) -> Vec<u64> {
    let next = |n: &u64| (*n > 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
    std::iter::successors(Some(n as u64), next).collect()
}

impl Dataset for Collatz {
    type Item = Vec<u64>;

    fn len(&self) -> usize {
        self.limit
    }

    /// On a worker; whatever is random about a sample comes from `index` and `epoch`.
    fn get(&self, index: usize, _epoch: u64) -> Result<Vec<u64>, SampleError> {
        Ok(steps(index + 1))
    }

    /// For messages.
    fn name(&self, index: usize) -> String {
        format!("number {}", index + 1)
    }

    /// For batches of samples of like length; asked once, so it should be cheap.
    fn length(&self, index: usize) -> Option<f64> {
        Some(steps(index + 1).len() as f64)
    }
}

/// Rows of equal length: what is shorter is filled with zeros.
struct Pad;

#[derive(Debug, PartialEq)]
struct Batch {
    values: Vec<u64>,
    width: usize,
}

impl Collate<Vec<u64>> for Pad {
    type Batch = Batch;

    fn collate(&self, mut rows: Vec<Vec<u64>>) -> Result<Batch, SampleError> {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(width, 0));
        Ok(Batch { values: rows.concat(), width })
    }

    fn bytes(batch: &Batch) -> usize {
        size_of_val(batch.values.as_slice())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dataset = Arc::new(Collatz { limit: 1000 });
    let loader = |workers, group_by_length| {
        let workers = Workers::Count(workers);
        let config = LoaderConfig { batch_size: 32, workers, group_by_length, ..LoaderConfig::default() };
        Loader::new(dataset.clone(), Arc::new(Pad), config)
    };

    // An epoch is read up to its middle, and `cursor` kept, as a checkpoint would.
    let first = loader(3, true)?;
    let mut epoch = first.epoch(5, 0);
    let mut batches = epoch.by_ref().take(14).collect::<Result<Vec<_>, _>>()?;
    let cursor = epoch.cursor();
    drop(epoch);

    // Another process goes on from there; a third one reads the epoch in one go, with one worker.
    batches.extend(loader(2, true)?.epoch(5, cursor).collect::<Result<Vec<_>, _>>()?);
    let whole = loader(1, true)?.epoch(5, 0).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(batches, whole, "a resumed epoch is that epoch");

    let padding = |batches: &[Batch]| {
        let cells: usize = batches.iter().map(|batch| batch.values.len()).sum();
        let zeros: usize = batches.iter().map(|batch| batch.values.iter().filter(|value| **value == 0).count()).sum();
        zeros as f64 / cells as f64
    };
    let mixed = loader(2, false)?.epoch(5, 0).collect::<Result<Vec<_>, _>>()?;
    let (grouped, mixed) = (padding(&whole), padding(&mixed));
    println!(
        "{} batches, resumed after {cursor}; the widest has {} columns; padding {:.0} % by length, {:.0} % without",
        whole.len(),
        whole.iter().map(|batch| batch.width).max().unwrap_or(0),
        100.0 * grouped,
        100.0 * mixed
    );
    assert!(grouped < mixed / 2.0);
    Ok(())
}
