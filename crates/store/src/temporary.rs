//! Files and directories that are being written, beside the place that they are for.

use std::ffi::OsStr;
use std::io::Result;
use std::path::Path;
use tempfile::{Builder, NamedTempFile, TempDir};

/// How names begin that are being written, and that are being replaced.
const NEW: &str = ".tmp-";
const OLD: &str = ".old-";

/// Characters that follow.
const DRAWN: usize = 6;

/// A file in `dir` that takes its final name later. Temporary files are private by default; what is published is for
/// everyone that the user's umask says.
pub(crate) fn new_file(dir: &Path) -> Result<NamedTempFile> {
    builder(NEW, 0o666).tempfile_in(dir)
}

/// A directory in `dir` that takes its final name later.
pub(crate) fn new_directory(dir: &Path) -> Result<TempDir> {
    builder(NEW, 0o777).tempdir_in(dir)
}

/// A directory in `dir` for what steps aside.
pub(crate) fn old_directory(dir: &Path) -> Result<TempDir> {
    builder(OLD, 0o777).tempdir_in(dir)
}

/// Whether a file or directory of this name is one that [`write_atomically`](crate::write_atomically) or
/// [`write_directory`](crate::write_directory) was writing when its process was killed.
pub fn is_temporary(name: &OsStr) -> bool {
    let drawn = name.to_str().and_then(|name| name.strip_prefix(NEW).or_else(|| name.strip_prefix(OLD)));
    drawn.is_some_and(|drawn| drawn.len() == DRAWN && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(unix)]
fn builder(prefix: &'static str, mode: u32) -> Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = Builder::new();
    // The system takes the umask off.
    builder.prefix(prefix).rand_bytes(DRAWN).permissions(std::fs::Permissions::from_mode(mode));
    builder
}

#[cfg(not(unix))]
fn builder(prefix: &'static str, _: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(prefix).rand_bytes(DRAWN);
    builder
}
