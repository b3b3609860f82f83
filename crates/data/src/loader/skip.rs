//! What is known of samples that were left out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LoaderError;

/// How many samples left out are listed, each with its reason.
const LISTED: usize = 100;
/// How many of them an error names.
const NAMED: usize = 3;
/// Samples seen before the share of bad ones is taken of those seen: three bad ones of the first ten are no rate.
const ENOUGH: usize = 1000;

/// A sample that was left out because it could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its index in the dataset.
    pub index: usize,
    /// What the dataset calls it.
    pub name: String,
    /// The epoch it was first left out of.
    pub epoch: u64,
    /// Why it could not be loaded.
    pub reason: String,
}

/// The samples that a [`Loader`](super::Loader) has left out of the batches it delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skips {
    /// How many different samples.
    pub samples: usize,
    /// How many times: a sample is tried again in each epoch, and every reading of an epoch counts.
    pub times: u64,
    /// The first hundred samples, in the order in which they were missed.
    pub first: Vec<Skipped>,
    /// The others' indices and names, in the same order.
    pub more: Vec<(usize, String)>,
}

/// All that a loader has left out so far.
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
            self.skips.samples += 1;
            if self.skips.first.len() < LISTED {
                self.skips.first.push(skipped);
            } else {
                self.skips.more.push((skipped.index, skipped.name));
            }
        }
    }
}

/// Counts in the order of delivery what one reading of an epoch leaves out, so that the same batch goes over the share
/// for any number of workers.
pub(super) struct Tally {
    ledger: Arc<Mutex<Ledger>>,
    epoch: u64,
    /// Samples in the epoch.
    samples: usize,
    /// The share of them that may be left out.
    share: f64,
    skipped: usize,
    first: Vec<String>,
}

impl Tally {
    pub fn new(ledger: Arc<Mutex<Ledger>>, epoch: u64, samples: usize, share: f64) -> Self {
        Self { ledger, epoch, samples, share, skipped: 0, first: Vec::new() }
    }

    /// Notes what a batch has lost, when it and those before it together have `seen` samples.
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

    /// The error for an epoch of which nothing is left; none where nothing was left out either.
    pub fn nothing_readable(&self) -> Option<LoaderError> {
        let Self { samples, epoch, .. } = *self;
        (self.skipped > 0).then(|| LoaderError::NothingReadable { samples, epoch, first: self.named() })
    }

    /// The first few that were left out, and how many more there are.
    fn named(&self) -> String {
        let more = self.skipped - self.first.len();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.first.join(", ") + &rest
    }
}

/// The value, even if a thread panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
