//! Errors of loading.

use std::io;

use super::LoaderConfigError;

/// Error of a sample that could not be loaded or collated: any error type, or a text.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// Errors of a [`Loader`](super::Loader).
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] LoaderConfigError),
    /// The operating system could not start a thread.
    #[error("loader thread {index} could not be started: {source}; set fewer `workers`")]
    Spawn {
        /// Number of threads started before it.
        index: usize,
        /// Error of the operating system.
        source: io::Error,
    },
    /// `Dataset::get` returned an error.
    #[error("sample `{name}` (index {index}, epoch {epoch}) cannot be loaded: {source}; repair it or remove it")]
    Sample {
        /// Name of the sample in the dataset.
        name: String,
        /// Index of the sample in the dataset.
        index: usize,
        /// The epoch it was loaded for.
        epoch: u64,
        /// Error of the dataset.
        source: SampleError,
    },
    /// More samples were left out than `max_bad_share` allows.
    #[error(
        "{skipped} of the first {seen} samples of epoch {epoch} (of {samples}) cannot be loaded, more than the {}% that \
         `max_bad_share` allows: {first}; repair or remove them, or raise `max_bad_share`",
        100.0 * share
    )]
    TooManyBad {
        /// Number of samples left out so far.
        skipped: usize,
        /// Number of samples so far, including those left out.
        seen: usize,
        /// Number of samples in the epoch.
        samples: usize,
        /// The epoch.
        epoch: u64,
        /// Maximum share of samples that may be left out.
        share: f64,
        /// The first few of them, each with its reason.
        first: String,
    },
    /// All samples of an epoch were left out.
    #[error("not one of the {samples} samples of epoch {epoch} can be loaded: {first}; repair or replace them")]
    NothingReadable {
        /// Number of samples in the epoch.
        samples: usize,
        /// The epoch.
        epoch: u64,
        /// The first few of them, each with its reason.
        first: String,
    },
    /// A batch was not ready, and the condition of [`Loader::until`](super::Loader::until) ended the wait.
    #[error("batch {batch} of epoch {epoch} was not ready when loading was interrupted")]
    GivenUp {
        /// Index of the batch in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
    },
    /// Batches depend on length, and a sample has none.
    #[error(
        "sample `{name}` (index {index}) has no length that batches could go by; give its length, or set neither \
         `budget` nor `group_by_length`"
    )]
    Length {
        /// Name of the sample in the dataset.
        name: String,
        /// Index of the sample in the dataset.
        index: usize,
    },
    /// `Dataset::get` panicked.
    #[error("loading sample `{name}` (index {index}, epoch {epoch}) panicked: {message}; remove it and report the bug")]
    SamplePanic {
        /// Name of the sample in the dataset.
        name: String,
        /// Index of the sample in the dataset.
        index: usize,
        /// The epoch it was loaded for.
        epoch: u64,
        /// Message of the panic.
        message: String,
    },
    /// `Collate::collate` returned an error.
    #[error("batch {batch} of epoch {epoch} cannot be put together: {source}; its samples are {names}")]
    Collate {
        /// Index of the batch in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
        /// Names of its samples.
        names: String,
        /// Error of the collator.
        source: SampleError,
    },
    /// `Collate::collate` or `Collate::bytes` panicked.
    #[error("putting batch {batch} of epoch {epoch} together panicked: {message}; its samples are {names}")]
    CollatePanic {
        /// Index of the batch in the epoch.
        batch: usize,
        /// The epoch.
        epoch: u64,
        /// Names of its samples.
        names: String,
        /// Message of the panic.
        message: String,
    },
}
