//! Burn's terminal dashboard, driven by the Learner's training loop.

use burn_train::Interrupter;
use burn_train::logger::TrainingProgressLogger;
use burn_train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry, SerializedEntry,
};
use burn_train::renderer::tui::TuiMetricsRendererWrapper;
use burn_train::renderer::{MetricState, MetricsRenderer, MetricsRendererTraining};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone_metrics::{Direction, direction_of};

/// The dashboard of one run, until it is closed or dropped.
pub(crate) struct Dashboard {
    /// The renderer; `None` once closed.
    screen: RefCell<Option<Screen>>,
    /// Steps taken before this session.
    first: u64,
    stop: Interrupter,
    interrupt: Arc<AtomicBool>,
    /// Lines that are printed once the terminal is free again.
    later: RefCell<Vec<String>>,
}

/// The renderer and the metrics it knows.
struct Screen {
    renderer: TuiMetricsRendererWrapper,
    known: Vec<String>,
}

impl Dashboard {
    /// Takes over the terminal for a run at `step` of `steps`. The dashboard's own quit (q, then s) sets `interrupt`.
    pub fn new(name: &str, step: u64, steps: u64, interrupt: Arc<AtomicBool>) -> Self {
        let stop = Interrupter::new();
        let mut renderer = TuiMetricsRendererWrapper::new(stop.clone(), None);
        keep_ctrl_c();
        let label = if step == 0 { name.to_owned() } else { format!("{name}, from step {step}") };
        // One epoch of so many items, because without epochs the dashboard's second bar would stand still. The
        // dashboard estimates the time left from its bars, so they count the steps of this session.
        renderer.start(1, 1, None, Some(&label));
        renderer.start_split("train", steps.saturating_sub(step) as usize);
        let screen = RefCell::new(Some(Screen { renderer, known: Vec::new() }));
        Self { screen, first: step, stop, interrupt, later: RefCell::default() }
    }

    /// Updates the bars, and passes on a request to stop.
    pub fn step(&self, step: u64) {
        self.draw(|screen| screen.renderer.update_split(step.saturating_sub(self.first) as usize));
        if self.stop.should_stop() {
            self.interrupt.store(true, Ordering::Relaxed);
        }
    }

    /// Draws a point for each metric.
    pub fn metrics<'a>(&self, split: &str, values: impl IntoIterator<Item = (&'a str, f64)>) {
        self.draw(|screen| values.into_iter().for_each(|(name, value)| screen.point(split, name, value)));
    }

    /// Keeps a line until the dashboard is closed.
    pub fn say(&self, line: &str) {
        self.later.borrow_mut().push(line.to_owned());
    }

    /// Gives the terminal back, and prints the lines that were kept.
    pub fn close(&self) {
        let screen = self.screen.borrow_mut().take();
        leave_if_killed(|| drop(screen));
        for line in self.later.borrow_mut().drain(..) {
            tracing::info!("{line}");
        }
    }

    fn draw(&self, draw: impl FnOnce(&mut Screen)) {
        if let Some(screen) = self.screen.borrow_mut().as_mut() {
            leave_if_killed(|| draw(screen));
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Screen {
    fn point(&mut self, split: &str, name: &str, value: f64) {
        let id = MetricId::new(Arc::new(name.to_owned()));
        if !self.known.iter().any(|known| known == name) {
            self.known.push(name.to_owned());
            self.renderer.register_metric(MetricDefinition {
                metric_id: id.clone(),
                name: Arc::new(name.to_owned()),
                description: None,
                attributes: MetricAttributes::Numeric(NumericAttributes {
                    unit: None,
                    // Everything else that is drawn, losses and rates included, is summarized by its lowest value.
                    higher_is_better: direction_of(name) == Some(Direction::Higher),
                }),
            });
        }
        let text = if value != 0.0 && value.abs() < 1e-3 { format!("{value:.3e}") } else { format!("{value:.4}") };
        let entry = MetricEntry::new(id, SerializedEntry::new(text, value.to_string()));
        let state = MetricState::Numeric(entry, value.is_finite().then_some(NumericEntry::Value(value)));
        match split {
            "train" => self.renderer.update_train(state),
            _ => self.renderer.update_valid(state),
        }
    }
}

/// Exits if `call` panics. The dashboard's "stop immediately" (q, then k) gives the terminal back and makes its next
/// call panic; the process then exits at once, as with a second Ctrl-C.
fn leave_if_killed(call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        std::process::exit(130);
    }
}

/// Makes Ctrl-C a signal again. While the terminal is drawn on, Ctrl-C is a key like any other, and the dashboard
/// ignores it.
#[cfg(unix)]
fn keep_ctrl_c() {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    use std::time::Duration;
    let terminal = std::io::stdin();
    // The dashboard's thread takes over the terminal at some point; a second is more than it needs.
    for _ in 0..100 {
        let Ok(mut modes) = tcgetattr(&terminal) else { return };
        if !modes.local_modes.contains(LocalModes::ICANON) {
            modes.local_modes |= LocalModes::ISIG;
            // If this fails, there is still the dashboard's own quit.
            let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(not(unix))]
fn keep_ctrl_c() {}
