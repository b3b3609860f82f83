//! What is known of a model that was exported as the best of a run: `score.json` in its folder.

use serde::{Deserialize, Serialize};
use std::path::Path;
use undertone_store::{StoreError, write_atomically};

/// How good an exported model was found to be.
///
/// It lies in the model's own folder, so that the two appear together: a run that goes back to an earlier checkpoint finds
/// what its best model is, also where that was judged after the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    /// The metric that decided.
    pub metric: String,
    /// Its value on the validation data; nothing where no evaluation of the run could measure it.
    pub value: Option<f64>,
    /// Optimizer steps that had been taken.
    pub step: u64,
}

/// The folders of the model, and of the average of its weights, that scored best.
pub(crate) const BEST: &str = "best";
pub(crate) const BEST_EMA: &str = "best_ema";

const FILE: &str = "score.json";

impl Exported {
    /// What the folder of an exported model says; nothing where there is none, or one without `score.json`.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        write_atomically(&folder.join(FILE), serde_json::to_string_pretty(self).unwrap_or_default().as_bytes())
    }

    /// The best value so far and its step, given what a checkpoint knows of them: those of the model in `folder`.
    pub(crate) fn best_known(folder: &Path, metric: &str, known: Option<(f64, u64)>) -> Option<(f64, u64)> {
        match Self::read(folder) {
            Some(found) if found.metric == metric => found.value.map(|value| (value, found.step)),
            // Folders of earlier versions do not say; where there is no folder, there is no best model.
            _ => known.filter(|_| folder.exists()),
        }
    }
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
        Exported { metric: "error".into(), value: Some(0.1 + 0.2), step: 150 }.write(&full).expect("written");
        let known = Some((0.5, 100));
        assert_eq!(Exported::best_known(&none, "error", known), None);
        assert_eq!(Exported::best_known(&bare, "error", known), known);
        assert_eq!(Exported::best_known(&full, "error", known), Some((0.1 + 0.2, 150)));
        Exported { metric: "error".into(), value: None, step: 200 }.write(&full).expect("written");
        assert_eq!(Exported::best_known(&full, "error", known), None, "anything that is measured is better");
        assert_eq!(
            Exported::best_known(&full, "loss", known),
            known,
            "a value of another metric compares with nothing"
        );
    }
}
