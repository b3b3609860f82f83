//! Display of progress: a bar, lines, or Burn's dashboard.

#[cfg(feature = "tui")]
use crate::dashboard::Dashboard;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Kind of display for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// A bar on standard error if that is a terminal, otherwise lines, which are `tracing` events.
    #[default]
    Lines,
    /// Nothing, because another process shows the progress.
    Nothing,
    /// Burn's dashboard on a terminal, lines elsewhere.
    #[cfg(feature = "tui")]
    Dashboard,
}

/// Display of a run's progress.
#[derive(Debug)]
pub struct Progress {
    view: View,
    steps: u64,
}

#[derive(Debug)]
enum View {
    /// Another process shows the progress.
    Nothing,
    Lines,
    Bar(ProgressBar),
    #[cfg(feature = "tui")]
    Dashboard(Box<Dashboard>),
}

impl Progress {
    /// Starts at `step` of `steps` of the run called `name`. A dashboard that is closed by the user sets `interrupt`.
    pub fn new(display: Display, name: &str, step: u64, steps: u64, interrupt: &Arc<AtomicBool>) -> Self {
        let view = match display {
            Display::Lines if std::io::stderr().is_terminal() => View::Bar(bar(step, steps)),
            Display::Lines => View::Lines,
            Display::Nothing => View::Nothing,
            #[cfg(feature = "tui")]
            Display::Dashboard if std::io::stdout().is_terminal() => {
                View::Dashboard(Box::new(Dashboard::new(name, step, steps, interrupt.clone())))
            }
            #[cfg(feature = "tui")]
            Display::Dashboard => {
                tracing::warn!("the dashboard needs a terminal, and standard output is none: plain lines instead");
                View::Lines
            }
        };
        // Only a dashboard uses these.
        let _ = (name, interrupt);
        Self { view, steps }
    }

    /// Makes a display of lines, for an unknown number of steps.
    pub fn lines() -> Self {
        Self { view: View::Lines, steps: 0 }
    }

    /// Makes a display that shows nothing, because another process does.
    pub fn silent() -> Self {
        Self { view: View::Nothing, steps: 0 }
    }

    /// Shows the current step. `log` requests a line if there is no bar.
    pub fn step(&self, step: u64, message: &str, eta: Duration, log: bool) {
        match &self.view {
            View::Bar(bar) => {
                bar.set_position(step);
                bar.set_message(message.to_owned());
            }
            View::Lines if log => tracing::info!("step {step}/{}  {message}  ETA {}", self.steps, minutes(eta)),
            View::Lines | View::Nothing => {}
            #[cfg(feature = "tui")]
            View::Dashboard(dashboard) => dashboard.step(step),
        }
    }

    /// Shows metrics of a split, if there is room for more than a line.
    pub fn metrics<'a>(&self, split: &str, values: impl IntoIterator<Item = (&'a str, f64)>) {
        match &self.view {
            View::Lines | View::Bar(_) | View::Nothing => {
                let _ = (split, values);
            }
            #[cfg(feature = "tui")]
            View::Dashboard(dashboard) => dashboard.metrics(split, values),
        }
    }

    /// Prints a line that stays.
    pub fn say(&self, line: &str) {
        self.print(line, |line| tracing::info!("{line}"));
    }

    /// Like [`say`](Self::say), as a warning.
    pub fn warn(&self, line: &str) {
        self.print(line, |line| tracing::warn!("{line}"));
    }

    fn print(&self, line: &str, log: fn(&str)) {
        match &self.view {
            View::Bar(bar) => bar.suspend(|| log(line)),
            View::Lines => log(line),
            View::Nothing => {}
            #[cfg(feature = "tui")]
            View::Dashboard(dashboard) => dashboard.say(line),
        }
    }

    /// Returns a function that prints a line that stays, for another thread. `None` if such lines are not shown.
    pub(crate) fn speaker(&self) -> Option<impl Fn(&str) + Send + 'static> {
        let bar = match &self.view {
            View::Bar(bar) => Some(bar.clone()),
            View::Lines => None,
            _ => return None,
        };
        Some(move |line: &str| match &bar {
            Some(bar) => bar.suspend(|| tracing::info!("{line}")),
            None => tracing::info!("{line}"),
        })
    }

    /// Removes the bar or the dashboard.
    pub fn finish(&self) {
        match &self.view {
            View::Bar(bar) => bar.finish_and_clear(),
            View::Lines | View::Nothing => {}
            #[cfg(feature = "tui")]
            View::Dashboard(dashboard) => dashboard.close(),
        }
    }
}

fn bar(step: u64, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_position(step);
    let style = ProgressStyle::with_template("{bar:28} {pos}/{len}  {msg}  ETA {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.reset_eta();
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
