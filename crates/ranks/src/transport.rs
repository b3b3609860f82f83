//! Interface of transports between ranks.

use crate::RankError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Carries bytes between the ranks of a run. It stays in the thread that made it.
pub trait Transport {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn count(&self) -> usize;

    /// Host name of this rank's machine; empty where all ranks are in one process.
    fn host(&self) -> String {
        String::new()
    }

    /// Sends heartbeats to the other ranks, and records theirs. It is called every [`BEAT`] while no exchange runs; an
    /// exchange does it itself. The default does nothing, because threads of a process live and die together.
    fn beat(&mut self, _missing: &Missing) {}

    /// Exchanges one parcel with each of some other ranks, which call it too. Blocks until all parcels have been sent
    /// and received, and records in `missing` from which ranks data or heartbeats came.
    ///
    /// # Errors
    /// When another rank is gone or sends another length.
    fn exchange(&mut self, parcels: &mut [Parcel<'_>], missing: &Missing) -> Result<(), RankError>;
}

/// Data to send to another rank, and a buffer for what it sends in return.
#[derive(Debug)]
pub struct Parcel<'a> {
    /// Number of the other rank.
    pub rank: usize,
    /// Bytes to send.
    pub sent: &'a [u8],
    /// Buffer for the bytes to receive, as long as they are.
    pub received: &'a mut [u8],
}

/// Interval between heartbeats.
pub const BEAT: Duration = Duration::from_secs(2);

/// Ranks from which nothing has come yet in the current exchange, and the time of each rank's last heartbeat.
#[derive(Clone, Debug, Default)]
pub struct Missing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    missing: Vec<usize>,
    /// Time of the last heartbeat, for ranks that ever sent one.
    heartbeats: BTreeMap<usize, Instant>,
}

impl Missing {
    /// Records that a rank's data have arrived.
    pub fn received(&self, rank: usize) {
        let mut state = self.locked();
        state.missing.retain(|missing| *missing != rank);
        state.heartbeats.entry(rank).and_modify(|sign| *sign = Instant::now());
    }

    /// Records a heartbeat.
    pub fn beat(&self, rank: usize) {
        self.locked().heartbeats.insert(rank, Instant::now());
    }

    /// Returns the missing ranks that once sent heartbeats, but none for longer than `silence`.
    pub(crate) fn lifeless(&self, silence: Duration) -> Vec<usize> {
        let state = self.locked();
        let is_lifeless = |rank: &usize| state.heartbeats.get(rank).is_some_and(|sign| sign.elapsed() > silence);
        state.missing.iter().copied().filter(is_lifeless).collect()
    }

    /// Returns the missing ranks without current heartbeats, or else all missing ranks: one with heartbeats may itself
    /// wait for another.
    pub(crate) fn suspects(&self) -> Vec<usize> {
        let lifeless = self.lifeless(BEAT + BEAT / 4);
        if lifeless.is_empty() { self.ranks() } else { lifeless }
    }

    /// Sets the last heartbeat of every rank that ever sent one to now.
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
