//! The training loop.

use crate::checkpoint::{Checkpoints, TrainState};
use crate::objective::{Batches, BoxError, LossTerm, Objective};
use crate::records::Records;
use crate::report::{ExampleChange, ParameterCount, Summary, peak_memory_bytes};
use crate::{AdamW, Display, Environment, GradientSum, Progress, TrainConfig};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use undertone_store::{
    StoreError, frozen_checksum, load_trainable, parameter_infos, remove_leftovers, trainable_parameters,
    write_atomically,
};

/// Trains a model on an objective and keeps its records in a directory.
pub struct Learner<O: Objective> {
    config: TrainConfig,
    objective: O,
    /// Absent only while the optimizer moves it.
    model: Option<O::Model>,
    device: Device,
    optimizer: AdamW,
    state: TrainState,
    dir: PathBuf,
    name: String,
    configuration: Option<String>,
    display: Display,
    interrupt: Arc<AtomicBool>,
}

/// Why training stopped short.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A batch could not be loaded, or did not fit the model.
    #[error("{0}")]
    Data(BoxError),
    /// The best model could not be written.
    #[error("the best model cannot be written: {0}")]
    Export(BoxError),
    /// The schedule has nothing after its warm-up.
    #[error("`train.optimizer.warmup_steps` is {warmup} and the run has {steps} steps: it must be below that")]
    Warmup {
        /// Steps of warm-up.
        warmup: u64,
        /// Steps of the run.
        steps: u64,
    },
    /// Batches of one optimizer step have different loss terms.
    #[error(
        "batches of one optimizer step have {0} and {1} loss terms: an objective gives the same terms for every batch"
    )]
    Terms(usize, usize),
    /// The loss is no number any more.
    #[error(
        "at step {step} the loss became {loss} and its gradient's length {norm}: lower `train.optimizer.lr` or look at the data of that step"
    )]
    NotFinite {
        /// The optimizer step.
        step: u64,
        /// The loss.
        loss: f64,
        /// The gradient's length.
        norm: f64,
    },
    /// Parameters that should be trained take no part in the loss.
    #[error(
        "after {steps} steps these trainable parameters have never received a gradient: {names}; freeze them or use them in the loss"
    )]
    NoGradient {
        /// Steps taken.
        steps: u64,
        /// The first few names.
        names: String,
    },
    /// There is nothing to train on.
    #[error("the training data has no batch: give it samples, or a smaller `data.batch_size` where `drop_last` is set")]
    NoData,
    /// A checkpoint belongs to another run.
    #[error("checkpoint `{}` was made with seed {found}, this run has seed {expected}: resume with the seed it was made with", path.display())]
    Seed {
        /// The checkpoint.
        path: PathBuf,
        /// Its seed.
        found: u64,
        /// The run's.
        expected: u64,
    },
    /// What a checkpoint leaves out has changed since.
    #[error("checkpoint `{}` was made with other frozen weights than this run has: resume with the model (and what earlier stages trained) that it was made with, or start anew without --resume", .0.display())]
    Frozen(PathBuf),
    /// A checkpoint was made with other batches.
    #[error("the checkpoint was made with {} batches an epoch and accumulation {}, this run has {} and {}: resume with the data, batch size and accumulation it was made with", found.0, found.1, expected.0, expected.1)]
    Batching {
        /// Batches per epoch and accumulation of the checkpoint.
        found: (usize, usize),
        /// Those of this run.
        expected: (usize, usize),
    },
    /// The run's directory cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run's directory cannot be read or written.
    #[error("cannot write `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// After this many steps a trainable parameter without a gradient is a mistake, not a rare branch.
const GRADIENT_PATIENCE: u64 = 20;

const MODEL: &str = "the learner has its model between optimizer steps";

