//! Record of skipped samples in the run's directory.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use undertone_data::loader::{Collate, Dataset, Loader, LoaderError, Skips};
use undertone_store::{StoreError, write_json};
use undertone_train::{BoxError, ProcessGroup, TrainError};

/// Writer of `bad_samples.json`: the number of samples that could not be read, and the first of them with reasons.
///
/// The file covers the whole run: a resumed session continues it. A sample that an earlier session skipped is
/// identified by its index in the data and not counted in `samples` again. `times` is the sum over all sessions. It is
/// written with every new sample and when a session ends. A batch that is loaded again after a kill counts again.
/// `max_bad_share` does not use the file: it limits each pass over an epoch, and a resumed pass counts the samples
/// before its start as seen and good.
pub(crate) struct SkipRecord {
    path: PathBuf,
    /// Samples skipped by earlier sessions.
    earlier: RefCell<Skips>,
    /// Number of this session's skipped samples, and of times they were skipped, when the file was last written.
    written: Cell<(usize, u64)>,
}

impl SkipRecord {
    /// Returns an empty record for a run's directory, even if the file exists.
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("bad_samples.json"), earlier: RefCell::default(), written: Cell::default() }
    }

    /// Continues the file of earlier sessions of the run, if there is one.
    pub fn resume(&self) {
        let Ok(text) = std::fs::read_to_string(&self.path) else { return };
        match serde_json::from_str(&text) {
            Ok(record) => *self.earlier.borrow_mut() = record,
            Err(error) => {
                tracing::warn!("`{}` is not a list of samples, and a new one is begun: {error}", self.path.display())
            }
        }
    }

    /// Writes the file if the loader has skipped more samples than before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn update<D: Dataset, C: Collate<D::Item>>(&self, loader: &Loader<D, C>) -> Result<(), StoreError> {
        if loader.skipped_samples() == self.written.get().0 {
            return Ok(());
        }
        self.write(&loader.skipped())
    }

    /// Writes the final counts of all ranks, and returns a message if any sample was skipped. Call it on all ranks.
    ///
    /// # Errors
    /// When the file cannot be written, or a rank is gone.
    pub fn finish<D: Dataset, C: Collate<D::Item>>(
        &self,
        loader: &Loader<D, C>,
        process_group: &ProcessGroup,
    ) -> Result<Option<String>, TrainError> {
        let skips = loader.skipped();
        let mut record = self.earlier.borrow().with(&skips);
        let all = process_group.all_gather(Skips::default().with(&skips))?;
        if !process_group.is_main_process() {
            return Ok(None);
        }
        let others = all.into_iter().skip(1).filter(|other| other.times > 0);
        let mut changed = (skips.samples, skips.times) != self.written.get();
        for other in others {
            record = record.with(&other);
            changed = true;
        }
        if changed {
            self.write_record(&record)?;
            self.written.set((skips.samples, skips.times));
        }
        Ok(record.first.first().map(|first| {
            format!(
                "{} samples could not be read and were left out, the first `{}` ({}): see {}",
                record.samples,
                first.name,
                first.reason,
                self.path.display()
            )
        }))
    }

    /// Returns an error of the loader. If it concerns more samples than it names, it says where to find them.
    pub fn explained(&self, error: LoaderError) -> BoxError {
        match &error {
            LoaderError::NothingReadable { .. } | LoaderError::TooManyBad { .. } => format!(
                "{error} (`cargo xtask data check` says what is wrong with each; a run that has a checkpoint also lists them in `{}`)",
                self.path.display()
            )
            .into(),
            _ => error.into(),
        }
    }

    fn write(&self, skips: &Skips) -> Result<(), StoreError> {
        self.write_record(&self.earlier.borrow().with(skips))?;
        self.written.set((skips.samples, skips.times));
        Ok(())
    }

    fn write_record(&self, record: &Skips) -> Result<(), StoreError> {
        write_json(&self.path, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_record_is_empty_and_a_resumed_one_goes_on_unless_the_file_is_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = SkipRecord::new(dir.path());
        let skips = Skips { times: 2, more: vec![(0, "a.wav".into()), (1, "a.wav".into())], ..Skips::default() };
        record.write(&skips).expect("written");
        let found = || {
            let record = SkipRecord::new(dir.path());
            let fresh = record.earlier.borrow().samples;
            record.resume();
            (fresh, record.earlier.take().samples)
        };
        assert_eq!(found(), (0, 2));
        std::fs::write(dir.path().join("bad_samples.json"), "{").expect("written");
        assert_eq!(found(), (0, 0));
    }
}
