//! Logs and measurements of a training session.

use super::options::RunOptions;
use super::warm_up::WarmUp;
use crate::checkpoint::TrainState;
use crate::error::io;
use crate::hardware::Meter;
use crate::loss_scale::LossScale;
use crate::objective::{Evaluation, Objective};
use crate::records::Records;
use crate::report::{METRICS, Summary, drop_evaluation};
use crate::stepper::{StepReport, Stepper};
use crate::stopwatch::Stopwatch;
use crate::{Environment, Progress, TrainConfig, TrainError};
use burn::tensor::Device;
use std::path::{Path, PathBuf};
use std::time::Instant;
use undertone_ops::{compiles_kernels, runs_ahead};
use undertone_store::write_json;

/// Name in logs of the last step's loss, if a line covers several steps.
pub const LAST_LOSS: &str = "last_loss";

/// A session: from the beginning or resume of training until it ends or stops.
pub(super) struct Session {
    /// Number of steps of the whole run.
    pub steps: u64,
    /// Present on the first rank alone.
    pub records: Option<Records>,
    pub progress: Progress,
    /// Present until the first step is done.
    warm_up: Option<WarmUp>,
    pub watch: Stopwatch,
    /// Present if steps are logged.
    meter: Option<Meter>,
    dir: Option<PathBuf>,
    log_every: u64,
    started: Instant,
    /// Seconds trained in earlier sessions.
    earlier: f64,
    /// Whether the session begins with an evaluation that an interrupt prevented.
    pub owes_evaluation: bool,
}

impl Session {
    /// Makes a session of a run of `steps` steps that logs no steps.
    pub fn unlogged(device: &Device, steps: u64, progress: Progress) -> Self {
        let mut watch = Stopwatch::new(runs_ahead(device));
        watch.begin(false);
        Self {
            steps,
            records: None,
            progress,
            warm_up: None,
            watch,
            meter: None,
            dir: None,
            log_every: u64::MAX,
            started: Instant::now(),
            earlier: 0.0,
            owes_evaluation: false,
        }
    }

    /// Opens the logs of a run of `steps` steps whose state is `state`. Only the first rank writes them.
    ///
    /// # Errors
    /// When the run's directory cannot be read or written.
    pub fn open<O: Objective>(
        config: &TrainConfig,
        options: &RunOptions,
        stepper: &Stepper<O>,
        state: &TrainState,
        steps: u64,
    ) -> Result<Self, TrainError> {
        let Stepper { device, compute, process_group, .. } = stepper;
        let dir = process_group.is_main_process().then_some(&*options.dir);
        // The evaluation before the first step is repeated if no checkpoint has it.
        let from = if state.before.is_some() { state.step + 1 } else { 0 };
        // A run that is resumed for no more steps than it has taken ends here, with a model that nothing has evaluated yet.
        let owes_evaluation = state.unjudged || from > 0 && state.step >= steps && state.score.is_none();
        if let Some(dir) = dir.filter(|_| owes_evaluation) {
            drop_evaluation(&dir.join(METRICS), state.step).map_err(io(dir))?;
        }
        let stopped = config.is_over(state.reference, state.stalled);
        let going_on = owes_evaluation || (state.step < steps && !stopped);
        let open = |dir| {
            let mut records = Records::open(dir, from, config.csv, config.tensorboard && going_on).map_err(io(dir))?;
            if let Some(yaml) = &options.configuration {
                records.configuration(from, yaml).map_err(io(dir))?;
            }
            if going_on {
                Environment::now(device, state.step).record(dir)?;
            }
            Ok::<Records, TrainError>(records)
        };
        let records = dir.map(open).transpose()?;
        let progress = match dir {
            Some(_) => Progress::new(options.display, &options.name(), state.step, steps, &options.interrupt),
            None => Progress::silent(),
        };
        let warm_up = (going_on && compiles_kernels(device)).then(|| WarmUp::begin(&progress)).flatten();
        Ok(Self {
            records,
            warm_up,
            meter: Some(Meter::new(device, *compute)),
            dir: dir.map(Path::to_owned),
            log_every: config.log_every,
            earlier: state.seconds,
            owes_evaluation,
            ..Self::unlogged(device, steps, progress)
        })
    }