/// The share of an optimizer step's time and what it found.
#[derive(Default)]
struct StepReport {
    terms: Vec<(Cow<'static, str>, f64)>,
    /// What the terms were divided by.
    counts: Vec<f64>,
    gauges: Vec<(&'static str, f64)>,
    loss: f64,
    norm: f64,
    rate: f64,
    samples: usize,
}

/// Where this session's time went, in training steps alone.
#[derive(Default)]
struct Clock {
    waiting: Duration,
    training: Duration,
    samples: u64,
    steps: u64,
}

impl Clock {
    fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.training.as_secs_f64().max(1e-9)
    }

    fn data_wait(&self) -> f64 {
        self.waiting.as_secs_f64() / self.training.as_secs_f64().max(1e-9)
    }
}

impl<O: Objective> Learner<O> {
    /// A learner for `model`, whose parameters lie on `device` (without autodiff), with records in `dir`.
    pub fn new(config: TrainConfig, objective: O, model: O::Model, device: Device, dir: &Path, seed: u64) -> Self {
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Self {
            optimizer: AdamW::new(&config.optimizer),
            config,
            objective,
            model: Some(model.train()),
            device: device.autodiff(),
            state: TrainState { seed, ..Default::default() },
            dir: dir.to_owned(),
            name,
            configuration: None,
            display: Display::default(),
            interrupt: Arc::default(),
        }
    }

    /// The whole configuration as YAML, for records that have a place for it.
    pub fn with_configuration(mut self, yaml: String) -> Self {
        self.configuration = Some(yaml);
        self
    }

    /// What the run is watched by.
    pub fn with_display(mut self, display: Display) -> Self {
        self.display = display;
        self
    }

    /// A flag that, once set, ends training after the current step with a checkpoint.
    pub fn with_interrupt(mut self, interrupt: Arc<AtomicBool>) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Goes on from the newest whole checkpoint and says where that is; false when there is none.
    ///
    /// A finished run goes on where the configuration asks for more steps by now. From there on its learning rate is that
    /// of the longer run, so that it ends in other bits than one which was as long from the start.
    ///
    /// # Errors
    /// When the checkpoint does not fit the model, or was made with other frozen parameters or another seed.
    pub fn resume(&mut self) -> Result<bool, TrainError> {
        let (newest, complaints) = self.checkpoints().newest();
        for complaint in complaints {
            eprintln!("{complaint}");
        }
        let Some(checkpoint) = newest else { return Ok(false) };
        if checkpoint.state.seed != self.state.seed {
            let (found, expected) = (checkpoint.state.seed, self.state.seed);
            return Err(TrainError::Seed { path: checkpoint.path, found, expected });
        }
        let model = load_trainable(self.model().clone(), |name| checkpoint.model.read(name))?;
        let frozen = Some(frozen_checksum(&model));
        if checkpoint.state.frozen.is_some_and(|found| Some(found) != frozen) {
            return Err(TrainError::Frozen(checkpoint.path));
        }
        let device = self.device.clone().inner();
        let stored = checkpoint.optimizer.names();
        let names: Vec<String> = stored.iter().filter_map(|n| n.strip_suffix(".step").map(str::to_owned)).collect();
        self.optimizer.load(names, &device, |name| checkpoint.optimizer.read(name))?;
        self.model = Some(model);
        self.state = TrainState { frozen, ..checkpoint.state };
        eprintln!("resuming from `{}`, step {}", checkpoint.path.display(), self.state.step);
        // What lies beyond is damaged; left there, rotation would take it for the newest.
        self.checkpoints().remove_after(self.state.step)?;
        Ok(true)
    }

