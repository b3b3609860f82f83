//! A progress bar on a terminal. Elsewhere nothing is shown.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use undertone::phases::Progress;

/// Progress bar on standard error.
#[derive(Default)]
pub struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        act(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, of: usize) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let style = ProgressStyle::with_template("{msg}  {bar:28} {pos}/{len}  ETA {eta}");
        let bar = ProgressBar::new(of as u64).with_message(what.to_owned());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.with(|place| *place = Some(bar));
    }

    fn step(&self) {
        self.with(|bar| bar.iter().for_each(|bar| bar.inc(1)));
    }

    fn end(&self) {
        self.with(|bar| bar.take().iter().for_each(ProgressBar::finish_and_clear));
    }
}
