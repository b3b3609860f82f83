//! What training left out, on record in the run's directory.

use serde_json::json;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use undertone_data::loader::{Collate, Dataset, Loader};
use undertone_store::{StoreError, write_atomically};

/// Keeps `bad_samples.json` up to date: how many samples could not be read, and the first of them with their reasons.
pub(crate) struct SkipRecord {
    path: PathBuf,
    written: Cell<usize>,
}

impl SkipRecord {
    /// For a run's directory.
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("bad_samples.json"), written: Cell::new(0) }
    }

    /// Writes what the loader has left out, if there is more of it than before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn update<D: Dataset, C: Collate<D::Item>>(&self, loader: &Loader<D, C>) -> Result<(), StoreError> {
        let skips = loader.skipped();
        if skips.samples == self.written.get() {
            return Ok(());
        }
        let first: Vec<_> = skips.first.iter().map(|s| json!({"name": s.name, "reason": s.reason})).collect();
        let record = json!({"samples": skips.samples, "times": skips.times, "first": first});
        write_atomically(&self.path, serde_json::to_string_pretty(&record).unwrap_or_default().as_bytes())?;
        self.written.set(skips.samples);
        Ok(())
    }

    /// What to say at the end, if anything was left out.
    pub fn sentence<D: Dataset, C: Collate<D::Item>>(&self, loader: &Loader<D, C>) -> Option<String> {
        let skips = loader.skipped();
        let first = skips.first.first()?;
        Some(format!(
            "{} samples could not be read and were left out, the first `{}` ({}): see {}",
            skips.samples,
            first.name,
            first.reason,
            self.path.display()
        ))
    }
}
