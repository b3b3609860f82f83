//! One rank's view of all of them.

use crate::sum::{gather, sum};
use crate::transport::Missing;
use crate::{RankError, Transport};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the others may say nothing, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(45);

/// One rank of a run, and what it asks of all of them.
///
/// Everything goes through a thread of its own, one after the other, so that what is asked for is done while the rank
/// computes. All ranks have to ask for the same things in the same order.
#[derive(Debug)]
pub struct Ranks {
    rank: usize,
    count: usize,
    patience: Duration,
    missing: Missing,
    broken: Broken,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// What is being found out.
#[derive(Debug)]
pub struct Pending<T> {
    found: Receiver<Result<T, RankError>>,
    rank: usize,
    patience: Duration,
    missing: Missing,
    broken: Broken,
}

/// Why nothing more can be asked, once something has failed: ranks that have missed something are out of step.
type Broken = Arc<Mutex<Option<RankError>>>;

enum Job {
    Sum(Vec<f32>, Sender<Result<Vec<f32>, RankError>>),
    Gather(Vec<u8>, Sender<Result<Vec<Vec<u8>>, RankError>>),
}

impl Ranks {
    /// The ranks of a transport, which is made in the thread that uses it.
    ///
    /// # Errors
    /// When there is no transport.
    pub fn over<T: Transport>(make: impl FnOnce() -> Result<T, RankError> + Send + 'static) -> Result<Self, RankError> {
        Self::with_patience(PATIENCE, make)
    }

