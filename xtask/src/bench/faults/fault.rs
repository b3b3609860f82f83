//! What can happen to a run.

use crate::bench::names::name;
use crate::bench::random::Random;
use clap::ValueEnum;
use std::fmt;
use std::fs::Permissions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Something that happens to a process while it trains, or to what it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// The process is killed.
    #[value(name = "SIGKILL")]
    Kill,
    /// It is asked to end.
    #[value(name = "SIGTERM")]
    Terminate,
    /// No byte more can be written, until the process has ended.
    #[value(name = "full disk")]
    FullDisk,
    /// The run's directories are read-only, until the process has ended.
    #[value(name = "read-only directories")]
    ReadOnly,
    /// The process is killed, and a file of its newest checkpoint has lost its end.
    #[value(name = "SIGKILL, newest checkpoint cut")]
    Truncated,
    /// The process is killed, and one bit of its newest checkpoint is another.
    #[value(name = "SIGKILL, newest checkpoint with a bit flipped")]
    BitFlip,
    /// A file of its newest checkpoint loses its end while the process goes on; then it is killed.
    #[value(name = "newest checkpoint cut under the process, SIGKILL")]
    TruncatedUnderIt,
    /// A second process is started on the same run; then the first is killed.
    #[value(name = "second start, SIGKILL")]
    SecondStart,
    /// Nobody reads any more what the process says.
    #[value(name = "standard output and error closed")]
    ClosedOutput,
    /// The process is killed, and a link to somebody's file lies where its lock was: a start is refused, and the link removed.
    #[value(name = "SIGKILL, lock is a link to another file")]
    LinkedLock,
    /// The process is killed, and somebody's notes lie beside its files: a start that is to replace the run is refused.
    #[value(name = "SIGKILL, other files in the run's directory, start that replaces it")]
    Notes,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(*self))
    }
}

/// Ends a process with a signal it cannot refuse.
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Asks a process to end.
pub fn terminate(child: &Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
}

/// Fills the file system that `place` is on; returns what has to be deleted to have room again.
pub fn fill(place: &Path) -> PathBuf {
    let filler = place.join("filler");
    let block = vec![0_u8; 1 << 20];
    if let Ok(mut file) = std::fs::File::create(&filler) {
        // Smaller and smaller pieces, until not a byte is left.
        for size in [1 << 20, 1 << 12, 1] {
            while std::io::Write::write_all(&mut file, &block[..size]).is_ok() {}
        }
    }
    filler
}

/// Makes a run's directories writable, or not.
pub fn set_writable(run: &Path, writable: bool) {
    #[cfg(unix)]
    for dir in directories(run) {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(dir, Permissions::from_mode(if writable { 0o755 } else { 0o555 }));
    }
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = vec![dir.to_owned()];
    below.filter(|path| path.is_dir()).for_each(|path| found.extend(directories(&path)));
    found
}

/// A file of the newest checkpoint of a run, of the stage that was written to last; only where an older one is left that
/// `is_damaged` does not hold for.
pub fn in_newest_checkpoint(run: &Path, random: &mut Random, is_damaged: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let all: Vec<PathBuf> = directories(run).into_iter().filter(|dir| dir.ends_with("checkpoints")).collect();
    let steps = |dir: &PathBuf| {
        let below = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_step = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-"));
        let mut steps: Vec<PathBuf> = below.filter(is_step).collect();
        steps.sort();
        steps
    };
    let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let stage = all.into_iter().max_by_key(modified)?;
    let mut steps = steps(&stage);
    let newest = steps.pop().filter(|_| steps.iter().any(|older| !is_damaged(older)))?;
    let files = std::fs::read_dir(newest).ok()?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
    files.sort();
    let index = random.below(files.len());
    files.into_iter().nth(index)
}

/// Cuts a file somewhere.
pub fn truncate(file: &Path, random: &mut Random) {
    let Ok(length) = std::fs::metadata(file).map(|metadata| metadata.len()) else { return };
    if let Ok(file) = std::fs::OpenOptions::new().write(true).open(file) {
        let _ = file.set_len(random.next() % length.max(1));
    }
}

/// Flips one bit of a file.
pub fn flip(file: &Path, random: &mut Random) {
    let Ok(mut bytes) = std::fs::read(file) else { return };
    let at = random.below(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
        let _ = std::fs::write(file, bytes);
    }
}
