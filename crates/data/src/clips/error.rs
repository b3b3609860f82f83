use std::path::PathBuf;

use crate::records::{Origin, RecordsError};

/// Why clips could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClipsError {
    /// The list of the clips cannot be read.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// An audio file that does not exist.
    #[error("{origin}: the audio file {audio} does not exist; relative paths start at the folder of the list")]
    MissingAudio {
        /// Where it is named.
        origin: Origin,
        /// The file.
        audio: PathBuf,
    },
    /// A file or folder of which it is not clear what it means.
    #[error("{path}: {reason}")]
    Layout {
        /// The file or folder.
        path: PathBuf,
        /// What there is, and what to do.
        reason: String,
    },
}
