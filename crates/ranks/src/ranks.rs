//! A rank's handle on the collectives of the run.

use crate::error::Peer;
use crate::sum::{Group, gather, reduce_scatter, sum};
use crate::transport::{BEAT, Missing};
use crate::{RankError, Transport};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limits on how long a rank waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time until a collective has completed.
    pub answer: Duration,
    /// Maximum time between two heartbeats of another process. Processes send them whatever they compute.
    pub heartbeat: Duration,
}

impl Default for Timeouts {
    /// 30 minutes for an answer, because some work takes some ranks longer than others, and 45 seconds between
    /// heartbeats.
    fn default() -> Self {
        Self { answer: Duration::from_secs(30 * 60), heartbeat: Duration::from_secs(45) }
    }
}

/// Handle of one rank, through which it calls collectives over all ranks.
///
/// One background thread runs the collectives one after the other, so that they proceed while the rank computes. All
/// ranks have to call the same collectives in the same order.
#[derive(Debug)]
pub struct Ranks {
    /// Index of this rank among `members`.
    rank: usize,
    /// Numbers of the members in the whole run.
    members: Arc<[usize]>,
    /// Host name of each rank of the whole run; empty where it has none.
    hosts: Arc<Vec<String>>,
    missing: Missing,
    broken: Broken,
    /// Nanoseconds spent on sums.
    on_the_way: Arc<AtomicU64>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Result of a collective that is still running.
#[derive(Debug)]
pub struct Pending<T> {
    found: Receiver<Result<T, RankError>>,
    rank: usize,
    hosts: Arc<Vec<String>>,
    missing: Missing,
    broken: Broken,
}

/// Delay of a wake-up from which on the process counts as stopped itself: it received nothing for that reason.
const STOPPED: Duration = Duration::from_secs(1);

/// Failure after which no collective can be called, because ranks that have missed one are out of step.
type Broken = Arc<Mutex<Option<RankError>>>;

/// A collective over some ranks.
struct Job {
    members: Arc<[usize]>,
    what: Question,
}

enum Question {
    Sum(Vec<f32>, Sender<Result<Vec<f32>, RankError>>),
    ReduceScatter(Vec<f32>, Vec<usize>, Sender<Result<Vec<f32>, RankError>>),
    Gather(Vec<u8>, Sender<Result<Vec<Vec<u8>>, RankError>>),
    /// Ends the thread.
    Nothing,
}

impl Ranks {
    /// Connects to all ranks through a transport, and waits until all are there. `make` runs in the thread that uses
    /// the transport.
    ///
    /// # Errors
    /// When `make` fails, or another rank does not come.
    pub fn over<T: Transport>(make: impl FnOnce() -> Result<T, RankError> + Send + 'static) -> Result<Self, RankError> {
        let (jobs, asked) = channel();
        let (ready, made) = channel();
        let missing = Missing::default();
        let noted = missing.clone();
        let on_the_way = Arc::new(AtomicU64::new(0));
        let counted = on_the_way.clone();
        let thread = std::thread::spawn(move || match make() {
            Ok(mut transport) => {
                // The caller may be gone by now; then nobody waits for this.
                let _ = ready.send(Ok((transport.rank(), transport.count(), transport.host())));
                work(&mut transport, &asked, &noted, &counted);
            }
            Err(error) => drop(ready.send(Err(error))),
        });
        let (rank, count, host) = made.recv().map_err(|_| RankError::Gone(0))??;
        let (hosts, broken) = (Arc::default(), Broken::default());
        let members = (0..count).collect();
        let mut ranks =
            Self { rank, members, hosts, missing, broken, on_the_way, jobs: Some(jobs), thread: Some(thread) };
        let hosts = ranks.all_gather(host.into_bytes())?.wait(Timeouts::default())?;
        ranks.hosts = Arc::new(hosts.iter().map(|host| String::from_utf8_lossy(host).into_owned()).collect());
        Ok(ranks)
    }

