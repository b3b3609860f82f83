//! What a cache did, and what it holds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::folder::Found;

/// What one [`Cache`](super::Cache) did since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Entries read.
    pub hits: u64,
    /// Entries asked for and not there (or not whole).
    pub misses: u64,
    /// Entries found damaged, and removed. Each is a miss too.
    pub corrupted: u64,
    /// Entries written.
    pub written: u64,
    /// Entries not written: there was no room, or the disk had refused one.
    pub declined: u64,
    /// Older entries removed to make room.
    pub evicted: u64,
    /// Bytes of the entries read.
    pub bytes_read: u64,
    /// Bytes of the entries written.
    pub bytes_written: u64,
}

/// What a cache's folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Entries.
    pub entries: u64,
    /// What they and unfinished files take on disk, in bytes: file lengths in whole blocks of 4 KiB.
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

/// [`CacheCounts`] as all threads count them.
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