    /// [`Ranks::over`] a transport, where the others may say nothing for `patience`.
    ///
    /// # Errors
    /// When there is no transport.
    pub fn with_patience<T: Transport>(
        patience: Duration,
        make: impl FnOnce() -> Result<T, RankError> + Send + 'static,
    ) -> Result<Self, RankError> {
        let (jobs, asked) = channel();
        let (ready, made) = channel();
        let missing = Missing::default();
        let noted = missing.clone();
        let thread = std::thread::spawn(move || match make() {
            Ok(mut transport) => {
                // Whoever asks may have gone by now, and then nobody waits.
                let _ = ready.send(Ok((transport.rank(), transport.count())));
                work(&mut transport, &asked, &noted);
            }
            Err(error) => drop(ready.send(Err(error))),
        });
        let (rank, count) = made.recv().map_err(|_| RankError::Gone(0))??;
        Ok(Self { rank, count, patience, missing, broken: Broken::default(), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Which one this is, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Begins to add up numbers over all ranks, in the order of ranks. Every rank gives as many.
    ///
    /// # Errors
    /// When an earlier request has failed so that nothing more can be asked.
    pub fn sum(&self, values: Vec<f32>) -> Result<Pending<Vec<f32>>, RankError> {
        self.ask(|reply| Job::Sum(values, reply))
    }

    /// Begins to gather what each rank says, in the order of ranks.
    ///
    /// # Errors
    /// When an earlier request has failed so that nothing more can be asked.
    pub fn gather(&self, said: Vec<u8>) -> Result<Pending<Vec<Vec<u8>>>, RankError> {
        self.ask(|reply| Job::Gather(said, reply))
    }

    /// The sums of a few numbers over all ranks, in the order of ranks.
    ///
    /// # Errors
    /// When a rank is gone, silent, or asks for something else.
    pub fn totals(&self, values: &[f64]) -> Result<Vec<f64>, RankError> {
        let said: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let due = said.len();
        let mut totals = vec![0.0; values.len()];
        for (rank, heard) in self.gather(said)?.wait()?.into_iter().enumerate() {
            if heard.len() != due {
                return Err(RankError::OutOfStep { rank, found: heard.len(), expected: due });
            }
            let heard = heard.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
            totals.iter_mut().zip(heard).for_each(|(total, value)| *total += value);
        }
        Ok(totals)
    }

    fn ask<T>(&self, job: impl FnOnce(Sender<Result<T, RankError>>) -> Job) -> Result<Pending<T>, RankError> {
        if let Some(error) = locked(&self.broken).clone() {
            return Err(error);
        }
        let (reply, found) = channel();
        let jobs = self.jobs.as_ref().ok_or(RankError::Gone(self.rank))?;
        jobs.send(job(reply)).map_err(|_| RankError::Gone(self.rank))?;
        Ok(Pending {
            found,
            rank: self.rank,
            patience: self.patience,
            missing: self.missing.clone(),
            broken: self.broken.clone(),
        })
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.jobs = None;
        // A thread that waits for a rank that is silent would never end.
        if let Some(thread) = self.thread.take().filter(|_| self.missing.ranks().is_empty()) {
            let _ = thread.join();
        }
    }
}

impl<T> Pending<T> {
    /// What was found, once it is there.
    ///
    /// # Errors
    /// When a rank is gone, silent, or asks for something else.
    pub fn wait(self) -> Result<T, RankError> {
        let found = match self.found.recv_timeout(self.patience) {
            Ok(found) => found,
            Err(RecvTimeoutError::Disconnected) => Err(RankError::Gone(self.rank)),
            Err(RecvTimeoutError::Timeout) => {
                Err(RankError::Silent { rank: self.rank, missing: self.missing.ranks(), after: self.patience })
            }
        };
        found.inspect_err(|error| *locked(&self.broken) = Some(error.clone()))
    }
}

fn locked(broken: &Broken) -> MutexGuard<'_, Option<RankError>> {
    broken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what is asked for until nobody asks any more, or something fails.
fn work(transport: &mut dyn Transport, asked: &Receiver<Job>, missing: &Missing) {
    for job in asked {
        let whole = match job {
            Job::Sum(mut values, reply) => {
                let found = sum(transport, &mut values, missing).map(|()| values);
                let whole = found.is_ok();
                // Whoever asked need not wait for it.
                let _ = reply.send(found);
                whole
            }
            Job::Gather(said, reply) => {
                let found = gather(transport, &said, missing);
                let whole = found.is_ok();
                let _ = reply.send(found);
                whole
            }
        };
        if !whole {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;
    use std::time::Instant;

    #[test]
    fn what_is_asked_for_is_done_in_order_while_the_rank_goes_on() {
        let ranks: Vec<_> = threads(3)
            .into_iter()
            .map(|transport| {
                std::thread::spawn(move || {
                    let ranks = Ranks::over(|| Ok(transport)).expect("a rank");
                    let own = ranks.rank() as f32;
                    let sums: Vec<_> = (0..4).map(|k| ranks.sum(vec![own, k as f32]).expect("asked")).collect();
                    let totals = ranks.totals(&[f64::from(own), 0.5]).expect("totals");
                    let sums: Vec<Vec<f32>> = sums.into_iter().map(|sum| sum.wait().expect("a sum")).collect();
                    (sums, totals, ranks.count())
                })
            })
            .collect();
        for rank in ranks {
            let (sums, totals, count) = rank.join().expect("no panic");
            assert_eq!(sums, [[3.0, 0.0], [3.0, 3.0], [3.0, 6.0], [3.0, 9.0]]);
            assert_eq!((totals, count), (vec![3.0, 1.5], 3));
        }
    }

    #[test]
    fn silence_is_told_with_the_rank_it_is_of() {
        let mut all = threads(3);
        let silent = all.pop();
        let found: Vec<_> = all
            .into_iter()
            .map(|transport| {
                std::thread::spawn(move || {
                    let ranks = Ranks::with_patience(Duration::from_millis(200), || Ok(transport)).expect("a rank");
                    let first = ranks.totals(&[1.0]);
                    // Nobody waits twice.
                    let began = Instant::now();
                    assert_eq!(ranks.totals(&[1.0]), first);
                    assert!(began.elapsed() < Duration::from_millis(100));
                    first
                })
            })
            .collect();
        for (rank, found) in found.into_iter().enumerate() {
            let wanted = RankError::Silent { rank, missing: vec![2], after: Duration::from_millis(200) };
            assert_eq!(found.join().expect("no panic"), Err(wanted));
        }
        drop(silent);
    }

    #[test]
    fn after_a_failure_nothing_more_can_be_asked() {
        let mut both = threads(2);
        drop(both.pop());
        let first = both.pop().expect("rank 0");
        let ranks = Ranks::over(|| Ok(first)).expect("a rank");
        assert_eq!(ranks.totals(&[1.0]), Err(RankError::Gone(1)));
        assert!(ranks.totals(&[1.0]).is_err());
    }

    #[test]
    fn without_a_transport_there_are_no_ranks() {
        let none = Ranks::over(|| Err::<crate::Threads, _>(RankError::Mpi("not there".into())));
        assert!(matches!(none, Err(RankError::Mpi(_))));
    }
}
