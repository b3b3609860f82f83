//! How much is on disk, and what goes when there is no room.

use std::sync::Mutex;
use std::time::SystemTime;

use super::CacheError;
use super::folder::{Folder, Found, on_disk, remove};

/// The cap divided by this is how much may be written before the folder is looked at again, and how much more than
/// needed is removed: the folder is listed at most so many times while the cache fills up once.
const SHARE: u64 = 16;

/// Keeps the folder below the cap.
pub(super) struct Room {
    max_bytes: u64,
    ledger: Mutex<Ledger>,
}

/// What is known of the folder.
#[derive(Debug, Default)]
struct Ledger {
    /// Bytes on disk: what the last look found, plus what was written since. Nothing before the first look.
    bytes: Option<u64>,
    /// Of these, what was written since the last look.
    unseen: u64,
    /// A look found nothing old left to remove; nothing grows old while the cache is open.
    exhausted: bool,
}

/// What asking for room led to.
pub(super) struct Taken {
    /// There is room, and it is taken.
    pub granted: bool,
    /// Entries that were removed for it.
    pub evicted: u64,
}

impl Room {
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes, ledger: Mutex::default() }
    }

    /// Room for a file of this length, where entries last used before `opened` may go for it; fails if the folder
    /// cannot be listed or an entry cannot be removed.
    pub fn take(&self, length: u64, folder: &Folder, opened: SystemTime) -> Result<Taken, CacheError> {
        let needed = on_disk(length);
        if needed > self.max_bytes {
            return Ok(Taken { granted: false, evicted: 0 });
        }
        // A panic in another thread left at worst a wrong sum, which the next look corrects.
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

    /// The folder was emptied: looks again next time.
    pub fn forget(&self) {
        *self.ledger.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Ledger::default();
    }
}

/// Removes the oldest of what was last used before `opened` until no more than `goal` bytes are left, if there are so
/// many; what is left, and how many entries went.
fn make_room(mut found: Vec<Found>, mut bytes: u64, goal: u64, opened: SystemTime) -> Result<(u64, u64), CacheError> {
    found.retain(|file| file.finished && file.used < opened);
    found.sort_unstable_by_key(|file| file.used);
    let mut evicted = 0;
    for file in found {
        if bytes <= goal {
            break;
        }
        // A reader that has it open reads on. One that another process has removed is gone all the same.
        let removed = remove(&file.path).map_err(|source| CacheError::Folder { path: file.path, source })?;
        bytes -= file.bytes;
        evicted += u64::from(removed);
    }
    Ok((bytes, evicted))
}
