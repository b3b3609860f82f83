use std::path::PathBuf;

use crate::records::{Origin, RecordsError};

/// Error of clips that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClipsError {
    /// The list of the clips cannot be read.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// An audio file does not exist.
    #[error("{origin}: the audio file {audio} does not exist; relative paths start at the folder of the list")]
    MissingAudio {
        /// Place where it is named.
        origin: Origin,
        /// The file.
        audio: PathBuf,
    },
    /// The meaning of a file or folder is ambiguous.
    #[error("{path}: {reason}")]
    Layout {
        /// The file or folder.
        path: PathBuf,
        /// Content of the file or folder, and a remedy.
        reason: String,
    },
}
