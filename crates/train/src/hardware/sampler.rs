//! Sampling of the machine in the background.

use super::Hardware;
use super::gpus::Gpus;
use super::machine::Machine;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Samples the machine in a thread of its own, until dropped.
///
/// A sample costs about 0.4 ms of one core on Linux; a test measures it.
///
/// ```
/// use undertone_train::HardwareSampler;
///
/// let sampler = HardwareSampler::start(HardwareSampler::INTERVAL);
/// // … training …
/// if let Some(hardware) = sampler.take() {
///     println!("{:?} of all cores", hardware.cpu);
/// }
/// ```
#[derive(Debug)]
pub struct HardwareSampler {
    shared: Arc<Mutex<Shared>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread and the owner share.
#[derive(Debug, Default)]
struct Shared {
    /// Samples since the last take, at most [`KEPT`].
    samples: VecDeque<Hardware>,
    /// Result of the last take.
    last: Option<Hardware>,
    /// The kernel's number of the thread, if it has one.
    task: Option<String>,
}

/// Maximum number of samples between takes: an hour at the default interval.
const KEPT: usize = 3600;

impl HardwareSampler {
    /// Default interval.
    pub const INTERVAL: Duration = Duration::from_secs(1);

    /// Minimum interval. The kernel counts processor time in ticks of 10 ms, so shares over a shorter time would be
    /// coarse.
    const SHORTEST: Duration = Duration::from_millis(250);

    /// Starts sampling every `interval`, of at least 0.25 s. If the system gives no thread, there are no samples.
    pub fn start(interval: Duration) -> Self {
        let shared = Arc::<Mutex<Shared>>::default();
        let (stop, stopped) = channel();
        let theirs = shared.clone();
        let work = move || sample(&theirs, interval.max(Self::SHORTEST), &stopped);
        let thread = Builder::new().name("hardware".into()).spawn(work).ok();
        Self { shared, stop: Some(stop), thread }
    }

    /// Returns the mean since the last take, and for memory the largest use. If there was no sample since, returns the
    /// last result again; `None` before the first sample.
    pub fn take(&self) -> Option<Hardware> {
        let mut shared = lock(&self.shared);
        if let Some(mean) = Hardware::mean(&shared.samples) {
            shared.samples.clear();
            shared.last = Some(mean).filter(|mean| !mean.is_empty());
        }
        shared.last.clone()
    }

    /// Returns the processor time that sampling has taken so far, if the system reports it.
    pub fn cost(&self) -> Option<Duration> {
        let path = format!("/proc/self/task/{}/schedstat", lock(&self.shared).task.as_ref()?);
        let text = std::fs::read_to_string(path).ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    }
}

impl Drop for HardwareSampler {
    fn drop(&mut self) {
        // Wakes the thread, which waits for the interval or for this.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sample(shared: &Mutex<Shared>, interval: Duration, stopped: &Receiver<()>) {
    let task = std::fs::read_link("/proc/thread-self").ok();
    lock(shared).task = task.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut machine = Machine::new();
    let gpus = Gpus::open();
    loop {
        let sample = Hardware { gpus: gpus.sample(), ..machine.sample() };
        let mut shared = lock(shared);
        if shared.samples.len() == KEPT {
            shared.samples.pop_front();
        }
        shared.samples.push_back(sample);
        drop(shared);
        if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Locks the state. It is consistent whenever the lock is free, so a panic elsewhere has not spoiled it.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::time::Instant;

    /// Waits for a sample that satisfies `enough`.
    fn wait_for(sampler: &HardwareSampler, enough: impl Fn(&Hardware) -> bool) -> Hardware {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(30) {
            if let Some(hardware) = sampler.take().filter(&enough) {
                return hardware;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no such sample: {:?}", sampler.take());
    }

    #[test]
    fn work_and_memory_of_this_process_are_seen() {
        let sampler = HardwareSampler::start(HardwareSampler::SHORTEST);
        let before = wait_for(&sampler, |hardware| hardware.memory_bytes.is_some());
        let held = vec![1_u8; 64 << 20];
        let until = Instant::now() + Duration::from_secs(2);
        let mut turns = 0_u64;
        while Instant::now() < until {
            turns = black_box(turns + 1);
        }
        let busy = wait_for(&sampler, |hardware| hardware.cpu.is_some());
        black_box(&held);
        let (cpu, process) = (busy.cpu.expect("a share"), busy.process_cpu.expect("a share"));
        assert!(process > 0.0 && process <= 1.0 && cpu > 0.0 && cpu <= 1.0, "{busy:?}");
        // Both are counted in ticks of 10 ms.
        assert!(process <= cpu + 0.1, "{busy:?}");
        let (used, total) = (busy.memory_bytes.expect("memory"), busy.memory_total_bytes.expect("a total"));
        assert!(used >= before.memory_bytes.expect("memory") + (48 << 20), "{before:?} {busy:?}");
        assert!(used <= total && busy.memory_available_bytes.expect("a rest") < total, "{busy:?}");
    }

    #[test]
    fn a_take_between_samples_says_what_the_last_one_said() {
        let sampler = HardwareSampler::start(Duration::from_secs(3600));
        let first = wait_for(&sampler, |_| true);
        assert_eq!(sampler.take(), Some(first));
    }

    #[test]
    fn dropping_it_ends_the_thread_without_waiting_for_the_interval() {
        let sampler = HardwareSampler::start(Duration::from_secs(3600));
        wait_for(&sampler, |_| true);
        let shared = Arc::downgrade(&sampler.shared);
        let started = Instant::now();
        drop(sampler);
        assert!(started.elapsed() < Duration::from_secs(60));
        assert!(shared.upgrade().is_none(), "the thread holds its half still");
    }

    #[test]
    fn four_samples_a_second_cost_less_than_a_hundredth_of_a_core() {
        let sampler = HardwareSampler::start(HardwareSampler::SHORTEST);
        wait_for(&sampler, |hardware| hardware.cpu.is_some());
        let Some(before) = sampler.cost() else { return };
        let started = Instant::now();
        std::thread::sleep(Duration::from_secs(3));
        let cost = sampler.cost().expect("told before") - before;
        assert!(cost > Duration::ZERO, "the thread slept");
        assert!(cost.as_secs_f64() < 0.01 * started.elapsed().as_secs_f64(), "{cost:?}");
    }
}
