//! Error of the directory of a run.

use std::path::PathBuf;
use undertone_store::{LockError, StoreError};
use undertone_train::TrainError;

/// Reason why the directory of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirectoryError {
    /// The directory to be replaced was not created by a run.
    #[error("`{}` has content and is no run: choose another name with --set run.name=NAME, or an empty directory", .0.display())]
    NotARun(PathBuf),
    /// The directory of a run that is to be replaced contains other files.
    #[error("`{}` has files that were not written by a run ({files}): move them elsewhere before the run is replaced, or choose another name with --set run.name=NAME", directory.display())]
    Foreign {
        /// Directory that would be cleared.
        directory: PathBuf,
        /// First few files.
        files: String,
    },
    /// A rank does not share the run's directory.
    #[error("`{}` is another directory for {rank} than for rank 0: processes that train together need one that all of them see, on a file system that their hosts share (--set run.dir=DIR)", directory.display())]
    NotShared {
        /// Rank.
        rank: String,
        /// Directory.
        directory: PathBuf,
    },
    /// Another process is training in the run's directory.
    #[error("{0}: wait until it has ended, or choose another name with --set run.name=NAME")]
    Owned(LockError),
    /// Something other than a lock file has the name of the directory's lock file.
    #[error("{0}, like --set run.name=NAME")]
    NoLock(LockError),
    /// The run to be resumed was started with an incompatible configuration.
    #[error(
        "`{}` cannot go on with another configuration than it was begun with: {changes}; set it back, begin a run of its own with --set run.name=NAME, or write the new value into that file if it means the same (data that was moved, say)",
        path.display()
    )]
    Changed {
        /// Configuration file that it was started with.
        path: PathBuf,
        /// Changed keys with both values.
        changes: String,
    },
    /// The configuration that the run was started with cannot be read.
    #[error("`{}` cannot be read ({reason}): it is the configuration that the run was started with, so repair it before you continue with --resume", path.display())]
    Recorded {
        /// Configuration file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another rank failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl From<LockError> for RunDirectoryError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Store(error) => Self::Store(error),
            owned @ LockError::Owned { .. } => Self::Owned(owned),
            foreign @ LockError::Foreign { .. } => Self::NoLock(foreign),
        }
    }
}
