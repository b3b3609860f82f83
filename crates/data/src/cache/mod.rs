//! On-disk cache for results that are slow to compute per sample, between epochs and runs: decoded audio, log-mel
//! features, or what a frozen encoder makes of them.
//!
//! An entry is one file in one of 256 folders, named after a [`Key`] of everything it depends on. It has 16 bits per
//! value, no padding, and a checksum. Writes are atomic (a temporary file that is renamed), so a process killed at any
//! moment leaves an entry whole or absent, and any number of processes may share the folder without a lock. A damaged
//! entry is detected, removed and computed again.
//!
//! **Rounding.** Features and states are `f16`. Audio is 16-bit integers times one power of two per clip: 16-bit recordings are
//! restored bit for bit, and others with 15 to 16 bits relative to their own peak, where `f16` would have 11 per
//! sample. Values that [`Cache::get_or_compute`] has just computed pass through the same rounding, so that a sample has
//! the same bits whether or not it came from the cache.
//!
//! **Eviction.** Before an entry is written that would exceed the cap, entries not used since this cache was opened are
//! removed, oldest first. Entries used by the run itself are never evicted, because an epoch goes through all samples
//! once, so the least recently used entry is the one needed soonest. With room for a share f of the samples and a new
//! order each epoch, least-recently-used eviction would find f + (1 - f) ln(1 - f) of them (15 % for a half); keeping
//! the present entries finds f.
//!
//! **Why files.** LMDB, redb and shards of safetensors were compared with files on 10,000 entries of 80 kB. Only files
//! and LMDB support two writing processes, are intact after SIGKILL and take no more space than their content. LMDB
//! reads and writes faster, by a few hundredths of a millisecond per entry, where computing features takes whole
//! milliseconds. In return, a damaged page of its tree affects more than one entry, eviction needs an index of ages,
//! its map has to be as large as the cap from the start, and opening it is `unsafe`, because no other process may ever
//! truncate the file.

mod config;
mod entry;
mod error;
mod folder;
mod key;
mod room;
mod stats;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

pub use config::{CacheConfig, CacheFolder, CacheWhat};
pub use entry::{Entry, States};
pub use error::CacheError;
pub use key::Key;
pub use stats::{CacheCounts, CacheUsage};

use entry::Record;
use folder::{Folder, Reading};
use room::Room;
use stats::{Counters, add};

/// A folder of entries, shared among threads by reference. Open one per run.
///
/// ```
/// use undertone_data::cache::{Cache, CacheError, Key};
/// use undertone_data::features::{LogMel, Mel};
///
/// let dir = tempfile::tempdir()?;
/// let cache = Cache::open(dir.path(), 1_000_000_000)?;
/// let log_mel = LogMel::new(80)?;
/// let key = Key::new(&[b"features", br#"{"bins":80}"#, b"the clip's content"]);
///
/// let first = cache.get_or_compute(&key, || Ok::<_, CacheError>(log_mel.features(&[0.5; 16_000])))?;
/// let second = cache.get_or_compute(&key, || Err::<Mel, _>(CacheError::NoHome))?;
/// assert_eq!(first, second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cache {
    folder: Folder,
    room: Room,
    /// Entries last used before this may be removed.
    opened: SystemTime,
    counters: Counters,
    /// Completed once a write has failed; from then on nothing is written.
    refused: Once,
}

/// Maximum lag of a file's time behind the clock: the kernel takes it at its last tick, up to 10 ms ago.
const TICK: Duration = Duration::from_millis(20);

impl Cache {
    /// Opens the cache in this folder, which is created if it does not exist, with at most `max_bytes` on disk.
    ///
    /// A single process keeps to the cap. Each further process that writes at the same time may exceed it by a
    /// sixteenth, because it notices the others' entries only after it has written that much itself.
    ///
    /// Fails if the folder cannot be created or used.
    pub fn open(dir: &Path, max_bytes: u64) -> Result<Self, CacheError> {
        Ok(Self {
            folder: Folder::open(dir)?,
            room: Room::new(max_bytes),
            opened: SystemTime::now().checked_sub(TICK).unwrap_or(SystemTime::UNIX_EPOCH),
            counters: Counters::default(),
            refused: Once::new(),
        })
    }

