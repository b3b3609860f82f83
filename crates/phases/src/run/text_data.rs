//! The records of text tasks, from wherever they are.

use crate::config::TaskConfig;
use crate::{SourceConfig, SourceError};
use undertone_data::records::RecordsError;
use undertone_tasks::{Framer, ReadError, TextDataset};

/// Why the records of a task cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextDataError {
    /// The hub did not give them.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file does not hold what the task needs.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// They do not become samples.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Reads the records of `source` as the task's head needs them.
///
/// # Errors
/// Names the file and the line that does not fit.
pub(crate) fn read_texts(
    task: &TaskConfig,
    source: &SourceConfig,
    framer: &Framer,
) -> Result<TextDataset, TextDataError> {
    Ok(task.head.read(&source.records()?, framer)?)
}
