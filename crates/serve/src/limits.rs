//! Limits of requests.

use std::time::Duration;

/// Limits of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum size of a request, in bytes. It is held in memory.
    pub bytes: usize,
    /// Maximum length of a recording, in seconds.
    pub seconds: f64,
    /// Maximum number of requests that wait while one is answered; others get status 503.
    pub waiting: usize,
    /// Maximum time between two parts of a request, before it is given up.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 200 << 20, seconds: 2.0 * 3600.0, waiting: 4, idle: Duration::from_secs(30) }
    }
}
