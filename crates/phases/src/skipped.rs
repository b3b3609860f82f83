//! Record of skipped samples in the run's directory.

use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use undertone_data::loader::{Collate, Dataset, Loader, LoaderError, Skipped, Skips};
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
    earlier: RefCell<Record>,
    /// Number of this session's skipped samples, and of times they were skipped, when the file was last written.
    written: Cell<(usize, u64)>,
}

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Record {
    samples: usize,
    times: u64,
    first: Vec<Entry>,
    /// Further samples, by index and name.
    #[serde(default)]
    more: Vec<(usize, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// Index among all samples, from 0, because names need not be unique.
    index: usize,
    name: String,
    reason: String,
}

/// Maximum number of samples that the file lists with reasons, as in a loader.
const LISTED: usize = 100;

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
        let all = process_group.all_gather(Record::default().with(&skips))?;
        if !process_group.is_main_process() {
            return Ok(None);
        }
        let others = all.into_iter().skip(1).filter(|other| other.times > 0);
        let mut changed = (skips.samples, skips.times) != self.written.get();
        for other in others {
            record = record.with(&other.into_skips());
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

    fn write_record(&self, record: &Record) -> Result<(), StoreError> {
        write_json(&self.path, record)
    }
}

impl Record {
    /// Converts the record to the form of a session.
    fn into_skips(self) -> Skips {
        let skipped = |Entry { index, name, reason }| Skipped { index, name, epoch: 0, reason };
        let first = self.first.into_iter().map(skipped).collect();
        Skips { samples: self.samples, times: self.times, first, more: self.more }
    }

    /// Returns the record with the skipped samples of another session added.
    fn with(&self, session: &Skips) -> Self {
        let listed = self.first.iter().map(|entry| entry.index);
        let known: HashSet<usize> = listed.chain(self.more.iter().map(|(index, _)| *index)).collect();
        let mut whole = self.clone();
        whole.times += session.times;
        for skipped in session.first.iter().filter(|skipped| !known.contains(&skipped.index)) {
            whole.samples += 1;
            let (index, name) = (skipped.index, skipped.name.clone());
            if whole.first.len() < LISTED {
                whole.first.push(Entry { index, name, reason: skipped.reason.clone() });
            } else {
                whole.more.push((index, name));
            }
        }
        for (index, name) in session.more.iter().filter(|(index, _)| !known.contains(index)) {
            whole.samples += 1;
            whole.more.push((*index, name.clone()));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a session that skipped the samples with these indices, once each.
    fn session(numbers: std::ops::Range<usize>) -> Skips {
        // Recordings in different folders may have the same name.
        let name = |index: usize| format!("{}.wav", index / 2);
        let listed = numbers.start..numbers.end.min(numbers.start + LISTED);
        let skipped = |index| Skipped { index, name: name(index), epoch: 0, reason: "no audio".into() };
        Skips {
            samples: numbers.len(),
            times: numbers.len() as u64,
            more: (listed.end..numbers.end).map(|index| (index, name(index))).collect(),
            first: listed.map(skipped).collect(),
        }
    }

    #[test]
    fn sessions_add_up_and_no_sample_counts_twice_however_many_there_are() {
        for (first, second, union) in [(0..3, 2..5, 5), (0..80, 40..160, 160), (0..250, 100..300, 300), (0..0, 0..1, 1)]
        {
            let times = (first.len() + second.len()) as u64;
            let record = Record::default().with(&session(first)).with(&session(second));
            assert_eq!((record.samples, record.times), (union, times));
            assert_eq!(record.first.len(), union.min(LISTED));
            let listed = record.first.iter().map(|entry| entry.index);
            let numbers: HashSet<usize> = listed.chain(record.more.iter().map(|(index, _)| *index)).collect();
            assert_eq!((numbers.len(), record.first.len() + record.more.len()), (union, union), "each is listed once");
        }
    }

    #[test]
    fn what_another_rank_left_out_is_added_as_a_session_is() {
        for count in [3, 150] {
            let own = Record::default().with(&session(500..502));
            let other = Record::default().with(&session(0..count));
            let told: Record = serde_json::from_str(&serde_json::to_string(&other).expect("JSON")).expect("a record");
            assert_eq!(own.with(&told.into_skips()), own.with(&session(0..count)));
        }
    }

    #[test]
    fn a_new_record_is_empty_and_a_resumed_one_goes_on_unless_the_file_is_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = SkipRecord::new(dir.path());
        record.write(&session(0..2)).expect("written");
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