    /// Trains to the end, or to an interruption.
    ///
    /// # Errors
    /// When data or files fail, the loss is no number, or a trainable parameter is out of reach.
    pub fn train<B: Batches<Batch = O::Batch>>(&mut self, batches: &B) -> Result<Summary, TrainError> {
        if batches.per_epoch() == 0 {
            return Err(TrainError::NoData);
        }
        let steps = self.config.steps(batches.per_epoch());
        if self.config.optimizer.warmup_steps >= steps {
            return Err(TrainError::Warmup { warmup: self.config.optimizer.warmup_steps, steps });
        }
        self.check_position(batches.per_epoch())?;
        self.prepare_directory()?;
        // What was judged before the first step is judged again if no checkpoint has it.
        let from = if self.state.before.is_some() { self.state.step + 1 } else { 0 };
        let going_on = self.state.step < steps && !self.has_stalled();
        let mut log = Records::open(&self.dir, from, self.config.csv, self.config.tensorboard && going_on)
            .map_err(io(&self.dir))?;
        if let Some(yaml) = &self.configuration {
            log.configuration(from, yaml).map_err(io(&self.dir))?;
        }
        if going_on {
            Environment::now(&self.device, self.state.step).record(&self.dir)?;
        }
        let progress = Progress::new(self.display, &self.name, self.state.step, steps, &self.interrupt);
        let started = Instant::now();
        let earlier = self.state.seconds;
        let mut clock = Clock::default();
        let mut without_gradient = self.without_gradient();
        // Which loss terms have had something to say.
        let mut heard: Vec<bool> = Vec::new();
        // Once a session: on an accelerator the frozen parameters have to be read back for it.
        if self.state.frozen.is_none() {
            self.state.frozen = Some(frozen_checksum(self.model()));
        }

        if self.state.before.is_none() {
            self.evaluate(&mut log, &progress)?;
            self.state.before.clone_from(&self.state.latest);
        }
        let mut stream = batches.epoch(self.state.epoch, self.state.cursor);

        while self.state.step < steps && !self.has_stalled() && !self.interrupt.load(Ordering::Relaxed) {
            let step_started = Instant::now();
            let window = self.load(batches, &mut stream, &mut clock)?;
            // Dropout draws from the device; seeding by step makes it the same whenever the step is taken.
            self.device.seed(self.state.seed ^ (self.state.step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let (mut gradients, mut report) = self.forward_backward(&window)?;
            without_gradient.retain(|name| !gradients.names().any(|n| n == name));
            heard.resize(report.counts.len(), false);
            heard.iter_mut().zip(&report.counts).for_each(|(heard, count)| *heard |= *count > 0.0);
            // A part of the model that only some samples go through can have no gradient before the first of them.
            if heard.iter().all(|heard| *heard) {
                self.check_gradients(&without_gradient, steps)?;
            }
            report.norm = gradients.clip(self.config.optimizer.clip_norm);
            if !(report.loss.is_finite() && report.norm.is_finite()) {
                let (step, loss, norm) = (self.state.step + 1, report.loss, report.norm);
                return Err(TrainError::NotFinite { step, loss, norm });
            }
            let optimizer = &self.config.optimizer;
            report.rate = optimizer.lr * optimizer.schedule.factor(self.state.step, optimizer.warmup_steps, steps);
            // Moved, not cloned: a parameter that nothing else holds is changed where it lies.
            let model = self.model.take().expect(MODEL);
            self.model = Some(self.optimizer.step(model, &mut gradients, report.rate));
            self.state.step += 1;
            self.state.samples += report.samples as u64;
            clock.samples += report.samples as u64;
            clock.steps += 1;
            clock.training += step_started.elapsed();
            self.log(&mut log, &progress, &report, &clock, steps)?;

            let last = self.state.step == steps;
            self.state.score = None;
            if last || due(self.state.step, self.config.evaluate.every) {
                self.evaluate(&mut log, &progress)?;
            }
            let stopped = self.has_stalled();
            if last || stopped || due(self.state.step, self.config.checkpoint.every) {
                self.state.seconds = earlier + started.elapsed().as_secs_f64();
                self.checkpoint()?;
            }
            if stopped && !last {
                progress.say(&format!(
                    "step {}  no better for {} evaluations: stopping",
                    self.state.step, self.state.stalled
                ));
                break;
            }
        }

        self.state.seconds = earlier + started.elapsed().as_secs_f64();
        let completed = self.state.step >= steps || self.has_stalled();
        if !completed {
            self.checkpoint()?;
        }
        progress.finish();
        let summary = self.summary(completed, &clock);
        let path = self.dir.join("summary.json");
        // Resuming a finished run trains nothing and has nothing to say that is not there already.
        if clock.steps > 0 || !path.exists() {
            write_atomically(&path, serde_json::to_string_pretty(&summary).unwrap_or_default().as_bytes())?;
        }
        Ok(summary)
    }

    /// A cursor means nothing once batches are cut differently.
    fn check_position(&mut self, per_epoch: usize) -> Result<(), TrainError> {
        let batching = (per_epoch, self.config.accumulation);
        match self.state.batching {
            Some(found) if found != batching => Err(TrainError::Batching { found, expected: batching }),
            _ => {
                self.state.batching = Some(batching);
                Ok(())
            }
        }
    }

    /// Makes the run's directory, or clears it of what a killed session was writing.
    fn prepare_directory(&self) -> Result<(), TrainError> {
        let checkpoints = self.dir.join("checkpoints");
        std::fs::create_dir_all(&checkpoints).map_err(io(&checkpoints))?;
        for dir in [&self.dir, &checkpoints] {
            remove_leftovers(dir)?;
        }
        Ok(())
    }

    /// The batches of one optimizer step; at the end of an epoch what is left of it, then the next epoch begins.
    fn load<'a, B: Batches<Batch = O::Batch>>(
        &mut self,
        batches: &'a B,
        stream: &mut Box<dyn Iterator<Item = Result<O::Batch, BoxError>> + 'a>,
        clock: &mut Clock,
    ) -> Result<Vec<O::Batch>, TrainError> {
        let waiting = Instant::now();
        let mut window = Vec::with_capacity(self.config.accumulation);
        while window.len() < self.config.accumulation {
            match stream.next() {
                Some(batch) => {
                    window.push(batch.map_err(TrainError::Data)?);
                    self.state.cursor += 1;
                }
                None => {
                    self.state.epoch += 1;
                    self.state.cursor = 0;
                    *stream = batches.epoch(self.state.epoch, 0);
                    if !window.is_empty() {
                        break;
                    }
                }
            }
        }
        clock.waiting += waiting.elapsed();
        Ok(window)
    }

    /// Gradients of the window's mean loss: each term's sum over the window by its count over the window.
    fn forward_backward(&self, window: &[O::Batch]) -> Result<(GradientSum, StepReport), TrainError> {
        let mut totals: Vec<f64> = Vec::new();
        for batch in window {
            let counts = self.objective.counts(batch);
            if totals.is_empty() {
                totals.resize(counts.len(), 0.0);
            }
            if totals.len() != counts.len() {
                return Err(TrainError::Terms(totals.len(), counts.len()));
            }
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        let mut gradients = GradientSum::default();
        let mut report = StepReport::default();
        for batch in window {
            let terms = self.objective.losses(self.model(), batch, &self.device).map_err(TrainError::Data)?;
            report.terms.resize(terms.len(), (Cow::Borrowed(""), 0.0));
            let mut loss: Option<Tensor<1>> = None;
            let mut means = Vec::with_capacity(terms.len());
            for (LossTerm { name, weight, sum }, count) in terms.into_iter().zip(&totals) {
                let mean = sum.div_scalar(count.max(1.0));
                means.push((name, weight, mean.clone().inner()));
                let share = mean.mul_scalar(weight);
                loss = Some(loss.map_or(share.clone(), |loss| loss + share));
            }
            if let Some(loss) = loss {
                gradients.add(self.model(), loss.backward());
            }
            // Read only now: on an accelerator a read waits for everything before it.
            for ((name, weight, mean), logged) in means.into_iter().zip(&mut report.terms) {
                let mean = f64::from(mean.into_scalar::<f32>());
                *logged = (name, logged.1 + mean);
                report.loss += weight * mean;
            }
            report.samples += self.objective.samples(batch);
        }
        report.gauges = window.last().map(|batch| self.objective.gauges(batch)).unwrap_or_default();
        report.counts = totals;
        Ok((gradients, report))
    }

    fn log(
        &self,
        log: &mut Records,
        progress: &Progress,
        report: &StepReport,
        clock: &Clock,
        steps: u64,
    ) -> Result<(), TrainError> {
        let step = self.state.step;
        let rate = clock.samples_per_second();
        let message = format!("loss {:.4}  {rate:.1} samples/s  wait {:.1} %", report.loss, 100.0 * clock.data_wait());
        let each = clock.training.div_f64(clock.steps.max(1) as f64);
        let due = step.is_multiple_of(self.config.log_every) || step == steps;
        progress.step(step, &message, each.mul_f64((steps - step) as f64), due);
        if due {
            let mut values = vec![("loss", report.loss)];
            if report.terms.len() > 1 {
                // A term that had nothing to say is not 0: it is not there.
                let said = report.terms.iter().zip(&report.counts).filter(|(_, count)| **count > 0.0);
                values.extend(said.map(|((name, value), _)| (name.as_ref(), *value)));
            }
            values.extend(report.gauges.iter().copied());
            values.extend([("lr", report.rate), ("grad_norm", report.norm)]);
            log.write(step, "train", &values).map_err(io(&self.dir))?;
            progress.metrics("train", values.into_iter().chain([("samples/s", rate)]));
        }
        Ok(())
    }

    /// Judges the model, records it, and exports it if it is the best so far.
    fn evaluate(&mut self, log: &mut Records, progress: &Progress) -> Result<(), TrainError> {
        let model = self.model().valid();
        let mut evaluation =
            self.objective.evaluate(&model, &self.config.evaluate.metrics).map_err(TrainError::Data)?;
        let step = self.state.step;
        let values: Vec<(&str, f64)> = evaluation.metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        log.write(step, "valid", &values).map_err(io(&self.dir))?;
        progress.metrics("valid", values);
        let shown: Vec<String> = evaluation.metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        progress.say(&format!("step {step}  valid  {}", shown.join("  ")));
        // JSON has no number for a rate without references, and such a rate is no score.
        evaluation.metrics.retain(|_, value| value.is_finite());
        self.state.score = evaluation.metrics.get(&self.config.checkpoint.metric).copied();
        let (reference, min_delta) = (self.state.reference, self.config.early_stopping.min_delta);
        match self.state.score.filter(|score| reference.is_none_or(|reference| *score < reference - min_delta)) {
            Some(score) => (self.state.reference, self.state.stalled) = (Some(score), 0),
            None => self.state.stalled += 1,
        }
        if let Some(score) = self.state.score.filter(|s| self.state.best.is_none_or(|(best, _)| *s < best)) {
            self.state.best = Some((score, step));
            self.objective.export(&model, &self.dir.join("best")).map_err(TrainError::Export)?;
        }
        self.state.latest = Some(evaluation);
        Ok(())
    }

    /// Whether early stopping ends the run.
    fn has_stalled(&self) -> bool {
        self.config.early_stopping.ends(self.state.stalled) && self.state.best.is_some()
    }

    fn checkpoint(&self) -> Result<(), TrainError> {
        let checkpoints = self.checkpoints();
        checkpoints.save(&self.state, &trainable_parameters(self.model()), &self.optimizer.to_tensors())?;
        let kept = &self.config.checkpoint;
        checkpoints.rotate(kept.keep_last, kept.keep_best)?;
        Ok(())
    }

    fn check_gradients(&self, without: &BTreeSet<String>, steps: u64) -> Result<(), TrainError> {
        let taken = self.state.step + 1;
        if without.is_empty() || taken < GRADIENT_PATIENCE.min(steps) {
            return Ok(());
        }
        let mut names: Vec<String> = without.iter().take(5).map(|name| format!("`{name}`")).collect();
        if without.len() > names.len() {
            names.push(format!("and {} more", without.len() - names.len()));
        }
        Err(TrainError::NoGradient { steps: taken, names: names.join(", ") })
    }

    fn summary(&self, completed: bool, clock: &Clock) -> Summary {
        let infos = parameter_infos(self.model());
        let count =
            |only: bool| infos.iter().filter(|p| p.trainable || !only).map(|p| p.shape.iter().product::<usize>()).sum();
        let before = self.state.before.clone().unwrap_or_default();
        let after = self.state.latest.clone().unwrap_or_default();
        Summary {
            name: self.name.clone(),
            completed,
            steps: self.state.step,
            samples: self.state.samples,
            parameters: ParameterCount { trainable: count(true), total: count(false) },
            seconds: self.state.seconds,
            samples_per_second: clock.samples_per_second(),
            data_wait: clock.data_wait(),
            peak_memory_bytes: peak_memory_bytes(),
            best: self.state.best,
            stalled: self.state.stalled,
            examples: ExampleChange::pair(&before.examples, &after.examples),
            before: before.metrics,
            after: after.metrics,
        }
    }

    /// Trainable parameters that no gradient has reached; those with optimizer state had one in an earlier session.
    fn without_gradient(&self) -> BTreeSet<String> {
        let trainable = parameter_infos(self.model()).into_iter().filter(|p| p.trainable).map(|p| p.name);
        trainable.filter(|name| !self.optimizer.has_state(name)).collect()
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.dir.join("checkpoints"))
    }

    /// The model as it stands, with gradients.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect(MODEL)
    }
}

fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError {
    let path = path.to_owned();
    move |source| TrainError::Io { path, source }
}
