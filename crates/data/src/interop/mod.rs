//! Adapters between Burn's datasets and data loaders and those of this crate.
//!
//! [`BurnDataset`] turns any `burn::data::dataset::Dataset` (in memory, SQLite, shuffled, mapped, partial, …) into a
//! [`Dataset`](crate::loader::Dataset), so that Burn's data can be read by this crate's
//! [`Loader`](crate::loader::Loader). That gives a fixed order for any number of workers, resuming in the middle of an
//! epoch, and bad samples that are skipped or named. [`BurnDataLoader`] turns a `Loader` into a
//! `burn::data::dataloader::DataLoader`, which burn-train's own Learner reads.
//!
//! The module needs the Cargo feature `burn`: nothing else in this crate uses tensors or builds Burn.

mod dataloader;
mod dataset;
#[cfg(test)]
mod tests;

pub use dataloader::BurnDataLoader;
pub use dataset::{BurnDataset, Items};
