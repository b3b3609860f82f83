//! What keeps the structure from being read.

use std::path::{Path, PathBuf};

/// Why the workspace's structure cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum StructureError {
    /// Cargo does not know the workspace.
    #[error("cargo cannot tell what is in the workspace: {0}")]
    Cargo(String),
    /// A source cannot be read or parsed.
    #[error("`{}`: {reason}", file.display())]
    Source {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The page has no list of arrows, or a list that cannot be read.
    #[error("{0}")]
    Arrows(String),
}

impl StructureError {
    /// Makes the error of a source.
    pub fn of(file: &Path, reason: impl ToString) -> Self {
        Self::Source { file: file.to_owned(), reason: reason.to_string() }
    }
}
