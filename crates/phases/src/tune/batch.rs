//! The batch that a search for the learning rate began with. The search for the batch need not be repeated when the other one goes on, and
//! might choose another batch.

use super::rates::{root, without_overwrite};
use crate::Experiment;
use serde::{Deserialize, Serialize};
use undertone_store::{StoreError, write_json};

/// Name of the file in the directory of the searches for learning rates.
const FILE: &str = "batch.json";

/// Result of a search for the batch.
#[derive(PartialEq, Serialize, Deserialize)]
struct BatchRecord {
    /// Configuration and options of the search.
    asked: [String; 2],
    /// Configuration with the batch that was found.
    found: String,
}

/// Returns the configuration with the batch that an earlier search found for the same configuration and `options`, as text; `None` if there is none,
/// or `run.overwrite` replaces it.
pub fn earlier_batch(experiment: &Experiment, options: &str) -> Option<Experiment> {
    let text = std::fs::read(root(experiment).join(FILE)).ok()?;
    let record: BatchRecord = serde_json::from_slice(&text).ok()?;
    let is_same = record.asked == asked(experiment, options) && !experiment.run.overwrite;
    is_same.then(|| serde_norway::from_str(&record.found).ok()).flatten()
}

/// Records the configuration with the batch that was found, for [`earlier_batch`].
///
/// # Errors
/// When the directory of the searches cannot be written.
pub fn record_batch(experiment: &Experiment, options: &str, found: &Experiment) -> Result<(), StoreError> {
    let directory = root(experiment);
    let io = |source| StoreError::Io { action: "write", path: directory.clone(), source };
    std::fs::create_dir_all(&directory).map_err(io)?;
    write_json(
        &directory.join(FILE),
        &BatchRecord { asked: asked(experiment, options), found: without_overwrite(found) },
    )
}

fn asked(experiment: &Experiment, options: &str) -> [String; 2] {
    [without_overwrite(experiment), options.to_owned()]
}
