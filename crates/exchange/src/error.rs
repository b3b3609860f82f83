//! Errors of exports and imports.

use std::path::PathBuf;
use undertone_model::whisper::FolderError;
use undertone_store::StoreError;

/// Reason why a model was not written or read.
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
    /// The file is damaged, or holds something else than a Whisper.
    #[error("`{}` is no Whisper in {format}: {reason}", path.display())]
    Unreadable {
        /// File or folder.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
        /// Reason.
        reason: String,
    },
    /// The parts of the model contradict each other.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}
