//! The training loop.

mod judge;
mod rescue;
mod step;

use crate::checkpoint::{Checkpoint, Checkpoints, Contents, TrainState};
use crate::ema::Ema;
use crate::error::io;
use crate::exported::Exported;
use crate::hardware::Meter;
use crate::largest::check_largest;
use crate::loss_scale::LossScale;
use crate::objective::{Batches, Objective};
use crate::records::Records;
use crate::report::{ExampleChange, METRICS, ParameterCount, Summary, drop_evaluation, peak_memory_bytes};
use crate::saver::Saver;
use crate::stopwatch::{Part, Stopwatch};
use crate::{Display, Environment, Optimizer, Progress, TrainConfig, TrainError};
use burn::module::Module;
use burn::tensor::Device;
use judge::{BEST, BEST_EMA};
use rescue::Within;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use step::{Outcome, StepReport, Unsettled};
use undertone_ops::{Capacity, Compute, autocast, check_backend, runs_ahead};
use undertone_store::{
    DirectoryLock, frozen_checksum, load_trainable, parameter_infos, trainable_parameters, write_atomically,
};

/// Trains a model on an objective and keeps its records in a directory.
pub struct Learner<O: Objective> {
    config: TrainConfig,
    /// What the configuration computes in; what is computed in is what the device has.
    asked: Compute,
    objective: O,
    /// Absent only while the optimizer moves it.
    model: Option<O::Model>,
    device: Device,
    optimizer: Optimizer,
    ema: Option<Ema>,
    state: TrainState,
    within: Within,
    /// The last step, where the host has not seen what the device decided.
    unsettled: Option<Unsettled>,
    /// The step that this session went on from.
    resumed: Option<u64>,
    saver: Saver,
    dir: PathBuf,
    /// Held from the first moment that the directory's content matters until training ends.
    lock: Option<Arc<DirectoryLock>>,
    saves_on_error: bool,
    name: String,
    configuration: Option<String>,
    display: Display,
    interrupt: Arc<AtomicBool>,
}

const MODEL: &str = "the learner has its model between optimizer steps";

/// What is said where products are made in another type than the one asked for.
fn instead(asked: Compute, compute: Compute) -> String {
    let scaled = if compute == Compute::F16 { ", and the loss is scaled" } else { "" };
    format!(
        "`train.compute` asks for {asked}, which this device does not multiply in: products are made in {compute}{scaled}"
    )
}

/// What a session of training writes to and measures with.
struct Session {
    /// How many steps the whole run has.
    steps: u64,
    log: Records,
    progress: Progress,
    watch: Stopwatch,
    meter: Meter,
}

/// What logs call the loss of a line's last step, where a line stands for several.
pub const LAST_LOSS: &str = "last_loss";

