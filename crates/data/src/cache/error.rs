//! What the cache refuses.

use std::io;
use std::path::PathBuf;

/// Why a [`Cache`](super::Cache) cannot be opened, or cannot hold a value.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The cap leaves no room for even a few entries.
    #[error("the cache's `max_bytes` is {given}; set it to {least} or more, or switch the cache off with `what: off`")]
    Cap {
        /// The cap given.
        given: u64,
        /// The smallest cap accepted.
        least: u64,
    },
    /// The cache's folder is not given and has no default here.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so the cache has no default place; set the cache's `dir`")]
    NoHome,
    /// A folder cannot be made or listed.
    #[error("the cache folder {} cannot be used: {source}; make it writable, or set another `dir`", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// NaN, infinity, or a value beyond what 16 bits can say.
    #[error(
        "value {at} of the {what} is {value}, which the cache cannot hold; \
         repair the sample, or switch the cache off with `what: off`"
    )]
    Value {
        /// Features or audio.
        what: &'static str,
        /// Its place in the data.
        at: usize,
        /// The value.
        value: f32,
    },
    /// The data are not as long as their shape says, or too long for the file's header.
    #[error("{given} values were to be cached as {rows} × {columns}; the caller's shape is wrong")]
    Shape {
        /// Values given.
        given: usize,
        /// Rows claimed.
        rows: usize,
        /// Columns claimed.
        columns: usize,
    },
}
