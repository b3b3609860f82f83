//! The first step of a session on a device that compiles kernels at their first launch.

use crate::Progress;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time before the first message, and time between messages.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_secs(15);

/// Logs why it takes so long, from the session's beginning until its first step is done; then this is dropped.
pub(super) struct WarmUp {
    _done: Sender<()>,
}

impl WarmUp {
    /// `None` if the system has no thread for it. Then only the messages are missing.
    pub fn begin(progress: &Progress) -> Option<Self> {
        Self::with(progress.speaker()?, PATIENCE, BETWEEN)
    }

    fn with(say: impl Fn(&str) + Send + 'static, patience: Duration, between: Duration) -> Option<Self> {
        let (done, end) = channel::<()>();
        let started = Instant::now();
        let wait = move || {
            let mut pause = patience;
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(pause) {
                say(&format!(
                    "no step is done after {} s: the first one and the evaluation before it compile and tune the kernels for this \
                     device that no earlier run has left in the user's cache",
                    started.elapsed().as_secs()
                ));
                pause = between;
            }
        };
        thread::Builder::new().name("warm-up".into()).spawn(wait).ok()?;
        Some(Self { _done: done })
    }
}

#[cfg(test)]
mod tests {
    use super::WarmUp;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn lines_come_until_the_first_step_is_done() {
        let (said, lines) = channel();
        let moment = Duration::from_millis(10);
        let warm_up = WarmUp::with(move |line| drop(said.send(line.to_owned())), moment, moment).expect("a thread");
        let line = lines.recv().expect("a line");
        assert!(line.starts_with("no step is done after 0 s: ") && line.contains("compile and tune"), "{line}");
        drop(warm_up);
        // The thread ends, and its sender with it.
        assert!(lines.iter().count() < 1000);
    }
}
