//! Limits of the process of a probe.

use super::probe::{Limits, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use undertone_train::resident_memory_bytes;

/// Interval of the checks. A process that allocates hundreds of MB per second can have exceeded the limit by the next
/// check; a peak between two checks is found at the end.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `work`, the whole work of a probe's process, within limits. If a limit is exceeded, `report` is called from
/// another thread and the process ends. Memory on an accelerator is compared after the work, memory of the host all the
/// time.
///
/// # Errors
/// The error of `work`.
pub fn within_limits<E>(
    limits: Limits,
    on_host: bool,
    report: impl Fn(&Outcome) + Send + 'static,
    work: impl FnOnce() -> Result<Outcome, E>,
) -> Result<Outcome, E> {
    let done = Arc::new(AtomicBool::new(false));
    watch(Limits { memory: limits.memory.filter(|_| on_host), ..limits }, done.clone(), report);
    let result = work();
    if done.swap(true, Ordering::SeqCst) {
        // The other thread reports the result and ends the process.
        loop {
            std::thread::park();
        }
    }
    Ok(match (result?, limits.memory) {
        (Outcome::Fits { peak_bytes: Some(peak_bytes), .. }, Some(limit)) if peak_bytes > limit => {
            Outcome::OverBudget { peak_bytes }
        }
        (outcome, _) => outcome,
    })
}

/// Ends the process if a limit is exceeded, or if the parent process has ended.
fn watch(limits: Limits, done: Arc<AtomicBool>, report: impl Fn(&Outcome) + Send + 'static) {
    let (started, parent) = (Instant::now(), parent());
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            let held = resident_memory_bytes().filter(|held| limits.memory.is_some_and(|limit| *held > limit));
            let late = started.elapsed() > limits.time;
            let outcome = match held {
                Some(peak_bytes) => Outcome::OverBudget { peak_bytes },
                None if late => Outcome::TooSlow { seconds: started.elapsed().as_secs_f64() },
                None if self::parent() != parent => std::process::exit(1),
                None => continue,
            };
            if !done.swap(true, Ordering::SeqCst) {
                report(&outcome);
                std::process::exit(0);
            }
            break;
        }
    });
}

#[cfg(unix)]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn parent() -> u32 {
    0
}
