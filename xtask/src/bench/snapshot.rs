//! What lies in folders, to see whether anything has happened to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files and folders that must stay as they are.
pub struct Snapshot {
    roots: Vec<PathBuf>,
    without: Option<PathBuf>,
    before: BTreeMap<PathBuf, Vec<u8>>,
}

impl Snapshot {
    /// Everything at and below `roots`, but nothing at and below `without`.
    pub fn of(roots: Vec<PathBuf>, without: Option<PathBuf>) -> Self {
        let before = contents(&roots, without.as_deref());
        Self { roots, without, before }
    }

    /// The first that is not as it was, or was not there.
    pub fn changed(&self) -> Option<PathBuf> {
        let now = contents(&self.roots, self.without.as_deref());
        let differs = |path: &&PathBuf| self.before.get(*path) != now.get(*path);
        self.before.keys().chain(now.keys()).find(differs).cloned()
    }
}

/// Every path with what is in it: nothing in those of folders; links are noted as links.
fn contents(roots: &[PathBuf], without: Option<&Path>) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), roots.to_vec());
    while let Some(path) = open.pop() {
        if Some(path.as_path()) == without {
            continue;
        }
        let content = match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => b"a link".to_vec(),
            Ok(metadata) if metadata.is_dir() => {
                let below = std::fs::read_dir(&path).into_iter().flatten().flatten();
                open.extend(below.map(|entry| entry.path()));
                Vec::new()
            }
            Ok(_) => std::fs::read(&path).unwrap_or_default(),
            Err(_) => continue,
        };
        found.insert(path, content);
    }
    found
}
