//! Errors of the cache.

use std::io;
use std::path::PathBuf;

/// Error of a [`Cache`](super::Cache) that cannot be opened, or of a value that it cannot hold.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The cap is too small for even a few entries.
    #[error("the cache's `max_bytes` is {given}; set it to {least} or more, or switch the cache off with `what: off`")]
    Cap {
        /// Cap, as given.
        given: u64,
        /// Smallest cap accepted.
        least: u64,
    },
    /// The cache's folder is not given and has no default here.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so the cache has no default place; set the cache's `dir`")]
    NoHome,
    /// A folder cannot be created or listed.
    #[error("the cache folder {} cannot be used: {source}; make it writable, or set another `dir`", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A value is NaN, infinite, or beyond the range of 16 bits.
    #[error(
        "value {at} of the {what} is {value}, which the cache cannot hold; \
         repair the sample, or switch the cache off with `what: off`"
    )]
    Value {
        /// Features, audio or states.
        what: &'static str,
        /// Index of the value in the data.
        at: usize,
        /// The value.
        value: f32,
    },
    /// The length of the data differs from their shape, or is too large for the file's header.
    #[error("{given} values were to be cached as {rows} × {columns}; the caller's shape is wrong")]
    Shape {
        /// Number of values given.
        given: usize,
        /// Number of rows claimed.
        rows: usize,
        /// Number of columns claimed.
        columns: usize,
    },
}