    /// Returns the entry, if it exists and is whole. A damaged one is counted and removed.
    pub fn get<T: Entry>(&self, key: &Key) -> Option<T> {
        let value = match self.folder.read(key, self.opened) {
            Reading::Absent => None,
            Reading::Whole(record) => match record.value::<T>() {
                Some(value) => {
                    add(&self.counters.bytes_read, record.bytes());
                    Some(value)
                }
                // The entry holds audio where features are asked for: the key does not distinguish them.
                None => self.discard(key),
            },
            Reading::Damaged => self.discard(key),
        };
        add(if value.is_some() { &self.counters.hits } else { &self.counters.misses }, 1);
        value
    }

    /// Writes the entry; returns whether it is on disk now.
    ///
    /// It is not if there is no room, or if a write of this or an earlier entry failed. In the second case one
    /// `tracing` event reports it, and this cache writes no more. Fails only on values that the cache cannot hold (NaN,
    /// infinity, features of 65 520 and beyond, audio beyond 2¹²⁶ times full scale), never because of the disk.
    pub fn put<T: Entry>(&self, key: &Key, value: &T) -> Result<bool, CacheError> {
        Ok(self.write(key, &Record::of(value)?))
    }

    /// Returns the entry, or computes and writes it. Either way the values are those of the entry, rounded.
    ///
    /// Fails as `compute` does, and on values that the cache cannot hold.
    pub fn get_or_compute<T: Entry, E: From<CacheError>>(
        &self,
        key: &Key,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        Ok(self.keep(key, &compute()?)?)
    }

    /// Writes the entry, as [`put`](Self::put) does, and returns its value, rounded.
    ///
    /// Fails on values that the cache cannot hold.
    pub fn keep<T: Entry>(&self, key: &Key, value: &T) -> Result<T, CacheError> {
        let record = Record::of(value)?;
        self.write(key, &record);
        Ok(record.decode())
    }

    /// Returns the counts of this cache so far, without those of other processes.
    pub fn counts(&self) -> CacheCounts {
        self.counters.counts()
    }

    /// Returns the current size on disk; fails if a folder cannot be listed.
    pub fn usage(&self) -> Result<CacheUsage, CacheError> {
        Ok(CacheUsage::of(&self.folder.scan()?))
    }

    /// Reads every entry, removes and counts the damaged ones, and returns the size of the rest.
    ///
    /// Fails if a folder cannot be listed.
    pub fn verify(&self) -> Result<CacheUsage, CacheError> {
        for found in self.folder.scan()? {
            // Checking does not count as use: the entries keep their age.
            if let Some(key) = found.key()
                && let Reading::Damaged = self.folder.read(&key, SystemTime::UNIX_EPOCH)
            {
                self.discard::<()>(&key);
            }
        }
        self.usage()
    }

    /// Removes every entry and returns the previous size; fails if a file cannot be removed.
    ///
    /// Other processes may continue: they find no entries and write them again.
    pub fn clear(&self) -> Result<CacheUsage, CacheError> {
        let found = self.folder.scan()?;
        for file in found.iter().filter(|file| file.finished) {
            folder::remove(&file.path).map_err(|source| CacheError::Folder { path: file.path.clone(), source })?;
        }
        self.room.forget();
        Ok(CacheUsage::of(&found))
    }

    /// Writes a record; returns whether the entry is on disk now.
    fn write(&self, key: &Key, record: &Record) -> bool {
        let file = record.file(key);
        let bytes = file.len() as u64;
        let written = self.try_write(key, &file).unwrap_or_else(|reason| {
            self.refused.call_once(|| {
                tracing::warn!("the sample cache cannot be written ({reason}): training goes on without adding to it");
            });
            false
        });
        if written {
            add(&self.counters.written, 1);
            add(&self.counters.bytes_written, bytes);
        } else {
            add(&self.counters.declined, 1);
        }
        written
    }

    fn try_write(&self, key: &Key, file: &[u8]) -> Result<bool, CacheError> {
        if self.refused.is_completed() {
            return Ok(false);
        }
        let room = self.room.take(file.len() as u64, &self.folder, self.opened)?;
        add(&self.counters.evicted, room.evicted);
        if room.granted {
            let path = self.folder.path(key);
            self.folder.write(key, file).map_err(|source| CacheError::Folder { path, source })?;
        }
        Ok(room.granted)
    }

    /// Removes a damaged entry. If another process has just replaced it, a valid one is removed, which costs one miss.
    fn discard<T>(&self, key: &Key) -> Option<T> {
        add(&self.counters.corrupted, 1);
        // Best effort: if the file stays, it is detected as damaged again.
        let _ = folder::remove(&self.folder.path(key));
        None
    }
}
