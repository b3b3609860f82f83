//! How much time is left.

use std::time::{Duration, Instant};

/// Runs out after some minutes.
pub struct Clock {
    started: Instant,
    whole: Duration,
}

impl Clock {
    pub fn of_minutes(minutes: f64) -> Self {
        // A day is more than any card is lent for.
        Self { started: Instant::now(), whole: Duration::from_secs_f64(60.0 * minutes.min(1440.0)) }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn left(&self) -> Duration {
        self.whole.saturating_sub(self.elapsed())
    }
}
