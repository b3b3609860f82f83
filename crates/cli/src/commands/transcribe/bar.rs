//! Progress bar of a transcription: the audio that is done, the speed, and the time that is left.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Progress bar on standard error; nothing where it is no terminal.
pub struct AudioBar {
    bar: Option<ProgressBar>,
    begun: Instant,
    /// Seconds of the recordings before the present one.
    before: f64,
}

impl AudioBar {
    /// Starts a bar over this many seconds of audio.
    pub fn begin(seconds: f64) -> Self {
        let style = ProgressStyle::with_template("{bar:28} {msg}  ETA {eta}");
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(seconds.ceil() as u64);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, begun: Instant::now(), before: 0.0 }
    }

    /// Shows that this many seconds of the present recording are done.
    pub fn reach(&self, seconds: f64) {
        let Some(bar) = &self.bar else { return };
        let done = self.before + seconds;
        let fast = times_as_fast(done, self.begun.elapsed().as_secs_f64());
        bar.set_position(done as u64);
        bar.set_message(format!("{} of {} of audio, {fast}", clock(done), clock(bar.length().unwrap_or(0) as f64)));
    }

    /// Ends the present recording, of this many seconds.
    pub fn done(&mut self, seconds: f64) {
        self.before += seconds;
        self.reach(0.0);
    }

    /// Runs `write` while no bar is on the terminal.
    pub fn hidden<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns how fast `seconds` of audio were read in so many seconds.
pub fn times_as_fast(seconds: f64, elapsed: f64) -> String {
    match seconds / elapsed.max(1e-9) {
        times if times < 9.95 => format!("{times:.1} times as fast"),
        times => format!("{times:.0} times as fast"),
    }
}
