//! Files around a run that are somebody's own: nothing may happen to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What lies around a run, with names that runs use, too.
const FILES: [&str; 6] = [
    "thesis/chapter.txt",
    "thesis/config.yaml",
    "thesis/checkpoints/step-00000001/model.safetensors",
    "runs/neighbour/summary.json",
    "runs/neighbour/.tmp-notes",
    "runs/.lock",
];

/// The file that links lead to.
pub const TARGET: &str = FILES[0];

/// Puts the files into `place`, and returns what they are.
pub fn place_decoys(place: &Path) -> std::io::Result<Decoys> {
    for (index, file) in FILES.iter().enumerate() {
        let path = place.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(place))?;
        std::fs::write(path, format!("the work of years, {index}"))?;
    }
    Ok(Decoys { before: contents(place), place: place.to_owned() })
}

/// Files that must stay as they are.
pub struct Decoys {
    place: PathBuf,
    before: BTreeMap<PathBuf, Option<Vec<u8>>>,
}

impl Decoys {
    /// The first that is not as it was, or lies beside them and did not.
    pub fn changed(&self) -> Option<PathBuf> {
        let now = contents(&self.place);
        let differs = |path: &&PathBuf| self.before.get(*path) != now.get(*path);
        self.before.keys().chain(now.keys()).find(differs).cloned()
    }
}

/// Every path around the runs with what is in it; nothing in those of directories.
fn contents(place: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![place.join("thesis"), place.join("runs/neighbour"), place.join("runs/.lock")];
    while let Some(path) = open.pop() {
        let below = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
        open.extend(below);
        let content = std::fs::read(&path).ok();
        found.insert(path, content);
    }
    found
}
