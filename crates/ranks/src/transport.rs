//! What carries bytes between ranks.

use crate::RankError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What carries bytes between the ranks of a run. It lives in the thread that it was made in.
pub trait Transport {
    /// Which one this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// What the machine is called that it is on; nothing where all are in one process.
    fn host(&self) -> String {
        String::new()
    }

    /// Sends `sent[i]` to rank `i`, and fills `received[i]` with what rank `i` sends here. Every rank calls it, with lengths that
    /// fit; what is sent to itself is left to the caller, and both places for it are empty. It waits for as long as it takes,
    /// and notes of whom it has heard.
    ///
    /// # Errors
    /// When another rank is gone or sends another length.
    fn exchange(&mut self, sent: &[&[u8]], received: &mut [&mut [u8]], missing: &Missing) -> Result<(), RankError>;
}

/// The ranks of which nothing has been heard yet in the exchange that goes on.
#[derive(Clone, Debug, Default)]
pub struct Missing(Arc<Mutex<Vec<usize>>>);

impl Missing {
    /// A rank has sent what is due.
    pub fn heard(&self, rank: usize) {
        self.locked().retain(|missing| *missing != rank);
    }

    pub(crate) fn expect(&self, ranks: impl Iterator<Item = usize>) {
        *self.locked() = ranks.collect();
    }

    pub(crate) fn ranks(&self) -> Vec<usize> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
