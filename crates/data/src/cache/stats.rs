//! Statistics of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::folder::Found;

/// Counts of one [`Cache`](super::Cache) since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Entries read.
    pub hits: u64,
    /// Entries requested that did not exist or were not complete.
    pub misses: u64,
    /// Entries that were damaged and removed. Each is a miss too.
    pub corrupted: u64,
    /// Entries written.
    pub written: u64,
    /// Entries not written: there was no room, or a write had failed.
    pub declined: u64,
    /// Older entries removed to make room.
    pub evicted: u64,
    /// Bytes of the entries read.
    pub bytes_read: u64,
    /// Bytes of the entries written.
    pub bytes_written: u64,
}

/// Content of a cache's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Number of entries.
    pub entries: u64,
    /// Space on disk of the entries and unfinished files, in bytes: file lengths in whole blocks of 4 KiB.
    pub bytes: u64,
}

impl CacheUsage {
    pub(super) fn of(found: &[Found]) -> Self {
        Self {
            entries: found.iter().filter(|file| file.finished).count() as u64,
            bytes: found.iter().map(|file| file.bytes).sum(),
        }
    }
}

/// Atomic counters behind [`CacheCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub corrupted: AtomicU64,
    pub written: AtomicU64,
    pub declined: AtomicU64,
    pub evicted: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
}

impl Counters {
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            corrupted: self.corrupted.load(Relaxed),
            written: self.written.load(Relaxed),
            declined: self.declined.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
        }
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}