    /// Number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Returns a subgroup of the ranks, which has to contain this one. Collectives of the subgroup run over its members
    /// alone, and each of them has to call them. `members` are indices into this group.
    ///
    /// # Panics
    /// If this rank is not in `members`.
    pub fn group(&self, members: &[usize]) -> Self {
        let rank = members.iter().position(|member| *member == self.rank).expect("a group is one of its members'");
        Self {
            rank,
            members: members.iter().map(|member| self.members[*member]).collect(),
            hosts: self.hosts.clone(),
            missing: self.missing.clone(),
            broken: self.broken.clone(),
            on_the_way: self.on_the_way.clone(),
            jobs: self.jobs.clone(),
            thread: None,
        }
    }

    /// Returns the name of a rank for messages: its number in the whole run, and its host.
    pub fn name(&self, rank: usize) -> Peer {
        Peer::new(self.members[rank], &self.hosts)
    }

    /// Returns the time that sums took in the background thread since the last call, and resets it.
    pub fn time_on_the_way(&self) -> Duration {
        Duration::from_nanos(self.on_the_way.swap(0, Ordering::Relaxed))
    }

    /// Starts an all-reduce (sum), added up in rank order. Every rank gives the same number of values.
    ///
    /// # Errors
    /// When an earlier collective has failed, after which none can be called.
    pub fn all_reduce(&self, values: Vec<f32>) -> Result<Pending<Vec<f32>>, RankError> {
        self.ask(|reply| Question::Sum(values, reply))
    }

    /// Starts a reduce-scatter (sum), added up in rank order. Rank `i` receives the sums of the `i`-th part of the
    /// values; `lengths` are the lengths of the parts. Every rank gives the same lengths, one for each rank.
    ///
    /// # Errors
    /// When an earlier collective has failed, after which none can be called.
    ///
    /// # Panics
    /// If there is not one length for each rank, or they do not add up to the number of values.
    pub fn reduce_scatter(&self, values: Vec<f32>, lengths: Vec<usize>) -> Result<Pending<Vec<f32>>, RankError> {
        assert_eq!((lengths.len(), lengths.iter().sum()), (self.count(), values.len()), "a part for each rank");
        self.ask(|reply| Question::ReduceScatter(values, lengths, reply))
    }

    /// Starts an all-gather of bytes. The result has one entry for each rank, in rank order; lengths may differ.
    ///
    /// # Errors
    /// When an earlier collective has failed, after which none can be called.
    pub fn all_gather(&self, said: Vec<u8>) -> Result<Pending<Vec<Vec<u8>>>, RankError> {
        self.ask(|reply| Question::Gather(said, reply))
    }

    /// All-reduces (sums) a few numbers in rank order, and waits for the result.
    ///
    /// # Errors
    /// When a rank is gone, silent or out of step.
    pub fn all_reduce_sum(&self, values: &[f64], timeouts: Timeouts) -> Result<Vec<f64>, RankError> {
        let said: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let due = said.len();
        let mut totals = vec![0.0; values.len()];
        for (rank, received) in self.all_gather(said)?.wait(timeouts)?.into_iter().enumerate() {
            if received.len() != due {
                return Err(RankError::OutOfStep { rank: self.members[rank], found: received.len(), expected: due });
            }
            let received =
                received.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
            totals.iter_mut().zip(received).for_each(|(total, value)| *total += value);
        }
        Ok(totals)
    }

