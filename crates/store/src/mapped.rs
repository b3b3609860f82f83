//! Files of weights, mapped into memory.

use crate::error::StoreError;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// A file of weights, mapped into memory.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file. `format` makes the error for something that is no file.
    ///
    /// # Errors
    /// When it is missing, or no file.
    pub fn open(path: &Path, format: impl Fn(String) -> StoreError) -> Result<Self, StoreError> {
        map(path, format).map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[allow(unsafe_code)]
fn map(path: &Path, format: impl Fn(String) -> StoreError) -> Result<Mmap, StoreError> {
    let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
    // Opening a pipe would block until another process writes into it.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(format("it is a folder, a pipe or a device, not a file".into()));
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: the map is read-only and our own writers replace files by renaming, never in place. Another process
    // that truncates the file under us can kill this one with SIGBUS, as with every mapped model file.
    unsafe { Mmap::map(&file) }.map_err(io)
}
