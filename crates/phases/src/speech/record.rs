//! Stored alignments, which the next start of any run finds again.
//!
//! A folder of JSON files, one per recording, named after a hash of everything that its pieces depend on. Each file is
//! written when its recording is aligned, by an atomic write: whenever the process ends, the results until then are
//! stored, and any number of processes may share the folder. A damaged file is ignored.
//!
//! The folder is beside the entries of the sample cache but is not part of it: a resumed run must find the pieces that
//! it started with, so they are never evicted. A run's own directory would not do: it is created, or emptied, only once
//! the data is known to be usable, and the next run on the same recordings would have to align them again.

use crate::hash::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use undertone_store::{StoreError, write_atomically};

/// Folder of stored alignments.
#[derive(Clone, Debug)]
pub(super) struct Record(pub PathBuf);

/// Alignment of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Aligned {
    /// Name in messages.
    pub name: String,
    /// Pieces of the recording.
    pub parts: Vec<Part>,
    /// Sample ranges of the pieces that are left out because their transcript differs from their text.
    pub left_out: Vec<(usize, usize)>,
}

/// A piece of a recording, with its part of the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// First sample at 16 kHz, from the beginning of the clip. Integers are read back exactly.
    pub start: usize,
    /// End of the sample range, exclusive.
    pub end: usize,
    /// Text of the piece.
    pub text: String,
    /// Whether the part before this one immediately precedes it in the recording.
    pub follows: bool,
}

/// Content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    aligned: Aligned,
    /// Checksum of the key and the fields above.
    sha256: String,
}

/// Version of the algorithm: changes whenever the same recording, text and model give other pieces. Older files are
/// then not found.
const VERSION: &[u8] = b"undertone alignment, version 1";

/// Returns the key of a result that depends on these parts, in this order.
pub(super) fn key(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in [VERSION].iter().chain(parts) {
        // Each part is preceded by its length, so that no two lists of parts give the same bytes.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(hasher)
}

impl Record {
    /// Opens this folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn open(folder: PathBuf) -> Result<Self, StoreError> {
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|source| StoreError::Io { action: "create", path: folder.clone(), source })?;
        Ok(Self(folder))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }

    /// Returns the stored alignment of a recording, if there is one and it is undamaged.
    pub fn read(&self, key: &str) -> Option<Aligned> {
        let entry: Entry = serde_json::from_slice(&std::fs::read(self.path(key)).ok()?).ok()?;
        (checksum(key, &entry.aligned) == entry.sha256).then_some(entry.aligned)
    }

    /// Stores the alignment of a recording.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, key: &str, aligned: &Aligned) -> Result<(), StoreError> {
        let entry = Entry { aligned: aligned.clone(), sha256: checksum(key, aligned) };
        write_atomically(&self.path(key), json(&entry).as_bytes())
    }
}

fn checksum(key: &str, aligned: &Aligned) -> String {
    hex(Sha256::new().chain_update(key).chain_update(json(aligned)))
}

/// Returns a value as JSON. Serialization cannot fail, because values are numbers and texts only.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn aligned(text: &str) -> Aligned {
        let part = |start, end, follows| Part { start, end, text: text.into(), follows };
        Aligned {
            name: "a.wav".into(),
            parts: vec![part(0, 31_999, false), part(31_999, 60_001, true)],
            left_out: vec![(60_001, 80_000)],
        }
    }

    #[test]
    fn what_is_on_record_is_found_by_its_key_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = Record::open(dir.path().join("a/b")).expect("made");
        let (one, other) = (key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(one, other);
        assert_eq!(record.read(&one), None);
        record.write(&one, &aligned("CQ \"DE\" é\n")).expect("written");
        assert_eq!(record.read(&one), Some(aligned("CQ \"DE\" é\n")));
        assert_eq!(record.read(&other), None);
        std::fs::rename(record.path(&one), record.path(&other)).expect("renamed");
        assert_eq!(record.read(&other), None, "under another's name");
    }

    proptest! {
        #[test]
        fn no_changed_byte_goes_unnoticed(at in 0usize..500, bit in 0u32..8, cut in any::<bool>()) {
            let dir = tempfile::tempdir().expect("a directory");
            let record = Record::open(dir.path().into()).expect("made");
            let key = key(&[b"a"]);
            record.write(&key, &aligned("CQ DE K")).expect("written");
            let mut file = std::fs::read(record.path(&key)).expect("read");
            let at = at % file.len();
            if cut { file.truncate(at) } else { file[at] ^= 1 << bit }
            std::fs::write(record.path(&key), file).expect("written");
            // A change of the JSON notation that keeps the values is not damage.
            prop_assert!(record.read(&key).is_none_or(|found| found == aligned("CQ DE K")));
        }
    }
}