    fn ask<T>(&self, what: impl FnOnce(Sender<Result<T, RankError>>) -> Question) -> Result<Pending<T>, RankError> {
        if let Some(error) = locked(&self.broken).clone() {
            return Err(error);
        }
        let (reply, found) = channel();
        let jobs = self.jobs.as_ref().ok_or(RankError::Gone(self.members[self.rank]))?;
        let rank = self.members[self.rank];
        jobs.send(Job { members: self.members.clone(), what: what(reply) }).map_err(|_| RankError::Gone(rank))?;
        Ok(Pending {
            found,
            rank,
            hosts: self.hosts.clone(),
            missing: self.missing.clone(),
            broken: self.broken.clone(),
        })
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // A subgroup owns no thread; the others continue.
        let Some(thread) = self.thread.take() else { return };
        if let Some(jobs) = self.jobs.take() {
            let _ = jobs.send(Job { members: self.members.clone(), what: Question::Nothing });
        }
        // The thread is not joined if it waits for a silent rank, because it would never end, nor if this rank leaves
        // the others waiting: the thread ends with the process, and the launcher sees that.
        let whole = locked(&self.broken).is_none() && !std::thread::panicking();
        let leaves = whole && self.missing.ranks().is_empty();
        if leaves {
            let _ = thread.join();
        }
    }
}

impl<T> Pending<T> {
    /// Waits for the result, within `timeouts`.
    ///
    /// # Errors
    /// When a rank is gone, silent or out of step.
    pub fn wait(self, timeouts: Timeouts) -> Result<T, RankError> {
        let (mut waited, mut stopped) = (Duration::ZERO, Duration::ZERO);
        let found = loop {
            let asked = Instant::now();
            let pause = timeouts.answer.saturating_sub(waited).min(BEAT);
            match self.found.recv_timeout(pause) {
                Ok(found) => break found,
                Err(RecvTimeoutError::Disconnected) => break Err(RankError::Gone(self.rank)),
                Err(RecvTimeoutError::Timeout) => waited += pause,
            }
            if asked.elapsed() > pause + STOPPED {
                stopped += asked.elapsed();
                self.missing.begin_anew();
                continue;
            }
            let (silent, after) = match waited >= timeouts.answer {
                true => (self.missing.suspects(), timeouts.answer),
                false => (self.missing.lifeless(timeouts.heartbeat), timeouts.heartbeat),
            };
            if waited >= timeouts.answer || !silent.is_empty() {
                let rank = Peer::new(self.rank, &self.hosts);
                // The other ranks have not waited for this one either.
                let is_own_fault = stopped >= after;
                break Err(if is_own_fault {
                    RankError::Stopped { rank, stopped }
                } else {
                    self.silent(silent, after)
                });
            }
        };
        found.inspect_err(|error| *locked(&self.broken) = Some(error.clone()))
    }

