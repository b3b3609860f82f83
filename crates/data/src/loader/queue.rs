//! State shared by the workers and the training loop: the next batch to make, and the finished batches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::LoaderError;
use super::plan::Plan;
use super::skip::Skipped;

/// The work of all open epochs. No code of a dataset or a collator ever runs under its lock.
pub(super) struct Queue<B> {
    prefetch_batches: usize,
    prefetch_bytes: usize,
    state: Mutex<State<B>>,
    /// Workers wait here for a batch that they may make.
    work: Condvar,
    /// The training loop waits here for its next batch.
    done: Condvar,
    /// `stop` waits here for the workers to leave.
    left: Condvar,
}

/// Whether the caller no longer wants to wait for a batch.
pub(super) type GivenUp = dyn Fn() -> bool + Send + Sync;

/// Interval of a wait after which `given_up` is called again.
const SLICE: Duration = Duration::from_millis(100);

/// One batch to make.
pub(super) struct Job {
    pub batch: usize,
    pub plan: Arc<Plan>,
    run: u64,
    cancelled: Arc<AtomicBool>,
}

impl Job {
    /// Whether the batch is no longer needed.
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Result of a [`Job`].
pub(super) struct Made<B> {
    /// The batch, or nothing if all of its samples were left out.
    pub batch: Result<Option<B>, LoaderError>,
    /// Bytes that the batch holds.
    pub bytes: usize,
    /// The samples that were left out.
    pub skipped: Vec<Skipped>,
}

struct State<B> {
    runs: Vec<Run<B>>,
    next_run: u64,
    /// Bytes of the largest batch so far, the estimate for batches in work; none before the first batch is known.
    largest: Option<usize>,
    stopped: bool,
    workers: usize,
}

/// One open epoch.
struct Run<B> {
    id: u64,
    plan: Arc<Plan>,
    cancelled: Arc<AtomicBool>,
    /// Batches to make, in their order.
    numbers: Arc<[usize]>,
    /// Number of batches that the training loop has received.
    delivered: usize,
    /// Number of batches that workers have begun.
    claimed: usize,
    ready: BTreeMap<usize, Made<B>>,
    ready_bytes: usize,
}

impl<B> Queue<B> {
    pub fn new(prefetch_batches: usize, prefetch_bytes: usize) -> Self {
        let state = State { runs: Vec::new(), next_run: 0, largest: None, stopped: false, workers: 0 };
        Self {
            prefetch_batches,
            prefetch_bytes,
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            left: Condvar::new(),
        }
    }

    /// Begins an epoch of which these batches are made, and returns its key.
    pub fn open(&self, plan: Arc<Plan>, numbers: Arc<[usize]>) -> u64 {
        let mut state = self.lock();
        let id = state.next_run;
        state.next_run += 1;
        state.runs.push(Run {
            id,
            plan,
            cancelled: Arc::new(AtomicBool::new(false)),
            numbers,
            delivered: 0,
            claimed: 0,
            ready: BTreeMap::new(),
            ready_bytes: 0,
        });
        self.work.notify_all();
        id
    }

    /// Waits for the next batch of an open epoch. Returns `None` if it is not ready and `given_up` returns true, which
    /// is called every [`SLICE`]. The caller must not ask for more batches than the epoch has.
    pub fn take(&self, run: u64, given_up: Option<&GivenUp>) -> Option<Made<B>> {
        let mut state = self.lock();
        loop {
            let run = state.run(run).expect("an epoch stays open as long as it is read");
            if let Some(made) = run.numbers.get(run.delivered).and_then(|number| run.ready.remove(number)) {
                run.delivered += 1;
                run.ready_bytes -= made.bytes;
                drop(state);
                // Wakes one worker only: more would take cores from the training loop only to find that there is
                // nothing to do.
                self.work.notify_one();
                return Some(made);
            }
            state = match given_up {
                None => wait(&self.done, state),
                Some(given_up) if given_up() => return None,
                Some(_) => self.done.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Ends an epoch, whether or not it was read to its end.
    pub fn close(&self, run: u64) {
        let mut state = self.lock();
        let found = state.runs.iter().position(|candidate| candidate.id == run);
        let closed = found.map(|index| state.runs.remove(index));
        drop(state);
        // Its batches are freed here, outside the lock.
        if let Some(run) = closed {
            run.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a worker that begins, until `leave`.
    pub fn enter(&self) {
        self.lock().workers += 1;
    }

    /// Counts a worker that ends.
    pub fn leave(&self) {
        self.lock().workers -= 1;
        self.left.notify_all();
    }

    /// Waits for a batch that may be made; returns `None` once the loader stops.
    pub fn claim(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let largest = state.largest;
            if let Some(run) = state.runs.iter_mut().find(|run| self.allows(run, largest)) {
                let (plan, cancelled) = (run.plan.clone(), run.cancelled.clone());
                let job = Job { batch: run.numbers[run.claimed], plan, run: run.id, cancelled };
                run.claimed += 1;
                // A worker that finds work wakes the next worker, if there is more work.
                if state.runs.iter().any(|run| self.allows(run, largest)) {
                    self.work.notify_one();
                }
                return Some(job);
            }
            state = wait(&self.work, state);
        }
    }

    /// Stores a finished batch, or drops it if its epoch is closed.
    pub fn complete(&self, job: Job, made: Made<B>) {
        let mut state = self.lock();
        if matches!(made.batch, Ok(Some(_))) {
            state.largest = state.largest.max(Some(made.bytes));
        }
        let late = match state.run(job.run) {
            Some(run) => {
                run.ready_bytes += made.bytes;
                run.ready.insert(job.batch, made)
            }
            None => Some(made),
        };
        drop(state);
        self.done.notify_all();
        // The batch may be smaller than the estimate, or the first one known. The worker that made it looks for more
        // work.
        drop(late);
    }

    /// Tells the workers to stop and waits for them, at most for `patience`. Returns whether all of them have ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.stopped = true;
        for run in &state.runs {
            run.cancelled.store(true, Ordering::Relaxed);
        }
        self.work.notify_all();
        let waited = self.left.wait_timeout_while(state, patience, |state| state.workers > 0);
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    /// Returns whether the next unclaimed batch of `run` may be made now.
    fn allows(&self, run: &Run<B>, largest: Option<usize>) -> bool {
        if run.claimed >= run.numbers.len() {
            return false;
        }
        let ahead = run.claimed - run.delivered;
        if ahead == 0 {
            // The training loop needs this batch: refusing it because of the budget would block for ever.
            return true;
        }
        let in_work = ahead - run.ready.len();
        ahead < self.prefetch_batches
            && largest.is_some_and(|largest| {
                let reserved = largest.saturating_mul(in_work + 1);
                run.ready_bytes.saturating_add(reserved) <= self.prefetch_bytes
            })
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // No code under the lock leaves the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> State<B> {
    fn run(&mut self, id: u64) -> Option<&mut Run<B>> {
        self.runs.iter_mut().find(|run| run.id == id)
    }
}

fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
