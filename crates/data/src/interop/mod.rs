//! Burn's data sets as ours, and our loader as Burn's.
//!
//! [`BurnDataset`] makes any `burn::data::dataset::Dataset` (in memory, SQLite, shuffled, mapped, partial, …) a
//! [`Dataset`](crate::loader::Dataset), so that Burn's data goes through our [`Loader`](crate::loader::Loader): a fixed
//! order for any number of workers, resuming in the middle of an epoch, bad samples that are left out or named.
//! [`BurnDataLoader`] makes a `Loader` a `burn::data::dataloader::DataLoader`, which burn-train's own Learner reads.
//!
//! It deliberately is behind the Cargo feature `burn`: nothing else in this crate knows a tensor or builds Burn.

mod dataloader;
mod dataset;
#[cfg(test)]
mod tests;

pub use dataloader::BurnDataLoader;
pub use dataset::{BurnDataset, Items};