    /// Seconds trained, over all sessions.
    pub fn seconds(&self) -> f64 {
        self.earlier + self.started.elapsed().as_secs_f64()
    }

    /// Whether this step writes a line of `metrics.jsonl`.
    pub fn logs(&self, step: u64) -> bool {
        step.is_multiple_of(self.log_every) || step == self.steps
    }

    /// Removes log lines after step `step`.
    pub fn rewind(&mut self, step: u64) -> Result<(), TrainError> {
        let Some((records, dir)) = self.records.as_mut().zip(self.dir.as_deref()) else { return Ok(()) };
        records.rewind(step + 1).map_err(io(dir))
    }

    /// Shows the loss over the steps since the last line. If a line is due, writes it and starts over. Does nothing in a
    /// session that logs no steps.
    pub fn log(&mut self, state: &mut TrainState, report: &StepReport) -> Result<(), TrainError> {
        self.warm_up = None;
        let (step, due) = (report.step, self.logs(report.step));
        let Self { steps, records, progress, watch, meter: Some(meter), dir, .. } = self else { return Ok(()) };
        // A loss that is not finite is left out of the mean. A step that was skipped for another reason counts.
        if report.loss.is_finite() {
            state.losses.add(&report.terms);
        }
        let loss = state.losses.loss().unwrap_or(f64::NAN);
        let rate = watch.samples_per_second();
        let message = format!("loss {loss:.4}  {rate:.1} samples/s  wait {:.1} %", 100.0 * watch.data_wait());
        progress.step(step, &message, watch.step_time().mul_f64((*steps - step) as f64), due);
        if !due {
            return Ok(());
        }
        let losses = std::mem::take(&mut state.losses);
        let mut values = vec![("loss", loss)];
        if losses.len() > 1 {
            values.extend(losses.means());
        }
        // `grad_norm` and `lr` belong to this step.
        values.extend((self.log_every > 1).then_some((LAST_LOSS, report.loss)));
        values.extend(report.gauges.iter().copied());
        values.extend([("lr", report.rate), ("grad_norm", report.norm)]);
        if let Some(LossScale { scale, skipped, .. }) = state.loss_scale {
            values.extend([("loss_scale", scale), ("skipped_steps", skipped as f64)]);
        }
        let Some((records, dir)) = records.as_mut().zip(dir.as_deref()) else { return Ok(()) };
        records.write(step, "train", &values).map_err(io(dir))?;
        let hardware = meter.hardware();
        let peak = meter.peak_flops(hardware.as_ref());
        records.perform(&watch.line(step, hardware, peak)).map_err(io(dir))?;
        progress.metrics("train", values.into_iter().chain([("samples/s", rate)]));
        Ok(())
    }

    /// Logs an evaluation after step `step`.
    pub fn record(&mut self, step: u64, split: &str, evaluation: &Evaluation) -> Result<(), TrainError> {
        let Self { records, progress, dir, .. } = self;
        let Some((records, dir)) = records.as_mut().zip(dir.as_deref()) else { return Ok(()) };
        let values: Vec<(&str, f64)> = evaluation.metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let shown: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        records.write(step, split, &values).map_err(io(dir))?;
        progress.metrics(split, values);
        progress.say(&format!("step {step}  {split}  {}", shown.join("  ")));
        Ok(())
    }

    /// Writes the summary. If a finished run is resumed, nothing is trained, and the existing summary stays.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), TrainError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let path = dir.join("summary.json");
        let says_finished = Summary::read(dir).is_some_and(|before| before.completed);
        if self.watch.steps() > 0 || self.owes_evaluation || !path.exists() || summary.completed && !says_finished {
            write_json(&path, summary)?;
        }
        Ok(())
    }
}
