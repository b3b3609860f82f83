//! `score.json`, the score of an exported model, in the model's folder.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_metrics::Interval;
use undertone_store::{StoreError, write_json};

/// Score of a model that was exported as the best of a run.
///
/// It is in the model's own folder, so that both appear together. A run that goes back to an earlier checkpoint finds
/// its best model's score there, even if the evaluation was after the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    /// Name of the deciding metric.
    pub metric: String,
    /// Value of the metric on the validation split; `None` if no evaluation of the run could measure it.
    pub value: Option<f64>,
    /// Number of optimizer steps taken.
    pub step: u64,
    /// Confidence intervals of the metrics of its evaluation, by metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Interval>,
    /// Files of the model, as paths within the folder. Folders of earlier versions list none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
}

/// Folders of the best model, and of the best average of the weights.
pub(crate) const BEST: &str = "best";
pub(crate) const BEST_EMA: &str = "best_ema";

const FILE: &str = "score.json";

impl Exported {
    /// Reads the score in the folder of an exported model; `None` without the folder or `score.json`.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// Writes the score beside the files of its model.
    pub(crate) fn write(mut self, folder: &Path) -> Result<(), StoreError> {
        self.files = files_below(folder, Path::new(""))?;
        self.files.retain(|file| file != Path::new(FILE));
        write_json(&folder.join(FILE), &self)
    }

    /// Returns the best score so far and its step: that of the model in `folder`, or else `known`, which is the
    /// checkpoint's.
    pub(crate) fn best_known(folder: &Path, metric: &str, known: Option<(f64, u64)>) -> Option<(f64, u64)> {
        let found = Self::read(folder);
        if let Some(missing) = found.iter().flat_map(|found| &found.files).find(|file| !folder.join(file).exists()) {
            let model = folder.display();
            tracing::warn!("`{model}` lacks `{}`: the next evaluation chooses the best model anew", missing.display());
            return None;
        }
        match found {
            Some(found) if found.metric == metric => found.value.map(|value| (value, found.step)),
            // Folders of earlier versions have no score. Without a folder there is no best model.
            _ => known.filter(|_| folder.exists()),
        }
    }
}

/// Returns the files below a folder, sorted, as paths from it; `within` is the part of the path that is known.
fn files_below(folder: &Path, within: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let path = folder.join(within);
    let io = |source| StoreError::Io { action: "read", path: path.clone(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = within.join(entry.file_name());
        match entry.file_type().map_err(io)?.is_dir() {
            true => files.extend(files_below(folder, &name)?),
            false => files.push(name),
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_folder_counts_and_not_what_a_checkpoint_remembers() {
        let dir = tempfile::tempdir().expect("a directory");
        let (none, bare, full) = (dir.path().join("none"), dir.path().join("bare"), dir.path().join("full"));
        std::fs::create_dir(&bare).expect("made");
        std::fs::create_dir(&full).expect("made");
        let exported = |value, step| Exported {
            metric: "error".into(),
            value,
            step,
            intervals: BTreeMap::new(),
            files: Vec::new(),
        };
        std::fs::create_dir(full.join("adapter")).expect("made");
        std::fs::write(full.join("adapter/weights"), "1").expect("written");
        exported(Some(0.1 + 0.2), 150).write(&full).expect("written");
        let known = Some((0.5, 100));
        assert_eq!(Exported::best_known(&none, "error", known), None);
        assert_eq!(Exported::best_known(&bare, "error", known), known);
        assert_eq!(Exported::best_known(&full, "error", known), Some((0.1 + 0.2, 150)));
        exported(None, 200).write(&full).expect("written");
        assert_eq!(Exported::best_known(&full, "error", known), None, "anything that is measured is better");
        assert_eq!(
            Exported::best_known(&full, "loss", known),
            known,
            "a value of another metric compares with nothing"
        );
        assert_eq!(Exported::read(&full).expect("a score").files, [Path::new("adapter/weights")]);
        std::fs::remove_file(full.join("adapter/weights")).expect("removed");
        assert_eq!(Exported::best_known(&full, "loss", known), None, "there is no model");
    }
}
