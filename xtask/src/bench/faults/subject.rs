//! The runs that faults happen to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A run of seconds.
pub struct Subject {
    /// Its name, and that of its directory below `runs`.
    pub name: &'static str,
    /// What is trained.
    pub yaml: &'static str,
    /// The stages whose files are compared, below the run's directory, with the last step of each.
    stages: &'static [(&'static str, u64)],
}

/// What a run leaves that does not depend on the time of day: every file with its content.
pub type Trace = BTreeMap<PathBuf, Vec<u8>>;

/// Fine-tuning, and a run in phases.
pub const SUBJECTS: [Subject; 2] = [
    Subject { name: "tuned", yaml: include_str!("tuned.yaml"), stages: &[("", 24)] },
    Subject {
        name: "phases",
        yaml: include_str!("phases.yaml"),
        stages: &[("phase1/low", 6), ("phase1/high", 6), ("phase2", 6), ("phase3", 6)],
    },
];

impl Subject {
    /// Whether it has parts that end before it does.
    pub fn has_stages(&self) -> bool {
        self.stages.len() > 1
    }

    /// What the run in `directory` has left.
    pub fn trace(&self, directory: &Path) -> Trace {
        let mut trace = Trace::new();
        for (stage, last) in self.stages {
            let last = format!("checkpoints/step-{last:08}");
            let models = ["model.safetensors", "optimizer.safetensors"].map(|name| Path::new(&last).join(name));
            let records = ["metrics.jsonl", "best/score.json"].map(PathBuf::from);
            for file in models.into_iter().chain(records).chain(weights(&directory.join(stage).join("best"))) {
                let path = Path::new(stage).join(file);
                let content = std::fs::read(directory.join(&path)).unwrap_or_default();
                trace.insert(path, content);
            }
        }
        trace
    }
}

/// The weights in a stage's folder `best`.
fn weights(best: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(best).into_iter().flatten().flatten();
    let files = entries.map(|entry| Path::new("best").join(entry.file_name()));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "safetensors")).collect()
}
