//! Files of the cache: 256 folders with one file per entry, and the temporary files of unfinished ones.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use super::entry::{HEADER, Record};
use super::{CacheError, Key};

/// Prefix of an unfinished file's name.
const PARTIAL: &str = ".partial-";
/// Age from which on an unfinished file was left by a killed process: writing an entry takes milliseconds.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// Maximum length of an entry, so that no damaged file makes the reader allocate more memory: 2³⁰ values are 18 hours
/// of audio.
const LARGEST: u64 = HEADER as u64 + (1 << 31);

/// Folder of the entries, with their reads and writes.
pub(super) struct Folder {
    root: PathBuf,
    /// Number that differs between any two handles, also on machines that share the folder.
    nonce: u64,
    serial: AtomicU64,
}

/// A file in the cache.
pub(super) struct Found {
    pub path: PathBuf,
    /// Space on disk, in bytes.
    pub bytes: u64,
    /// Time at which it was last written, or marked as used.
    pub used: SystemTime,
    /// Whether it is an entry under its name, not an unfinished file.
    pub finished: bool,
}

/// Result of reading a file.
pub(super) enum Reading {
    /// The file is complete.
    Whole(Record),
    /// There is no file, or none that this process can open now.
    Absent,
    /// The content is not what was written.
    Damaged,
}

impl Folder {
    /// Creates the folder if it does not exist; its subfolders are created with their first entry.
    pub fn open(root: &Path) -> Result<Self, CacheError> {
        fs::create_dir_all(root).map_err(|source| CacheError::Folder { path: root.into(), source })?;
        Ok(Self { root: root.into(), nonce: RandomState::new().hash_one(()), serial: AtomicU64::new(0) })
    }

    /// Returns the entry's path: its first two digits name the folder.
    pub fn path(&self, key: &Key) -> PathBuf {
        let hex = key.hex();
        self.root.join(&hex[..2]).join(&hex[2..])
    }

    /// Returns the entry, and marks it as used now if it was last used before `since`.
    pub fn read(&self, key: &Key, since: SystemTime) -> Reading {
        // No file, no permission, no descriptors left: in none of these cases is there a damaged file to remove.
        let Ok(file) = File::open(self.path(key)) else { return Reading::Absent };
        match read(&file, key, since) {
            Ok(Some(record)) => Reading::Whole(record),
            // A file that the disk cannot read counts as damaged.
            Ok(None) | Err(_) => Reading::Damaged,
        }
    }

    /// Writes the file atomically: under a temporary name, which is then renamed. Whenever the process is killed, the
    /// entry is whole or absent. Nothing is synced. After a power failure a file may be incomplete, which its checksum
    /// shows.
    pub fn write(&self, key: &Key, file: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let name = format!("{PARTIAL}{:016x}-{}", self.nonce, self.serial.fetch_add(1, Relaxed));
        let partial = path.with_file_name(name);
        let write = || {
            create(&partial)?.write_all(file)?;
            fs::rename(&partial, &path)
        };
        write().inspect_err(|_| {
            // Best effort: the first error is more useful than a second one about the leftover file.
            let _ = fs::remove_file(&partial);
        })
    }

    /// Returns every file of the cache; files left by killed processes are removed.
    pub fn scan(&self) -> Result<Vec<Found>, CacheError> {
        let mut found = Vec::new();
        for shard in 0..=u8::MAX {
            let path = self.root.join(format!("{shard:02x}"));
            scan_shard(&path, &mut found).map_err(|source| CacheError::Folder { path, source })?;
        }
        Ok(found)
    }
}

impl Found {
    /// Returns the key that the file's name stands for; none for a file that is no entry.
    pub fn key(&self) -> Option<Key> {
        let shard = self.path.parent()?.file_name()?.to_str()?;
        Key::from_hex(&format!("{shard}{}", self.path.file_name()?.to_str()?))
    }
}

/// Creates a new file, with its folder.
fn create(path: &Path) -> io::Result<File> {
    match (File::create_new(path), path.parent()) {
        (Err(error), Some(shard)) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(shard)?;
            File::create_new(path)
        }
        (created, _) => created,
    }
}

/// Returns the entry in an open file, or none if it is damaged.
fn read(mut file: &File, key: &Key, since: SystemTime) -> io::Result<Option<Record>> {
    let metadata = file.metadata()?;
    let values = metadata.len().checked_sub(HEADER as u64).filter(|bytes| bytes % 2 == 0);
    let Some(values) = values.filter(|_| metadata.len() <= LARGEST) else { return Ok(None) };
    let (mut header, mut values) = ([0; HEADER], vec![0u16; values as usize / 2]);
    file.read_exact(&mut header)?;
    file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    let record = Record::read(key, &header, values);
    if record.is_some() && metadata.modified()? < since {
        // Best effort: in a folder of another user, entries keep their age.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(record)
}

fn scan_shard(path: &Path, found: &mut Vec<Found>) -> io::Result<()> {
    let now = SystemTime::now();
    let items = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        items => items?,
    };
    for item in items {
        let item = item?;
        let name = item.file_name();
        let Some(name) = name.to_str() else { continue };
        let partial = name.starts_with(PARTIAL);
        if !partial && (name.len() != 62 || !name.bytes().all(|digit| digit.is_ascii_hexdigit())) {
            continue;
        }
        // The file has been removed in the meantime: another process made room.
        let Ok(metadata) = item.metadata() else { continue };
        let used = metadata.modified()?;
        if partial && now.duration_since(used).is_ok_and(|age| age > LEFT_BEHIND) {
            remove(&item.path())?;
            continue;
        }
        found.push(Found { path: item.path(), bytes: on_disk(metadata.len()), used, finished: !partial });
    }
    Ok(())
}

/// Removes a file; returns whether it existed.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the space that a file of this length takes: file systems allocate blocks of 4 KiB.
pub(super) fn on_disk(length: u64) -> u64 {
    length.next_multiple_of(4096)
}
