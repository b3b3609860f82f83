//! Errors of exports and imports.

use std::path::PathBuf;
use undertone_model::whisper::{FolderError, WhisperConfig};
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
    #[error("`{}` is not a Whisper in {format}: {reason}", path.display())]
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

impl ExchangeError {
    /// Checks that a model has no option that OpenAI's architecture lacks, for `program`, which would not apply it.
    ///
    /// # Errors
    /// Names the option.
    pub fn check_stock(program: &'static str, config: &WhisperConfig) -> Result<(), Self> {
        match config.own_option() {
            None => Ok(()),
            Some(option) => {
                let reason = format!(
                    "{option}, which OpenAI's architecture lacks: give --format undertone for a folder that this program loads"
                );
                Err(Self::Unfit { program, reason })
            }
        }
    }
}
