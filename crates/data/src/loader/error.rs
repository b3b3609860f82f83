//! What can go wrong while loading.

use std::io;

use super::LoaderConfigError;

/// Why a sample could not be loaded or collated: any error, or just a text.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// What the [`Loader`](super::Loader) reports.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] LoaderConfigError),
    /// The system refused a thread.
    #[error("loader thread {index} could not be started: {source}; set fewer `workers`")]
    Spawn {
        /// How many had been started before it.
        index: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// `Dataset::get` returned an error.
    #[error("sample `{name}` (index {index}, epoch {epoch}) cannot be loaded: {source}; repair it or remove it")]
    Sample {
        /// What the dataset calls it.
        name: String,
        /// Its index in the dataset.
        index: usize,
        /// The epoch it was loaded for.
        epoch: u64,
        /// The dataset's reason.
        source: SampleError,
    },
    /// More samples were left out than `max_bad_share` allows.
    #[error(
        "{skipped} of the first {seen} samples of epoch {epoch} (of {samples}) cannot be loaded, more than the {}% that \
         `max_bad_share` allows: {first}; repair or remove them, or raise `max_bad_share`",
        100.0 * share
    )]
    TooManyBad {
        /// Samples left out so far.
        skipped: usize,
        /// Samples so far, those left out included.
        seen: usize,
        /// Samples in the epoch.
        samples: usize,
        /// The epoch.
        epoch: u64,
        /// The share that may be left out.
        share: f64,
        /// The first few, each with its reason.
        first: String,
    },
    /// All samples of an epoch were left out.
    #[error("not one of the {samples} samples of epoch {epoch} can be loaded: {first}; repair or replace them")]
    NothingReadable {
        /// Samples in the epoch.
        samples: usize,
        /// The epoch.
        epoch: u64,
        /// The first few, each with its reason.
        first: String,
    },
    /// A batch was not ready, and [`Loader::until`](super::Loader::until) says that nobody waits for it.
    #[error("batch {batch} of epoch {epoch} was not ready, and is no longer waited for")]
    GivenUp {
        /// The batch's place in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
    },
    /// Batches go by length, and a sample has none.
    #[error(
        "sample `{name}` (index {index}) has no length that batches could go by; give its length, or set neither \
         `budget` nor `group_by_length`"
    )]
    Length {
        /// What the dataset calls it.
        name: String,
        /// Its index in the dataset.
        index: usize,
    },
    /// `Dataset::get` panicked.
    #[error("loading sample `{name}` (index {index}, epoch {epoch}) panicked: {message}; remove it and report the bug")]
    SamplePanic {
        /// What the dataset calls it.
        name: String,
        /// Its index in the dataset.
        index: usize,
        /// The epoch it was loaded for.
        epoch: u64,
        /// What the panic said.
        message: String,
    },
    /// `Collate::collate` returned an error.
    #[error("batch {batch} of epoch {epoch} cannot be put together: {source}; its samples are {names}")]
    Collate {
        /// The batch's place in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
        /// The names of its samples.
        names: String,
        /// The collator's reason.
        source: SampleError,
    },
    /// `Collate::collate` or `Collate::bytes` panicked.
    #[error("putting batch {batch} of epoch {epoch} together panicked: {message}; its samples are {names}")]
    CollatePanic {
        /// The batch's place in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
        /// The names of its samples.
        names: String,
        /// What the panic said.
        message: String,
    },
}
