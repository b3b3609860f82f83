//! Temporary files and directories, beside the place that they are for.

use std::ffi::OsStr;
use std::io::Result;
use std::path::Path;
use tempfile::{Builder, NamedTempFile, TempDir};

/// Name prefixes of what is being written, and of what is being replaced.
const NEW: &str = ".tmp-";
const OLD: &str = ".old-";

/// Number of random characters after the prefix.
const DRAWN: usize = 6;

/// Creates a file in `dir` that is renamed later. Temporary files are private by default; this one gets the permissions
/// that the user's umask allows.
pub(crate) fn new_file(dir: &Path) -> Result<NamedTempFile> {
    builder(NEW, 0o666).tempfile_in(dir)
}

/// Creates a directory in `dir` that is renamed later.
pub(crate) fn new_directory(dir: &Path) -> Result<TempDir> {
    builder(NEW, 0o777).tempdir_in(dir)
}

/// Creates a directory in `dir` that holds a replaced one.
pub(crate) fn old_directory(dir: &Path) -> Result<TempDir> {
    builder(OLD, 0o777).tempdir_in(dir)
}

/// Whether a file or directory with this name was being written by [`write_atomically`](crate::write_atomically) or
/// [`write_directory`](crate::write_directory) when its process was killed.
pub fn is_temporary(name: &OsStr) -> bool {
    let drawn = name.to_str().and_then(|name| name.strip_prefix(NEW).or_else(|| name.strip_prefix(OLD)));
    drawn.is_some_and(|drawn| drawn.len() == DRAWN && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(unix)]
fn builder(prefix: &'static str, mode: u32) -> Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = Builder::new();
    // The system subtracts the umask.
    builder.prefix(prefix).rand_bytes(DRAWN).permissions(std::fs::Permissions::from_mode(mode));
    builder
}

#[cfg(not(unix))]
fn builder(prefix: &'static str, _: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(prefix).rand_bytes(DRAWN);
    builder
}
