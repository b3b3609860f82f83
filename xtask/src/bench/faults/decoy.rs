//! Files around a run that are somebody's own: nothing may happen to them.

use crate::bench::snapshot::Snapshot;
use std::path::Path;

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
pub fn place_decoys(place: &Path) -> std::io::Result<Snapshot> {
    for (index, file) in FILES.iter().enumerate() {
        let path = place.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(place))?;
        std::fs::write(path, format!("the work of years, {index}"))?;
    }
    let roots = ["thesis", "runs/neighbour", "runs/.lock"].map(|name| place.join(name));
    Ok(Snapshot::of(roots.into(), None))
}
