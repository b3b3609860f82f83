//! Errors of exports.

use undertone_store::StoreError;

/// Reason why a model was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The format, or the program that reads it, cannot hold the model.
    #[error("{program} cannot hold this model: {reason}")]
    Unfit {
        /// Program that reads the format.
        program: &'static str,
        /// Property of the model, and advice.
        reason: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}
