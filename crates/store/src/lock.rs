//! One owner per directory.

use crate::error::StoreError;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory that nobody but the holder of this value writes into, for as long as it lives.
///
/// The operating system locks the file `.lock` in it (`flock` on Linux, which carries over NFS), so that a process lets go
/// of the directory when it ends, whatever it ends of. The file says who the owner is.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Holds the lock while it is open.
    _file: File,
    path: PathBuf,
    /// The directories that were made for it, the outermost first.
    made: Vec<PathBuf>,
}

/// Why a directory cannot be owned.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else owns it.
    #[error("`{}` is in use by {owner}", dir.display())]
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Process, machine and time, as far as they are known.
        owner: String,
    },
    /// The directory or its lock cannot be made.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DirectoryLock {
    /// The name of the file that is locked.
    pub const FILE: &str = ".lock";

    /// Owns `dir`, which is made if it is not there; one that nothing was put into goes away again with this value. Where
    /// the file system has no locks, an event of `tracing` says so.
    ///
    /// # Errors
    /// At once, when another process (or another value in this one) owns it; names that owner.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(Self::FILE);
        let io = |source| StoreError::Io { action: "lock", path: path.clone(), source };
        // An owner that lets go deletes the file, and perhaps the directory: in between, it is tried again.
        let mut made = Vec::new();
        for _ in 0..ATTEMPTS {
            made.extend(make(dir).map_err(io)?);
            let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(io)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Owned { dir: dir.to_owned(), owner: owner(&path) });
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => tracing::warn!(
                    "`{}` is on a file system without locks: make sure that no other process trains there",
                    dir.display()
                ),
                Err(TryLockError::Error(error)) => return Err(io(error).into()),
            }
            if is_at(&file, &path) {
                let owner = json!({ "pid": std::process::id(), "host": host(), "since": now() });
                file.set_len(0).and_then(|()| file.write_all(owner.to_string().as_bytes())).map_err(io)?;
                return Ok(Self { _file: file, path, made });
            }
        }
        Err(LockError::Owned { dir: dir.to_owned(), owner: "processes that come and go".into() })
    }
}

/// More than two processes would ever need.
const ATTEMPTS: usize = 1000;

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Deleted while it is still locked: whoever has opened it sees that it is gone, and makes a new one.
        let _ = std::fs::remove_file(&self.path);
        for dir in self.made.iter().rev() {
            // A directory with something in it stays.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Makes `dir` and what it lies in; those that were not there before.
fn make(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let mut made: Vec<PathBuf> = dir.ancestors().take_while(missing).map(Path::to_owned).collect();
    made.reverse();
    std::fs::create_dir_all(dir)?;
    Ok(made)
}

/// Whether an open file is the one that `path` leads to now.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(ours), Ok(there)) if ours == there)
}

/// Elsewhere a file that is open is not deleted.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Who has written the file.
fn owner(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    match (&value["pid"], value["host"].as_str(), value["since"].as_str()) {
        (Value::Number(pid), Some(host), Some(since)) => format!("process {pid} on {host} since {since}"),
        _ => "another process".into(),
    }
}

/// What the machine is called, where Linux or the environment says.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("COMPUTERNAME").ok());
    told.map_or_else(|| "this machine".into(), |name| name.trim().to_owned())
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_second_is_told_who_the_first_is_and_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = dir.path().join("runs/one");
        let first = DirectoryLock::acquire(&run).expect("owned");
        let written = std::fs::read(run.join(DirectoryLock::FILE)).expect("a lock");
        let refused = DirectoryLock::acquire(&run).expect_err("owned twice").to_string();
        let process = format!("process {} on ", std::process::id());
        assert!(
            refused.contains("runs/one") && refused.contains(&process) && refused.contains(" since 20"),
            "{refused}"
        );
        assert_eq!(std::fs::read(run.join(DirectoryLock::FILE)).expect("a lock"), written);
        drop(first);
        DirectoryLock::acquire(&run).expect("free again");
    }

    #[test]
    fn what_was_made_in_vain_goes_away_and_what_is_filled_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(DirectoryLock::acquire(&dir.path().join("runs/empty")).expect("owned"));
        assert!(!dir.path().join("runs").exists());
        let full = DirectoryLock::acquire(&dir.path().join("runs/full")).expect("owned");
        std::fs::write(dir.path().join("runs/full/config.yaml"), "seed: 1").expect("written");
        drop(full);
        let left: Vec<_> = std::fs::read_dir(dir.path().join("runs/full")).expect("listed").flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_lock_that_a_killed_process_left_is_free() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(DirectoryLock::FILE), r#"{"pid":1,"host":"x","since":"y"}"#).expect("written");
        let _lock = DirectoryLock::acquire(dir.path()).expect("nobody holds it");
        assert!(owner(&dir.path().join(DirectoryLock::FILE)).contains(&std::process::id().to_string()));
    }

    #[test]
    fn of_many_that_come_and_go_one_at_a_time_owns_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, inside, turns) = (dir.path().join("runs/busy"), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(_lock) = DirectoryLock::acquire(&run) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                        turns.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(turns.into_inner() > 0);
        DirectoryLock::acquire(&run).expect("free in the end");
    }
}