impl<O: Objective> Learner<O> {
    /// A learner for `model`, whose parameters lie on `device` (without autodiff), with records in `dir`.
    ///
    /// Where the device has no products in the type that `config` asks for, they are made in the nearest that it has, which
    /// is said when training begins.
    pub fn new(mut config: TrainConfig, objective: O, model: O::Model, device: Device, dir: &Path, seed: u64) -> Self {
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let checkpoints = Checkpoints::new(dir.join("checkpoints"));
        let asked = config.compute;
        config.compute = asked.on(&device);
        let loss_scale = (config.compute == Compute::F16).then(|| LossScale::new(&config.loss_scale));
        Self {
            optimizer: Optimizer::new(&config.optimizer),
            ema: config.ema_decay.map(Ema::new),
            saver: Saver::new(checkpoints, config.checkpoint.keep_last, config.checkpoint.keep_best),
            asked,
            config,
            objective,
            model: Some(model.train()),
            device: device.autodiff(),
            state: TrainState { seed, loss_scale, ..Default::default() },
            within: Within::Nothing,
            unsettled: None,
            resumed: None,
            dir: dir.to_owned(),
            lock: None,
            saves_on_error: true,
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

    /// A lock on the directory that is held already. Without it the learner locks the directory itself, from the moment
    /// that it is told to resume or to train until training ends.
    pub fn with_lock(mut self, lock: Arc<DirectoryLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Whether what was learned before an error is saved, as it is if nothing is said.
    pub fn with_rescue(mut self, rescue: bool) -> Self {
        self.saves_on_error = rescue;
        self
    }

    /// What the run is watched by.
    pub fn with_display(mut self, display: Display) -> Self {
        self.display = display;
        self
    }

    /// A flag that, once set, ends training after the current step with a checkpoint.
    ///
    /// A step or an evaluation whose data fails by then is left to the next session, from its beginning: so whoever loads
    /// data may give up waiting for it, and what is really broken is found again.
    pub fn with_interrupt(mut self, interrupt: Arc<AtomicBool>) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Goes on from the newest whole checkpoint and says where that is; false when there is none. Nothing is written before
    /// [`train`](Self::train).
    ///
    /// A finished run goes on where the configuration asks for more steps by now. From there on its learning rate is that
    /// of the longer run, so that it ends in other bits than one which was as long from the start.
    ///
    /// # Errors
    /// When the checkpoint does not fit the model, or was made with other frozen parameters, another optimizer or another
    /// seed; and when another process trains in the directory.
    pub fn resume(&mut self) -> Result<bool, TrainError> {
        self.own_directory()?;
        let (newest, complaints) = self.checkpoints().newest();
        for complaint in complaints {
            eprintln!("{complaint}");
        }
        let Some(checkpoint) = newest else { return Ok(false) };
        if checkpoint.state.seed != self.state.seed {
            let (found, expected) = (checkpoint.state.seed, self.state.seed);
            return Err(TrainError::Seed { path: checkpoint.path, found, expected });
        }
        let path = checkpoint.path.clone();
        self.restore(checkpoint)?;
        self.resumed = Some(self.state.step);
        eprintln!("resuming from `{}`, step {}", path.display(), self.state.step);
        Ok(true)
    }

    /// Whether it can be trained on these batches; nothing is written.
    ///
    /// # Errors
    /// When there is no data, the configuration does not fit the model, or a checkpoint was made with other batches.
    pub fn check<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<(), TrainError> {
        self.steps_over(batches).map(|_| ())
    }

    /// Takes over everything a checkpoint holds.
    fn restore(&mut self, checkpoint: Checkpoint) -> Result<(), TrainError> {
        let stored = checkpoint.optimizer.names();
        if let Some(found) = Optimizer::maker(&stored).filter(|found| found != self.optimizer.title()) {
            let (path, expected) = (checkpoint.path, self.optimizer.title().to_owned());
            return Err(TrainError::Optimizer { path, found, expected });
        }
        let model = load_trainable(self.model().clone(), |name| checkpoint.model.read(name))?;
        let frozen = Some(frozen_checksum(&model));
        if checkpoint.state.frozen.is_some_and(|found| Some(found) != frozen) {
            return Err(TrainError::Frozen(checkpoint.path));
        }
        let device = self.device.clone().inner();
        let names: Vec<String> = stored.iter().filter_map(|n| n.strip_suffix(".step").map(str::to_owned)).collect();
        self.optimizer.load(names, &device, |name| checkpoint.optimizer.read(name))?;
        if let Some(decay) = self.config.ema_decay {
            let mut ema = Ema::new(decay);
            // Where none was kept until now it begins here.
            if let Some(stored) = &checkpoint.ema {
                ema.load(stored.names(), &device, |name| stored.read(name))?;
            }
            self.ema = Some(ema);
        }
        self.model = Some(model);
        self.unsettled = None;
        // A run that begins to scale its loss, or no longer does, is asked by the configuration.
        let loss_scale = self.state.loss_scale.and_then(|fresh| checkpoint.state.loss_scale.or(Some(fresh)));
        self.state = TrainState { frozen, loss_scale, ..checkpoint.state };
        // What was found best after the checkpoint lies there, and nothing worse may replace it.
        let metric = &self.config.checkpoint.metric;
        self.state.best = Exported::agree(&self.dir.join(BEST), metric, self.state.best);
        self.state.best_ema = Exported::agree(&self.dir.join(BEST_EMA), metric, self.state.best_ema);
        Ok(())
    }

    /// Trains to the end, or to an interruption. Where it stops with an error, what was learned until then is saved if it
    /// can be, so that [`resume`](Self::resume) goes on from there once the cause is mended.
    ///
    /// # Errors
    /// When data or files fail, the loss is no number, or a trainable parameter is out of reach; and when another process
    /// trains in the directory.
    pub fn train<B: Batches<Batch = O::Batch>>(&mut self, batches: &B) -> Result<Summary, TrainError> {
        let trained = self.run(batches).inspect_err(|_| self.rescue());
        self.lock = None;
        trained
    }

    fn run<B: Batches<Batch = O::Batch>>(&mut self, batches: &B) -> Result<Summary, TrainError> {
        let steps = self.steps_over(batches)?;
        check_backend(&self.device)?;
        self.own_directory()?;
        if self.asked != self.config.compute {
            eprintln!("{}", instead(self.asked, self.config.compute));
        }
        self.state.batching = Some(self.batching(batches));
        self.prepare_directory()?;
        // What was judged before the first step is judged again if no checkpoint has it.
        let from = if self.state.before.is_some() { self.state.step + 1 } else { 0 };
        let unjudged = self.state.unjudged;
        if unjudged {
            drop_evaluation(&self.dir.join(METRICS), self.state.step).map_err(io(&self.dir))?;
        }
        let going_on = unjudged || (self.state.step < steps && !self.has_stalled());
        let mut log = Records::open(&self.dir, from, self.config.csv, self.config.tensorboard && going_on)
            .map_err(io(&self.dir))?;
        if let Some(yaml) = &self.configuration {
            log.configuration(from, yaml).map_err(io(&self.dir))?;
        }
        if going_on {
            Environment::now(&self.device, self.state.step).record(&self.dir)?;
        }
        let mut session = Session {
            steps,
            log,
            progress: Progress::new(self.display, &self.name, self.state.step, steps, &self.interrupt),
            watch: Stopwatch::new(runs_ahead(&self.device)),
            meter: Meter::new(&self.device, self.config.compute),
        };
        let started = Instant::now();
        let earlier = self.state.seconds;
        let mut without_gradient = self.without_gradient();
        // Which loss terms have had something to say.
        let mut heard: Vec<bool> = Vec::new();
        // Once a session: on an accelerator the frozen parameters have to be read back for it.
        if self.state.frozen.is_none() {
            self.state.frozen = Some(frozen_checksum(self.model()));
        }

        if self.state.before.is_none() {
            self.evaluate(&mut session)?;
            self.state.before.clone_from(&self.state.latest);
        } else if unjudged {
            self.evaluate(&mut session)?;
            self.checkpoint()?;
        }
        let mut stream = batches.epoch(self.state.epoch, self.state.cursor);

        while self.state.step < steps && !self.has_stalled() && !self.interrupt.load(Ordering::Relaxed) {
            session.watch.begin(self.is_logged(self.state.step + 1, steps));
            let mut start = self.step_start();
            self.within = Within::Begun(start.clone());
            let Some(mut window) = self.load(batches, &mut stream, &session.progress)? else { break };
            session.watch.lap(Part::DataWait, &self.device);
            // Seeding by step makes dropout the same whenever the step is taken, and on whatever device.
            undertone_ops::seed(undertone_ops::seeds::of_number(self.state.seed, self.state.step + 1));
            let (gradients, found, mut report) =
                autocast(self.config.compute, || self.forward_backward(&mut window, &mut session.watch))?;
            without_gradient.retain(|name| !gradients.names().any(|n| n == name));
            heard.resize(report.terms.len(), false);
            heard.iter_mut().zip(&report.terms).for_each(|(heard, term)| *heard |= term.count > 0.0);
            // A part of the model that only some samples go through can have no gradient before the first of them.
            if heard.iter().all(|heard| *heard) {
                self.check_gradients(&without_gradient, steps)?;
            }
            report.rate = self.config.optimizer.rate(self.state.step, steps);
            if let Some(before) = self.unsettled.take() {
                // While the host waits for the numbers of the step before, the device has this one's work.
                let position = (self.state.epoch, self.state.cursor);
                self.go_back(start);
                let scale = |state: &TrainState| state.loss_scale.map(|scale| scale.scale);
                let scaled_by = scale(&self.state);
                let outcome = self.settle(before, false, &mut session)?;
                if outcome != Outcome::Taken || scale(&self.state) != scaled_by {
                    // This one began with parameters, or with a scale of the loss, that are not those to go on with.
                    stream = batches.epoch(self.state.epoch, self.state.cursor);
                    continue;
                }
                start = self.step_start();
                (self.state.epoch, self.state.cursor) = position;
                self.within = Within::Begun(start.clone());
            }
            let (samples, work) = (report.samples, report.work);
            let decided = self.step(gradients, found, report, start, &session.progress)?;
            if let Some((Outcome::RolledBack, _)) = decided {
                session.log.rewind(self.state.step + 1).map_err(io(&self.dir))?;
                self.within = Within::Nothing;
                continue;
            }
            session.watch.lap(Part::Optimizer, &self.device);
            self.state.step += 1;
            self.state.samples += samples as u64;
            session.watch.end(samples, work, &self.device);
            if let Some((_, report)) = &decided {
                self.log(&mut session, report)?;
            }
            let last = self.state.step == steps;
            let judged = last || due(self.state.step, self.config.evaluate.every);
            let saved = last || due(self.state.step, self.config.checkpoint.every);
            if (judged || saved || self.is_logged(self.state.step, steps))
                && let Some(unsettled) = self.unsettled.take()
                && self.settle(unsettled, true, &mut session)? == Outcome::RolledBack
            {
                stream = batches.epoch(self.state.epoch, self.state.cursor);
                continue;
            }

            self.state.score = None;
            self.state.unjudged = judged;
            self.within = Within::Nothing;
            if self.state.unjudged {
                self.evaluate(&mut session)?;
            }
            let stopped = self.has_stalled();
            self.saver.check()?;
            if saved || stopped {
                self.state.seconds = earlier + started.elapsed().as_secs_f64();
                self.checkpoint()?;
            }
            if stopped && !last {
                session.progress.say(&format!(
                    "step {}  no better for {} evaluations: stopping",
                    self.state.step, self.state.stalled
                ));
                break;
            }
        }

        if let Some(unsettled) = self.unsettled.take() {
            self.settle(unsettled, true, &mut session)?;
        }
        let Session { progress, watch, .. } = session;
        self.state.seconds = earlier + started.elapsed().as_secs_f64();
        let completed = !self.state.unjudged && (self.state.step >= steps || self.has_stalled());
        if !completed {
            self.checkpoint()?;
        }
        self.saver.wait()?;
        progress.finish();
        let summary = self.summary(completed, &watch);
        let path = self.dir.join("summary.json");
        // Resuming a finished run trains nothing and has nothing to say that is not there already.
        if watch.steps() > 0 || unjudged || !path.exists() {
            write_atomically(&path, serde_json::to_string_pretty(&summary).unwrap_or_default().as_bytes())?;
        }
        Ok(summary)
    }

    /// How many optimizer steps the run has over these batches, once it is clear that it can be trained on them.
    fn steps_over<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<u64, TrainError> {
        if batches.per_epoch() == 0 {
            return Err(TrainError::NoData);
        }
        let steps = self.config.steps_over(|epoch| batches.in_epoch(epoch));
        if self.config.optimizer.warmup_steps >= steps {
            return Err(TrainError::Warmup { warmup: self.config.optimizer.warmup_steps, steps });
        }
        let parameters = parameter_infos(self.model());
        check_largest(&parameters, Capacity::of(&self.device))?;
        self.config.optimizer.check(&parameters)?;
        self.directions()?;
        // A cursor means nothing once batches are cut differently.
        let expected = self.batching(batches);
        match self.state.batching {
            Some(found) if found != expected => Err(TrainError::Batching { found, expected }),
            _ => Ok(steps),
        }
    }

    /// What the cursor counts in.
    fn batching<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> (usize, usize) {
        (batches.per_epoch(), self.config.accumulation)
    }

    /// Shows the loss of the steps since the last line as one, and where a line is due, writes it and begins anew.
    fn log(&mut self, session: &mut Session, report: &StepReport) -> Result<(), TrainError> {
        let Session { steps, log, progress, watch, meter } = session;
        let (step, steps) = (report.step, *steps);
        let due = self.is_logged(step, steps);
        // What is no number has no mean with others; a step that was skipped for another reason is seen.
        if report.loss.is_finite() {
            self.state.losses.add(&report.terms);
        }
        let loss = self.state.losses.loss().unwrap_or(f64::NAN);
        let rate = watch.samples_per_second();
        let message = format!("loss {loss:.4}  {rate:.1} samples/s  wait {:.1} %", 100.0 * watch.data_wait());
        progress.step(step, &message, watch.step_time().mul_f64((steps - step) as f64), due);
        if !due {
            return Ok(());
        }
        let losses = std::mem::take(&mut self.state.losses);
        let mut values = vec![("loss", loss)];
        if losses.len() > 1 {
            values.extend(losses.means());
        }
        // What the gradient's length and the rate belong to.
        values.extend((self.config.log_every > 1).then_some((LAST_LOSS, report.loss)));
        values.extend(report.gauges.iter().copied());
        values.extend([("lr", report.rate), ("grad_norm", report.norm)]);
        if let Some(LossScale { scale, skipped, .. }) = self.state.loss_scale {
            values.extend([("loss_scale", scale), ("skipped_steps", skipped as f64)]);
        }
        log.write(step, "train", &values).map_err(io(&self.dir))?;
        let hardware = meter.hardware();
        let peak = meter.peak_flops(hardware.as_ref());
        log.perform(&watch.line(step, hardware, peak)).map_err(io(&self.dir))?;
        progress.metrics("train", values.into_iter().chain([("samples/s", rate)]));
        Ok(())
    }

    fn is_logged(&self, step: u64, steps: u64) -> bool {
        step.is_multiple_of(self.config.log_every) || step == steps
    }

    /// Begins a checkpoint; training goes on once the tensors are in host memory.
    fn checkpoint(&mut self) -> Result<(), TrainError> {
        let contents = Contents {
            state: self.state.clone(),
            model: trainable_parameters(self.model()),
            optimizer: self.optimizer.to_tensors(),
            ema: self.ema.as_ref().map(Ema::to_tensors),
        };
        let direction = self.directions()?.deciding;
        Ok(self.saver.save(contents, direction)?)
    }

    fn summary(&self, completed: bool, watch: &Stopwatch) -> Summary {
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
            samples_per_second: watch.samples_per_second(),
            data_wait: watch.data_wait(),
            peak_memory_bytes: peak_memory_bytes(),
            best: self.state.best,
            stalled: self.state.stalled,
            examples: ExampleChange::pair(&before.examples, &after.examples),
            directions: self.directions_of(&after),
            before: before.metrics,
            after: after.metrics,
            remarks: after.remarks,
        }
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.dir.join("checkpoints"))
    }

    /// Optimizer steps taken, those of earlier sessions included.
    pub fn steps(&self) -> u64 {
        self.state.step
    }

    /// What it trains on.
    pub fn objective(&self) -> &O {
        &self.objective
    }

    /// The model as it stands, with gradients.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect(MODEL)
    }
}

fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
