//! Lock that gives a directory one owner.

use crate::error::StoreError;
use crate::temporary::new_file;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Exclusive ownership of a directory for as long as this value lives.
///
/// The operating system locks the file `.lock` in the directory (`flock` on Linux, which works over NFS). The lock is
/// released when the process ends, for whatever reason. The file names the owner. A file of that name that no
/// `DirectoryLock` wrote, or a symbolic link, is left as it is and refused.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Holds the lock while open.
    file: File,
    path: PathBuf,
    /// Directories that [`Self::acquire`] created, the outermost first.
    made: Vec<PathBuf>,
}

/// Why a directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process owns the directory.
    #[error("`{}` is in use by {owner}", dir.display())]
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Process, host and time, as far as they are known.
        owner: String,
    },
    /// The name of the lock file belongs to something else.
    #[error("`{}` is {what}, where the lock file must be created: move it elsewhere, or choose another directory", path.display())]
    Foreign {
        /// Path of the lock file.
        path: PathBuf,
        /// Kind of thing that is there.
        what: &'static str,
    },
    /// The directory or its lock file cannot be created.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DirectoryLock {
    /// Name of the lock file.
    pub const FILE: &str = ".lock";

    /// Locks `dir`, which is created if it does not exist. Directories that this call created are removed again when
    /// the value is dropped, if they are empty. Where the file system has no locks, a `tracing` event warns of it.
    ///
    /// # Errors
    /// At once, when another process (or another value in this one) owns the directory; the error names the owner. Also
    /// when a file called `.lock` is not a lock of this kind; that file is not touched.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(Self::FILE);
        let io = |source| StoreError::Io { action: "lock", path: path.clone(), source };
        let owned = || LockError::Owned { dir: dir.to_owned(), owner: owner(&path) };
        let mut made = Vec::new();
        // An owner deletes the file on release, and perhaps the directory. If that happens in between, this tries
        // again.
        for attempt in 0..ATTEMPTS {
            made.extend(make(dir).map_err(|error| io(of_link(dir).unwrap_or(error)))?);
            if let Some(left) = open_existing(&path)? {
                if !lock(&left, dir).map_err(io)? {
                    // [`is_held`](Self::is_held) holds a lock for a moment.
                    if attempt == 0 {
                        std::thread::sleep(MOMENT);
                        continue;
                    }
                    return Err(owned());
                }
                // A killed process left the file. It is deleted while locked: a process that has opened it too sees
                // that.
                if is_at(&left, &path) {
                    std::fs::remove_file(&path).map_err(io)?;
                }
                continue;
            }
            match write_locked(dir, &path) {
                Ok(Some(file)) => return Ok(Self { file, path, made }),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(io(error).into()),
            }
        }
        Err(LockError::Owned { dir: dir.to_owned(), owner: "several other processes".into() })
    }

    /// Whether a process owns `dir`. `None` where that cannot be told: on a file system without locks, or for an owner on another
    /// machine, whose locks need not be known here.
    pub fn is_held(dir: &Path) -> Option<bool> {
        let path = dir.join(Self::FILE);
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(false),
            Ok(there) if there.is_file() => {}
            _ => return None,
        }
        let text = std::fs::read_to_string(&path).ok()?;
        let here = serde_json::from_str::<Value>(&text).is_ok_and(|value| value["host"] == host().as_str());
        match File::open(path).ok()?.try_lock_shared() {
            Ok(()) => here.then_some(false),
            Err(TryLockError::WouldBlock) => Some(true),
            Err(TryLockError::Error(_)) => None,
        }
    }
}

/// Number of attempts: more than two processes ever need.
const ATTEMPTS: usize = 1000;

/// Time after which a lock is tried once more.
const MOMENT: Duration = Duration::from_millis(5);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Deleted while still locked: a process that has opened it sees that it is gone, and creates a new one.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
        for dir in self.made.iter().rev() {
            // Fails on a directory that is not empty, which stays.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Opens the existing lock file. `None` if there is none.
fn open_existing(path: &Path) -> Result<Option<File>, LockError> {
    let io = |source| StoreError::Io { action: "lock", path: path.to_owned(), source };
    let foreign = |what| LockError::Foreign { path: path.to_owned(), what };
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error).into()),
        Ok(there) if there.is_symlink() => return Err(foreign("a symbolic link")),
        Ok(there) if !there.is_file() => return Err(foreign("no file")),
        Ok(_) => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    }
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io)?,
    };
    let mut text = String::new();
    // A longer file is not a lock, so no more is read.
    let read = Read::by_ref(&mut file).take(LONGEST_OWNER).read_to_string(&mut text);
    if read.is_err() || named(&text).is_none() {
        return Err(foreign("a file of another program"));
    }
    Ok(Some(file))
}

/// Maximum length of a lock file in bytes. A host name has at most 253.
const LONGEST_OWNER: u64 = 1024;

