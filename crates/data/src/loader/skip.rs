//! Record of the samples that were left out.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LoaderError;

/// Number of skipped samples that are listed with their reason.
const LISTED: usize = 100;
/// Number of them that an error names.
const NAMED: usize = 3;
/// Number of samples from which on the share of bad samples is relative to those seen: three bad samples among the
/// first ten are no reliable rate.
const ENOUGH: usize = 1000;

/// A sample that was left out because it could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Index of the sample in the dataset, because names need not be unique.
    pub index: usize,
    /// Name of the sample in the dataset.
    pub name: String,
    /// Epoch in which it was first left out. It is not written to files.
    #[serde(skip)]
    pub epoch: u64,
    /// Reason why it could not be loaded.
    pub reason: String,
}

/// Samples that a [`Loader`](super::Loader) has left out of the batches it delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skips {
    /// Number of different samples.
    pub samples: usize,
    /// Number of times that samples were left out: each epoch tries a sample again, and every reading of an epoch
    /// counts.
    pub times: u64,
    /// The first hundred samples, in the order in which they were left out.
    pub first: Vec<Skipped>,
    /// Indices and names of the others, in the same order.
    #[serde(default)]
    pub more: Vec<(usize, String)>,
}

impl Skips {
    /// Returns these with those of a later session, or of another process, added. A sample that both left out is
    /// identified by its index and counts once in `samples`.
    pub fn with(&self, later: &Self) -> Self {
        let listed = self.first.iter().map(|skipped| skipped.index);
        let known: HashSet<usize> = listed.chain(self.more.iter().map(|(index, _)| *index)).collect();
        let mut whole = self.clone();
        whole.times += later.times;
        for skipped in later.first.iter().filter(|skipped| !known.contains(&skipped.index)) {
            whole.add(skipped.clone());
        }
        for (index, name) in later.more.iter().filter(|(index, _)| !known.contains(index)) {
            whole.samples += 1;
            whole.more.push((*index, name.clone()));
        }
        whole
    }

    /// Adds a sample that was not left out before.
    fn add(&mut self, skipped: Skipped) {
        self.samples += 1;
        if self.first.len() < LISTED {
            self.first.push(skipped);
        } else {
            self.more.push((skipped.index, skipped.name));
        }
    }
}

/// Record of all samples that a loader has left out so far.
#[derive(Default)]
pub(super) struct Ledger {
    indices: HashSet<usize>,
    skips: Skips,
}

impl Ledger {
    pub fn samples(&self) -> usize {
        self.skips.samples
    }

    pub fn skips(&self) -> Skips {
        self.skips.clone()
    }

    fn note(&mut self, skipped: Skipped) {
        self.skips.times += 1;
        if self.indices.insert(skipped.index) {
            self.skips.add(skipped);
        }
    }
}

/// Counts the samples left out in one reading of an epoch, in the order of delivery, so that the same batch exceeds the
/// share for any number of workers.
pub(super) struct Tally {
    ledger: Arc<Mutex<Ledger>>,
    epoch: u64,
    /// Number of samples in the epoch.
    samples: usize,
    /// Maximum share of them that may be left out.
    share: f64,
    skipped: usize,
    first: Vec<String>,
}

impl Tally {
    pub fn new(ledger: Arc<Mutex<Ledger>>, epoch: u64, samples: usize, share: f64) -> Self {
        Self { ledger, epoch, samples, share, skipped: 0, first: Vec::new() }
    }

    /// Records the samples that a batch has lost, when it and the batches before it together have `seen` samples.
    pub fn count(&mut self, seen: usize, skipped: Vec<Skipped>) -> Result<(), LoaderError> {
        if skipped.is_empty() {
            return Ok(());
        }
        let mut ledger = lock(&self.ledger);
        for sample in skipped {
            self.skipped += 1;
            if self.first.len() < NAMED {
                self.first.push(format!("`{}` ({})", sample.name, sample.reason));
            }
            ledger.note(sample);
        }
        let counted = seen.max(ENOUGH.min(self.samples));
        if self.skipped as f64 <= self.share * counted as f64 {
            return Ok(());
        }
        Err(LoaderError::TooManyBad {
            skipped: self.skipped,
            seen,
            samples: self.samples,
            epoch: self.epoch,
            share: self.share,
            first: self.named(),
        })
    }

    /// Returns the error for an epoch without a readable sample; none if nothing was left out.
    pub fn nothing_readable(&self) -> Option<LoaderError> {
        let Self { samples, epoch, .. } = *self;
        (self.skipped > 0).then(|| LoaderError::NothingReadable { samples, epoch, first: self.named() })
    }

    /// Returns the first few samples that were left out, and the number of the others.
    fn named(&self) -> String {
        let more = self.skipped - self.first.len();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.first.join(", ") + &rest
    }
}

/// Returns the value, even if a thread panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            let skips = Skips::default().with(&session(first)).with(&session(second));
            assert_eq!((skips.samples, skips.times), (union, times));
            assert_eq!(skips.first.len(), union.min(LISTED));
            let listed = skips.first.iter().map(|skipped| skipped.index);
            let numbers: HashSet<usize> = listed.chain(skips.more.iter().map(|(index, _)| *index)).collect();
            assert_eq!((numbers.len(), skips.first.len() + skips.more.len()), (union, union), "each is listed once");
        }
    }

    #[test]
    fn what_another_rank_left_out_is_added_as_a_session_is() {
        for count in [3, 150] {
            let own = Skips::default().with(&session(500..502));
            let other = Skips::default().with(&session(0..count));
            let told: Skips = serde_json::from_str(&serde_json::to_string(&other).expect("JSON")).expect("skips");
            assert_eq!(own.with(&told), own.with(&session(0..count)));
        }
    }
}
