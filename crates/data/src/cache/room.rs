//! Size of the cache on disk, and eviction when there is no room.

use std::sync::Mutex;
use std::time::SystemTime;

use super::CacheError;
use super::folder::{Folder, Found, on_disk, remove};

/// The cap divided by this is the amount that may be written before the folder is listed again, and the amount that is
/// removed beyond what is needed. So the folder is listed at most this many times while the cache fills up once.
const SHARE: u64 = 16;

/// Keeps the folder below the cap.
pub(super) struct Room {
    max_bytes: u64,
    ledger: Mutex<Ledger>,
}

/// Known state of the folder.
#[derive(Debug, Default)]
struct Ledger {
    /// Bytes on disk: the result of the last listing, plus what was written since. None before the first listing.
    bytes: Option<u64>,
    /// Bytes written since the last listing.
    unseen: u64,
    /// Whether a listing found nothing old left to remove; no entry becomes old while the cache is open.
    exhausted: bool,
}

/// Result of a request for room.
pub(super) struct Taken {
    /// Whether there is room, which is then reserved.
    pub granted: bool,
    /// Number of entries that were removed for it.
    pub evicted: u64,
}

impl Room {
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes, ledger: Mutex::default() }
    }

    /// Reserves room for a file of this length, for which entries last used before `opened` may be removed. Fails if
    /// the folder cannot be listed or an entry cannot be removed.
    pub fn take(&self, length: u64, folder: &Folder, opened: SystemTime) -> Result<Taken, CacheError> {
        let needed = on_disk(length);
        if needed > self.max_bytes {
            return Ok(Taken { granted: false, evicted: 0 });
        }
        // A panic in another thread left at worst a wrong sum, which the next listing corrects.
        let mut ledger = self.ledger.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let full = |bytes: u64| bytes + needed > self.max_bytes;
        let mut evicted = 0;
        let look = match ledger.bytes {
            None => true,
            Some(bytes) => ledger.unseen > self.max_bytes / SHARE || (full(bytes) && !ledger.exhausted),
        };
        if look {
            let found = folder.scan()?;
            let mut bytes = found.iter().map(|file| file.bytes).sum();
            if full(bytes) {
                let goal = self.max_bytes.saturating_sub(needed + self.max_bytes / SHARE);
                let before = bytes;
                (bytes, evicted) = make_room(found, before, goal, opened)?;
                ledger.exhausted = bytes > goal;
            }
            ledger.unseen = 0;
            ledger.bytes = Some(bytes);
        }
        let bytes = ledger.bytes.unwrap_or(0);
        if full(bytes) {
            return Ok(Taken { granted: false, evicted });
        }
        ledger.bytes = Some(bytes + needed);
        ledger.unseen += needed;
        Ok(Taken { granted: true, evicted })
    }

    /// Notes that the folder was emptied, so that it is listed next time.
    pub fn forget(&self) {
        *self.ledger.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Ledger::default();
    }
}

/// Removes the oldest of the files last used before `opened` until at most `goal` bytes are left or no such file
/// remains. Returns the bytes that are left and the number of entries removed.
fn make_room(mut found: Vec<Found>, mut bytes: u64, goal: u64, opened: SystemTime) -> Result<(u64, u64), CacheError> {
    found.retain(|file| file.finished && file.used < opened);
    found.sort_unstable_by_key(|file| file.used);
    let mut evicted = 0;
    for file in found {
        if bytes <= goal {
            break;
        }
        // A reader that has it open can still read it. If another process has removed it already, its space is free as
        // well.
        let removed = remove(&file.path).map_err(|source| CacheError::Folder { path: file.path, source })?;
        bytes -= file.bytes;
        evicted += u64::from(removed);
    }
    Ok((bytes, evicted))
}
