//! What carries bytes between ranks.

use crate::RankError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

    /// Gives the others a sign of life, and notes theirs. It is called every [`BEAT`] while nothing is exchanged; within an
    /// exchange the transport does so itself. Nothing by default: threads of a process live and die together.
    fn beat(&mut self, _missing: &Missing) {}

    /// Swaps parcels with other ranks, one with each, which call it too. It waits for as long as it takes, and notes of whom it
    /// has signs.
    ///
    /// # Errors
    /// When another rank is gone or sends another length.
    fn exchange(&mut self, parcels: &mut [Parcel<'_>], missing: &Missing) -> Result<(), RankError>;
}

/// What goes to another rank, and what comes from it in return.
#[derive(Debug)]
pub struct Parcel<'a> {
    /// The other rank.
    pub rank: usize,
    /// What is sent there.
    pub sent: &'a [u8],
    /// Filled with what is sent here; it is as long as that.
    pub received: &'a mut [u8],
}

/// How often ranks give a sign of life.
pub const BEAT: Duration = Duration::from_secs(2);

/// The ranks of which nothing has been heard yet in the exchange that goes on, and when each gave its last sign of life.
#[derive(Clone, Debug, Default)]
pub struct Missing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    missing: Vec<usize>,
    /// Of the ranks that ever gave one.
    heartbeats: BTreeMap<usize, Instant>,
}

impl Missing {
    /// A rank has sent what is due.
    pub fn received(&self, rank: usize) {
        let mut state = self.locked();
        state.missing.retain(|missing| *missing != rank);
        state.heartbeats.entry(rank).and_modify(|sign| *sign = Instant::now());
    }

    /// A rank has given a sign of life.
    pub fn beat(&self, rank: usize) {
        self.locked().heartbeats.insert(rank, Instant::now());
    }

    /// Those of the missing ranks that gave signs of life, and have given none for so long.
    pub(crate) fn lifeless(&self, silence: Duration) -> Vec<usize> {
        let state = self.locked();
        let is_lifeless = |rank: &usize| state.heartbeats.get(rank).is_some_and(|sign| sign.elapsed() > silence);
        state.missing.iter().copied().filter(is_lifeless).collect()
    }

    /// The missing ranks that give no signs of life any more, or else all of them: one that does may itself wait for another.
    pub(crate) fn suspects(&self) -> Vec<usize> {
        let lifeless = self.lifeless(BEAT + BEAT / 4);
        if lifeless.is_empty() { self.ranks() } else { lifeless }
    }

    /// Takes all that ever gave a sign of life to have given one now.
    pub(crate) fn begin_anew(&self) {
        self.locked().heartbeats.values_mut().for_each(|sign| *sign = Instant::now());
    }

    pub(crate) fn expect(&self, ranks: impl Iterator<Item = usize>) {
        self.locked().missing = ranks.collect();
    }

    pub(crate) fn ranks(&self) -> Vec<usize> {
        self.locked().missing.clone()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_no_sign_of_life_is_suspected_before_who_may_wait_for_it() {
        let missing = Missing::default();
        missing.expect([1, 2].into_iter());
        assert_eq!(missing.suspects(), [1, 2], "neither ever gave one");
        let long_ago = Instant::now().checked_sub(2 * BEAT).expect("a clock that has run for a while");
        missing.locked().heartbeats.extend([(1, long_ago), (2, Instant::now())]);
        assert_eq!((missing.suspects(), missing.lifeless(BEAT)), (vec![1], vec![1]));
        missing.begin_anew();
        assert_eq!(missing.suspects(), [1, 2]);
    }
}
