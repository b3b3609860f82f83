//! A case: a copy of a good input in which one file is changed.

use std::path::PathBuf;

/// A hostile input.
pub struct Case {
    /// Where it lies.
    pub dir: PathBuf,
    /// What was changed.
    pub file: PathBuf,
}
