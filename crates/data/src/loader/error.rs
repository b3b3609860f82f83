//! Errors of loading.

use std::io;

use super::LoaderConfigError;

/// Error of a sample that could not be loaded or collated: any error type, or a text.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// Errors of a [`Loader`](super::Loader).
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum LoaderError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] LoaderConfigError),
    /// The operating system could not start a thread.
    #[error("loader thread {index} could not be started: {source}; set fewer `workers`")]
    Spawn { index: usize, source: io::Error },
    /// `Dataset::get` returned an error.
    #[error("sample `{name}` (index {index}, epoch {epoch}) cannot be loaded: {source}; repair it or remove it")]
    Sample { name: String, index: usize, epoch: u64, source: SampleError },
    /// More samples were left out than `max_bad_share` allows.
    #[error(
        "{skipped} of the first {seen} samples of epoch {epoch} (of {samples}) cannot be loaded, more than the {}% that \
         `max_bad_share` allows: {first}; repair or remove them, or raise `max_bad_share`",
        100.0 * share
    )]
    TooManyBad {
        skipped: usize,
        /// Number of samples so far, including those left out.
        seen: usize,
        samples: usize,
        epoch: u64,
        /// Maximum share of samples that may be left out.
        share: f64,
        /// The first few of them, each with its reason.
        first: String,
    },
    /// All samples of an epoch were left out.
    #[error("not one of the {samples} samples of epoch {epoch} can be loaded: {first}; repair or replace them")]
    NothingReadable {
        samples: usize,
        epoch: u64,
        /// The first few of them, each with its reason.
        first: String,
    },
    /// A batch was not ready, and the condition of [`Loader::until`](super::Loader::until) ended the wait.
    #[error("batch {batch} of epoch {epoch} was not ready when loading was interrupted")]
    GivenUp { batch: usize, epoch: u64 },
    /// Batches depend on length, and a sample has none.
    #[error(
        "sample `{name}` (index {index}) has no length that batches could go by; give its length, or set neither \
         `budget` nor `group_by_length`"
    )]
    Length { name: String, index: usize },
    /// `Dataset::get` panicked.
    #[error("loading sample `{name}` (index {index}, epoch {epoch}) panicked: {message}; remove it and report the bug")]
    SamplePanic { name: String, index: usize, epoch: u64, message: String },
    /// `Collate::collate` returned an error.
    #[error("batch {batch} of epoch {epoch} cannot be put together: {source}; its samples are {names}")]
    Collate { batch: usize, epoch: u64, names: String, source: SampleError },
    /// `Collate::collate` or `Collate::bytes` panicked.
    #[error("putting batch {batch} of epoch {epoch} together panicked: {message}; its samples are {names}")]
    CollatePanic { batch: usize, epoch: u64, names: String, message: String },
}
