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
