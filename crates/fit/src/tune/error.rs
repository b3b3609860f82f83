//! Error of the search.

/// Reason why the search has no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A probe found the configuration unusable.
    #[error("{0}")]
    Refused(String),
    /// A probe's process cannot be started or read.
    #[error("a probe's process cannot be run: {0}")]
    Process(#[from] std::io::Error),
    /// Not even one sample fits.
    #[error(
        "a batch of one sample does not fit: {0}; train fewer parameters (`model.trainable`) or a smaller model, shorten the samples, or give more memory"
    )]
    NothingFits(String),
    /// One sample could not be tried.
    #[error("a batch of one sample could not be tried: {0}")]
    Broken(String),
}
