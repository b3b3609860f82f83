//! What is slow to compute per sample, kept on disk between epochs and runs: decoded audio or log-mel features.
//!
//! An entry is one file, named after a [`Key`] of all that it depends on, in one of 256 folders; 16 bits a value,
//! unpadded, with a checksum. It is written beside its place and renamed, so a process killed at any moment leaves it
//! whole or absent, and any number of processes may share the folder without a lock. A damaged entry is noticed,
//! removed and computed anew.
//!
//! **Rounding.** Features are `f16`. Audio is 16-bit integers times one power of two per clip: 16-bit recordings come
//! back bit for bit, and others at 15 to 16 bits below their own peak, where `f16` would have 11 per sample. What
//! [`Cache::get_or_compute`] has just computed passes through the same rounding, so that a sample is the same, to the
//! last bit, whether it was in the cache or not.
//!
//! **Room.** Before an entry is written that would exceed the cap, those not used since this cache was opened are
//! removed, oldest first. What the run itself uses is never removed for its own sake: an epoch goes through all samples
//! once, so the entry used least recently is the one needed soonest. With room for a share f of the samples, and a new
//! order each epoch, evicting it would find f + (1 - f) ln(1 - f) of them (15 % for a half); keeping what is there
//! finds f.
//!
//! **Why files.** Beside them LMDB, redb and shards of safetensors were tried on 10,000 entries of 80 kB. Only files and LMDB
//! take two processes that write, leave nothing corrupt after SIGKILL and hold no more than what was put in. LMDB reads and
//! writes faster, by a few hundredths of a millisecond an entry, where features take whole ones. For that, a damaged page of
//! its tree concerns more than one entry, eviction needs an index of ages, its map has to be as large as the cap from the
//! start, and opening it is `unsafe`: no other process may ever cut the file short. `cargo run --example cache_bench -p undertone-cw` times these files.

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

pub use config::{CacheConfig, CacheWhat};
pub use entry::Entry;
pub use error::CacheError;
pub use key::Key;
pub use stats::{CacheCounts, CacheUsage};

use entry::Record;
use folder::{Folder, Reading};
use room::Room;
use stats::{Counters, add};

/// A folder of entries, shared among threads by reference; open one per run.
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
    /// Done once writing has failed: from then on nothing is written.
    refused: Once,
}

/// How far the time of a file may be behind that of the clock: it is taken at the kernel's last tick, up to 10 ms ago.
const TICK: Duration = Duration::from_millis(20);

impl Cache {
    /// The cache in this folder, which is made if it is not there, with at most `max_bytes` on disk.
    ///
    /// A single process keeps to the cap. Each further process writing at the same time may exceed it by a sixteenth,
    /// as it learns of the others' entries only when it has written that much itself.
    ///
    /// Fails if the folder can be neither made nor used.
    pub fn open(dir: &Path, max_bytes: u64) -> Result<Self, CacheError> {
        Ok(Self {
            folder: Folder::open(dir)?,
            room: Room::new(max_bytes),
            opened: SystemTime::now().checked_sub(TICK).unwrap_or(SystemTime::UNIX_EPOCH),
            counters: Counters::default(),
            refused: Once::new(),
        })
    }

    /// The entry, if it is there and whole. A damaged one is counted and removed.
    pub fn get<T: Entry>(&self, key: &Key) -> Option<T> {
        let value = match self.folder.read(key, self.opened) {
            Reading::Absent => None,
            Reading::Whole(record) => match record.value::<T>() {
                Some(value) => {
                    add(&self.counters.bytes_read, record.bytes());
                    Some(value)
                }
                // Audio where features are asked for: the key does not say which is meant.
                None => self.discard(key),
            },
            Reading::Damaged => self.discard(key),
        };
        add(if value.is_some() { &self.counters.hits } else { &self.counters.misses }, 1);
        value
    }

    /// Writes the entry; whether it is on disk now.
    ///
    /// It is not if there is no room, or if the disk refused this or an earlier one: then an event of `tracing`
    /// says so, once, and this cache writes no more. Fails only on values that the cache cannot hold (NaN, infinity,
    /// features of 65 520 and beyond, audio beyond 2¹²⁶ times full scale), never because of the disk.
    pub fn put<T: Entry>(&self, key: &Key, value: &T) -> Result<bool, CacheError> {
        Ok(self.write(key, &Record::of(value)?))
    }

    /// The entry, or what `compute` gives, which is written. Either way the values are those of the entry, rounded.
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
        let record = Record::of(&compute()?)?;
        self.write(key, &record);
        Ok(record.decode())
    }

    /// What this cache did so far; other processes' doings are not in it.
    pub fn counts(&self) -> CacheCounts {
        self.counters.counts()
    }

    /// What is on disk now; fails if a folder cannot be listed.
    pub fn usage(&self) -> Result<CacheUsage, CacheError> {
        Ok(CacheUsage::of(&self.folder.scan()?))
    }

    /// Reads every entry and removes those that are damaged, which it counts; then what is left.
    ///
    /// Fails if a folder cannot be listed.
    pub fn verify(&self) -> Result<CacheUsage, CacheError> {
        for found in self.folder.scan()? {
            // Looking is not using: the entries keep their age.
            if let Some(key) = found.key()
                && let Reading::Damaged = self.folder.read(&key, SystemTime::UNIX_EPOCH)
            {
                self.discard::<()>(&key);
            }
        }
        self.usage()
    }

    /// Removes every entry and says what was there; fails if a file cannot be removed.
    ///
    /// Other processes may go on: they find nothing, and write anew.
    pub fn clear(&self) -> Result<CacheUsage, CacheError> {
        let found = self.folder.scan()?;
        for file in found.iter().filter(|file| file.finished) {
            folder::remove(&file.path).map_err(|source| CacheError::Folder { path: file.path.clone(), source })?;
        }
        self.room.forget();
        Ok(CacheUsage::of(&found))
    }

    /// Whether the entry is on disk now.
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

    /// Removes a damaged entry. Should another process have replaced it just now, a good one goes: that costs a miss.
    fn discard<T>(&self, key: &Key) -> Option<T> {
        add(&self.counters.corrupted, 1);
        // Best effort: if it stays, it is found damaged again.
        let _ = folder::remove(&self.folder.path(key));
        None
    }
}