    fn silent(&self, missing: Vec<usize>, after: Duration) -> RankError {
        let missing = missing.into_iter().map(|rank| Peer::new(rank, &self.hosts)).collect();
        RankError::Silent { rank: self.rank, missing, after }
    }
}

fn locked(broken: &Broken) -> MutexGuard<'_, Option<RankError>> {
    broken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the collectives until none can follow, or one fails. Sends heartbeats while there is none to run.
fn work(transport: &mut dyn Transport, asked: &Receiver<Job>, missing: &Missing, on_the_way: &AtomicU64) {
    let mut scratch = Vec::new();
    loop {
        let job = match asked.recv_timeout(BEAT) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) => {
                transport.beat(missing);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let began = Instant::now();
        let group = &mut Group { transport, members: &job.members };
        // The caller need not wait for the result.
        let adds = !matches!(job.what, Question::Gather(..));
        let whole = match job.what {
            Question::Sum(mut values, reply) => {
                answer(&reply, sum(group, &mut values, &mut scratch, missing).map(|()| values))
            }
            Question::ReduceScatter(mut values, lengths, reply) => {
                let own = reduce_scatter(group, &mut values, &lengths, &mut scratch, missing);
                answer(&reply, own.map(|own| values[own].to_vec()))
            }
            Question::Gather(said, reply) => answer(&reply, gather(group, &said, missing)),
            Question::Nothing => false,
        };
        if adds {
            on_the_way.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if !whole {
            break;
        }
    }
}

fn answer<T>(reply: &Sender<Result<T, RankError>>, found: Result<T, RankError>) -> bool {
    let whole = found.is_ok();
    let _ = reply.send(found);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;

    const LONG: Timeouts = Timeouts { answer: Duration::from_secs(60), heartbeat: Duration::from_secs(60) };

    /// Ranks over threads, each made in a thread of its own.
    fn ranks(count: usize) -> Vec<Ranks> {
        let made: Vec<_> = threads(count)
            .into_iter()
            .map(|transport| std::thread::spawn(|| Ranks::over(|| Ok(transport)).expect("a rank")))
            .collect();
        made.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    }

    #[test]
    fn what_is_asked_for_is_done_in_order_while_the_rank_goes_on() {
        let found: Vec<_> = ranks(3)
            .into_iter()
            .map(|ranks| {
                std::thread::spawn(move || {
                    let own = ranks.rank() as f32;
                    let sums: Vec<_> = (0..4).map(|k| ranks.all_reduce(vec![own, k as f32]).expect("asked")).collect();
                    let part = ranks.reduce_scatter(vec![own, 1.0, 2.0], vec![1, 0, 2]).expect("asked");
                    let totals = ranks.all_reduce_sum(&[f64::from(own), 0.5], LONG).expect("totals");
                    let sums: Vec<Vec<f32>> = sums.into_iter().map(|sum| sum.wait(LONG).expect("a sum")).collect();
                    (sums, part.wait(LONG).expect("a part"), totals)
                })
            })
            .collect();
        let parts = [vec![3.0], vec![], vec![3.0, 6.0]];
        for (rank, wanted) in found.into_iter().zip(parts) {
            let (sums, part, totals) = rank.join().expect("no panic");
            assert_eq!(sums, [[3.0, 0.0], [3.0, 3.0], [3.0, 6.0], [3.0, 9.0]]);
            assert_eq!((part, totals), (wanted, vec![3.0, 1.5]));
        }
    }

    #[test]
    fn groups_are_asked_by_themselves() {
        let found: Vec<_> = ranks(5)
            .into_iter()
            .map(|ranks| {
                std::thread::spawn(move || {
                    let own = ranks.rank();
                    let members: &[usize] = if own < 2 { &[0, 1] } else { &[2, 3, 4] };
                    let group = ranks.group(members);
                    let sums: Vec<_> =
                        (0..3).map(|k| group.all_reduce(vec![own as f32, k as f32]).expect("asked")).collect();
                    let sums: Vec<_> = sums.into_iter().map(|sum| sum.wait(LONG).expect("a sum")).collect();
                    let place = (group.rank(), group.count(), group.name(0).rank);
                    drop(group);
                    (sums, place, ranks.all_reduce_sum(&[own as f64], LONG).expect("totals"))
                })
            })
            .collect();
        for (rank, found) in found.into_iter().enumerate() {
            let (sums, place, totals) = found.join().expect("no panic");
            let (sum, count, first) = if rank < 2 { (1.0, 2, 0) } else { (9.0, 3, 2) };
            assert_eq!(sums, [0.0, 1.0, 2.0].map(|k| [sum, k * count as f32]));
            assert_eq!((place, totals), ((rank - first, count, first), vec![10.0]));
        }
    }

    #[test]
    fn silence_is_told_with_the_rank_it_is_of() {
        let after = Duration::from_millis(200);
        let timeouts = Timeouts { answer: after, ..LONG };
        let mut all = ranks(3);
        let silent = all.pop();
        let found: Vec<_> = all
            .into_iter()
            .map(|ranks| {
                std::thread::spawn(move || {
                    let first = ranks.all_reduce_sum(&[1.0], timeouts);
                    // The second call fails at once.
                    let began = Instant::now();
                    assert_eq!(ranks.all_reduce_sum(&[1.0], timeouts), first);
                    assert!(began.elapsed() < Duration::from_millis(100));
                    first
                })
            })
            .collect();
        for (rank, found) in found.into_iter().enumerate() {
            let wanted = RankError::Silent { rank, missing: vec![Peer::new(2, &[])], after };
            assert_eq!(found.join().expect("no panic"), Err(wanted));
        }
        drop(silent);
    }

    #[test]
    fn after_a_failure_nothing_more_can_be_asked() {
        let mut both = ranks(2);
        drop(both.pop());
        let first = both.pop().expect("rank 0");
        assert_eq!(first.all_reduce_sum(&[1.0], LONG), Err(RankError::Gone(1)));
        assert!(first.all_reduce_sum(&[1.0], LONG).is_err());
    }

    #[test]
    fn without_a_transport_there_are_no_ranks() {
        let none = Ranks::over(|| Err::<crate::Threads, _>(RankError::Mpi("not there".into())));
        assert!(matches!(none, Err(RankError::Mpi(_))));
    }
}