/// Locks the file. Returns false if another process holds the lock.
fn lock(file: &File, dir: &Path) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
            tracing::warn!(
                "`{}` is on a file system without locks: make sure that no other process trains there",
                dir.display()
            );
            Ok(true)
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Creates the lock file with its owner's name, locked before it becomes visible. `None` if another process was faster.
fn write_locked(dir: &Path, path: &Path) -> std::io::Result<Option<File>> {
    let mut file = new_file(dir)?;
    let owner = json!({ "pid": std::process::id(), "host": host(), "since": now() });
    file.write_all(owner.to_string().as_bytes())?;
    // After a power loss an empty file would be taken for another program's.
    file.as_file().sync_all()?;
    if !lock(file.as_file(), dir)? {
        return Ok(None);
    }
    match file.persist_noclobber(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error.error),
    }
}

/// Returns the error of a link whose target does not exist: the system says of it that it exists.
fn of_link(dir: &Path) -> Option<std::io::Error> {
    let leads_nowhere = dir.is_symlink() && !dir.exists();
    leads_nowhere.then(|| std::io::Error::new(ErrorKind::NotFound, "the folder is a link whose target does not exist"))
}

/// Creates `dir` and its parents. Returns those that did not exist before.
fn make(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let mut made: Vec<PathBuf> = dir.ancestors().take_while(missing).map(Path::to_owned).collect();
    made.reverse();
    std::fs::create_dir_all(dir)?;
    Ok(made)
}

/// Whether `path` still leads to this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(id), path.symlink_metadata().map(id)), (Ok(ours), Ok(there)) if ours == there)
}

/// Systems other than Unix do not delete a file that is open.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Returns the owner that the lock file names.
fn owner(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    named(&text).unwrap_or_else(|| "another process".into())
}

/// Returns the owner from the content of a lock file. `None` if the content is not that of a lock.
fn named(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let (pid, host, since) = (value["pid"].as_u64()?, value["host"].as_str()?, value["since"].as_str()?);
    Some(format!("process {pid} on {host} since {since}"))
}

/// Returns the host name, from Linux or the environment.
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
        assert_eq!(DirectoryLock::is_held(&run), Some(false), "there is no lock yet");
        let first = DirectoryLock::acquire(&run).expect("owned");
        assert_eq!(DirectoryLock::is_held(&run), Some(true));
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
        let here = json!({"pid": 1, "host": host(), "since": "y"}).to_string();
        for (left, held) in [(here.as_str(), Some(false)), (r#"{"pid":1,"host":"x","since":"y"}"#, None)] {
            std::fs::write(dir.path().join(DirectoryLock::FILE), left).expect("written");
            assert_eq!(DirectoryLock::is_held(dir.path()), held, "{left}");
        }
        let _lock = DirectoryLock::acquire(dir.path()).expect("nobody holds it");
        assert!(owner(&dir.path().join(DirectoryLock::FILE)).contains(&std::process::id().to_string()));
    }

    #[test]
    fn what_is_no_lock_is_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        for content in ["", "PID 4711", r#"{"name": "npm"}"#, &"x".repeat(5000)] {
            let lock = dir.path().join(DirectoryLock::FILE);
            std::fs::write(&lock, content).expect("written");
            let refused = DirectoryLock::acquire(dir.path()).expect_err("refused").to_string();
            assert!(refused.contains(".lock") && refused.contains("another program"), "{refused}");
            assert_eq!(std::fs::read_to_string(&lock).expect("still there"), content);
            assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing beside it");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_symbolic_link_is_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, diary) = (dir.path().join("run"), dir.path().join("diary.txt"));
        std::fs::create_dir(&run).expect("made");
        // One that looks like a lock, one that does not, and none at all.
        for content in [Some(r#"{"pid":1,"host":"x","since":"y"}"#), Some("dear diary"), None] {
            let _ = std::fs::remove_file(&diary);
            content.inspect(|content| std::fs::write(&diary, content).expect("written"));
            let lock = run.join(DirectoryLock::FILE);
            let _ = std::fs::remove_file(&lock);
            std::os::unix::fs::symlink(&diary, &lock).expect("linked");
            let refused = DirectoryLock::acquire(&run).expect_err("refused").to_string();
            assert!(refused.contains("symbolic link"), "{refused}");
            assert_eq!(std::fs::read_to_string(&diary).ok().as_deref(), content);
            assert!(lock.symlink_metadata().expect("still there").is_symlink());
        }
    }

    #[test]
    fn a_lock_that_is_no_longer_ours_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = DirectoryLock::acquire(dir.path()).expect("owned");
        let path = dir.path().join(DirectoryLock::FILE);
        std::fs::remove_file(&path).expect("removed by somebody");
        std::fs::write(&path, "a diary").expect("written");
        drop(lock);
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "a diary");
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
