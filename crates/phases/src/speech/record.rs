//! What was aligned, on record: found again at the next start, whichever run that is.
//!
//! A folder of JSON files, one for each recording, named after a hash of all that its pieces depend on. Each is written
//! when its recording is done, beside its place and renamed: whenever the process ends, what was done is there, and any
//! number of processes may share the folder. A file that is not what was written is as good as none.
//!
//! It lies beside the sample cache's entries but is not one of them: a run that goes on must find the pieces that it began
//! with, so they never go to make room. A run's own directory would not do: it is made, or emptied, only once the data is
//! known to be usable, and the next run on the same recordings would have to begin anew.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use undertone_store::{StoreError, write_atomically};

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Record(PathBuf);

/// How a recording was cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Aligned {
    /// What a person would call it.
    pub name: String,
    /// What it was cut into.
    pub parts: Vec<Part>,
    /// First and last sample of the pieces that are left out because something else was heard in them.
    pub left_out: Vec<(usize, usize)>,
}

/// A piece of a recording, with the part of the text that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// Its first sample at 16 kHz, from the clip's beginning. Whole numbers come back as they were.
    pub start: usize,
    /// The one behind its last.
    pub end: usize,
    /// What is said in it.
    pub text: String,
    /// Whether the part before this one is what was said before it.
    pub follows: bool,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    aligned: Aligned,
    /// Of the key and the above.
    sha256: String,
}

/// Changes whenever other pieces come of the same recording, text and model: then older files are no longer found.
const VERSION: &[u8] = b"undertone alignment, version 1";

/// What depends on these parts, in this order, is found by this.
pub(super) fn key(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in [VERSION].iter().chain(parts) {
        // With its length ahead of each part, no two lists of parts give the same bytes.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(hasher)
}

impl Record {
    /// In this folder, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: PathBuf) -> Result<Self, StoreError> {
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|source| StoreError::Io { action: "create", path: folder.clone(), source })?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }

    /// How a recording was cut, if that is on record and unharmed.
    pub fn read(&self, key: &str) -> Option<Aligned> {
        let entry: Entry = serde_json::from_slice(&std::fs::read(self.path(key)).ok()?).ok()?;
        (checksum(key, &entry.aligned) == entry.sha256).then_some(entry.aligned)
    }

    /// Puts on record how a recording was cut.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, key: &str, aligned: &Aligned) -> Result<(), StoreError> {
        let entry = Entry { aligned: aligned.clone(), sha256: checksum(key, aligned) };
        write_atomically(&self.path(key), json(&entry).as_bytes())
    }
}

fn checksum(key: &str, aligned: &Aligned) -> String {
    hex(Sha256::new().chain_update(key).chain_update(json(aligned)))
}

/// Numbers and texts, which can always be written.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A finished hash, for names.
pub(crate) fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
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
            // What differs in nothing but how its JSON is spelt is no damage.
            prop_assert!(record.read(&key).is_none_or(|found| found == aligned("CQ DE K")));
        }
    }
}
