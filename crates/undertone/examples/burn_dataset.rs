//! A data set of Burn's in Undertone's loader: `cargo run -p undertone --features burn-data --example burn_dataset`.
//!
//! Anything that implements `burn::data::dataset::Dataset` will do, with Burn's transforms around it. What the loader adds:
//! an order that comes from seed and epoch alone, whatever the number of workers, epochs that resume at any batch, and
//! samples that cannot be read named in an error or left out.

use std::error::Error;
use std::sync::Arc;

use burn::data::dataset::InMemDataset;
use burn::data::dataset::transform::{Mapper, MapperDataset, PartialDataset};
use undertone::data::interop::{BurnDataset, Items};
use undertone::data::loader::{Loader, LoaderConfig, Workers};

/// Turns a line `text,label` into a record.
struct Parse;

impl Mapper<String, (String, usize)> for Parse {
    fn map(&self, line: &String) -> (String, usize) {
        let (text, label) = line.rsplit_once(',').unwrap_or((line, "0"));
        (text.to_owned(), label.parse().unwrap_or(0))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let lines = (0..1000).map(|n| format!("{n} is {},{}", if n % 2 == 0 { "even" } else { "odd" }, n % 2));
    let train = PartialDataset::new(InMemDataset::new(lines.collect::<Vec<_>>()), 0, 800);
    let records = Arc::new(BurnDataset::new("parity", MapperDataset::new(train, Parse)));

    let read = |workers, start_batch| {
        let config = LoaderConfig { batch_size: 32, workers: Workers::Count(workers), ..LoaderConfig::default() };
        let loader = Loader::new(records.clone(), Arc::new(Items), config)?;
        loader.epoch(3, start_batch).collect::<Result<Vec<_>, _>>()
    };
    let (alone, together, resumed) = (read(1, 0)?, read(4, 0)?, read(2, 20)?);
    assert_eq!(alone, together, "the order is the same for any number of workers");
    assert_eq!(alone[20..], resumed, "an epoch resumes at any batch");

    let odd = alone.iter().flatten().filter(|(_, label)| *label == 1).count();
    assert_eq!((alone.len(), odd), (25, 400));
    println!("{} batches, {odd} odd numbers; the first batch begins with {:?}", alone.len(), alone[0][0].0);
    Ok(())
}
