//! One optimizer step: its gradients, and what becomes of it.

use super::batch::{BatchPasses, BatchResult};
use super::loss_terms::WindowTerms;
use super::ranks::all_parts;
use super::recovery::{RecoveryPoint, StateBeforeStep};
use super::session::Session;
use super::step_batches::Plan;
use super::step_report::{ComputedStep, DeviceLosses, PendingStep, StepOutcome, StepReport};
use super::{Learner, MODEL};
use crate::checkpoint::TrainState;
use crate::gradient_coverage::GradientCoverage;
use crate::gradients::BackwardMode;
use crate::guard::{Trouble, Verdict};
use crate::objective::Objective;
use crate::stopwatch::{Section, Stopwatch};
use crate::{BatchStats, GradientSum, Progress, TrainError};
use burn::tensor::Tensor;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use undertone_ops::{StepControl, StepRules, autocast, check_backend, runs_ahead};
use undertone_store::parameter_infos;

impl<O: Objective> Learner<O> {
    /// Takes one optimizer step on these batches, whose loss is the sum over all of them by their count, as in
    /// [`train`](Self::train): with its precision, loss scale, clipping, guard and average of the weights. Nothing is
    /// logged, judged or saved.
    ///
    /// The learning rate is that of a run of `max_steps` steps, or of 1000 where the configuration has none: what an epoch
    /// is, only the caller knows.
    ///
    /// # Errors
    /// When a batch does not fit the model, the loss is no number, or a trainable parameter is out of reach. The model is
    /// then as it was before the step.
    pub fn step(&mut self, batches: &mut [O::Batch]) -> Result<(StepOutcome, StepReport), TrainError> {
        check_backend(&self.device)?;
        let plan = self.plan_of(batches)?;
        if plan.counts.is_empty() {
            return Err(TrainError::NoData);
        }
        let (steps, progress) = (self.config.steps_without_epochs(), Progress::lines());
        let mut watch = Stopwatch::new(runs_ahead(&self.device));
        let start = StateBeforeStep::of(&self.state);
        self.recovery = RecoveryPoint::BeforeUpdate(start.clone());
        let taken = (|| {
            let computed = self.forward_backward_accumulate(batches, plan, &mut watch);
            let mut computed = self.share_out(computed)?;
            self.check_coverage(&computed, steps)?;
            computed.report.rate = self.config.optimizer.rate(self.state.step.min(steps - 1), steps);
            let decided = self.unscale_clip_step(computed, start.clone(), &progress)?;
            if decided.as_ref().is_none_or(|(outcome, _)| *outcome != StepOutcome::RolledBack) {
                self.state.step += 1;
            }
            match (decided, self.pending.take()) {
                (Some(decided), _) => Ok(decided),
                (None, Some(pending)) => self.finish(pending, true, &progress),
                (None, None) => unreachable!("a step is decided, or its numbers are still to be read"),
            }
        })();
        match &taken {
            Ok((StepOutcome::RolledBack, _)) => {}
            Ok((_, report)) => self.state.samples += report.samples as u64,
            Err(_) => start.restore(&mut self.state),
        }
        self.recovery = RecoveryPoint::BetweenSteps;
        taken
    }

    /// Gradients of the window's mean loss: each term's sum over the window by its count over the window. On a device that
    /// runs ahead the loss itself is still to be read.
    pub(super) fn forward_backward_accumulate(
        &mut self,
        batches: &mut [O::Batch],
        plan: Plan,
        watch: &mut Stopwatch,
    ) -> Result<ComputedStep, TrainError> {
        let Plan { places, counts, names } = plan;
        let began = Instant::now();
        let terms = Mutex::new(WindowTerms::of_counts(counts));
        let scale = self.state.loss_scale.map_or(1.0, |scale| scale.scale);
        let step = self.state.step + 1;
        let mut computed = ComputedStep {
            gradients: GradientSum::of_scaled_loss(scale),
            losses: DeviceLosses::default(),
            report: StepReport { step, names, ..StepReport::default() },
            during: BackwardMode::Nothing,
            computing: Duration::ZERO,
            ranks: None,
        };
        // Seeding by step makes dropout the same whenever the step is taken, and on whatever device.
        let seed = undertone_ops::seeds::of_number(self.state.seed, step);
        let (objective, device, compute) = (&self.objective, &self.device, self.config.compute);
        let passes = BatchPasses { objective, device, compute, terms: &terms, scale, step, seed };
        // Around all of them, for on the CPU it sets the whole process.
        autocast(compute, || {
            let at_a_time = self.concurrency.at_a_time();
            let rounds = batches.len().div_ceil(at_a_time);
            // In rounds, so that no more gradients wait to be added than are computed at a time.
            for (round, (batches, places)) in batches.chunks_mut(at_a_time).zip(places.chunks(at_a_time)).enumerate() {
                let mut during = self.during_backward(round + 1 == rounds, &mut computed.gradients);
                let results = passes.round(&self.concurrency, self.model(), batches, places, &mut during, watch);
                during.give_back(&mut computed.gradients);
                computed.during = during;
                for result in results {
                    self.add(result?, &terms, &mut computed);
                }
            }
            Ok::<(), TrainError>(())
        })?;
        if batches.len() > 1 && !runs_ahead(&self.device) {
            self.concurrency.settle(batches.len());
        }
        computed.computing = began.elapsed().saturating_sub(computed.during.waited());
        computed.report.gauges = batches.last().map(|batch| self.objective.gauges(batch)).unwrap_or_default();
        Ok(computed)
    }

    /// Adds what one batch gave to the step.
    fn add(&self, batch: BatchResult, terms: &Mutex<WindowTerms>, computed: &mut ComputedStep) {
        let ComputedStep { gradients, losses, report, .. } = computed;
        if report.terms.is_empty() {
            report.terms = terms.lock().unwrap_or_else(PoisonError::into_inner).named();
        }
        gradients.merge(batch.gradients);
        if self.decides_ahead() {
            losses.add(batch.shares)
        } else {
            report.add(batch.shares)
        }
        report.samples += batch.samples;
        report.work += batch.work;
    }

    /// Refuses a run in which some trainable parameter never receives a gradient.
    pub(super) fn check_coverage(&mut self, computed: &ComputedStep, steps: u64) -> Result<(), TrainError> {
        if self.coverage.is_none() {
            // Those with optimizer state had a gradient in an earlier session.
            let trainable = parameter_infos(self.model()).into_iter().filter(|p| p.trainable).map(|p| p.name);
            let missing: Vec<String> = trainable.filter(|name| !self.optimizer.has_state(name)).collect();
            self.coverage = Some(GradientCoverage::new(missing));
        }
        let Some(coverage) = &mut self.coverage else { return Ok(()) };
        coverage.observe(computed.gradients.names(), &computed.report.terms);
        coverage.check(self.state.step + 1, steps)
    }

    /// Whether the device itself decides if parameters move, so that it need not wait for the host to have seen the loss.
    pub(super) fn decides_ahead(&self) -> bool {
        // What ranks add up passes through the host.
        runs_ahead(&self.device) && self.process_group.is_alone()
    }

    /// Moves the parameters, if the numbers of the step allow it, by gradients without the loss's scale and no longer than
    /// they may be. What was found and decided is known at once where the host decides; else the step is
    /// [`pending`](Learner::pending).
    pub(super) fn unscale_clip_step(
        &mut self,
        computed: ComputedStep,
        start: StateBeforeStep,
        progress: &Progress,
    ) -> Result<Option<(StepOutcome, StepReport)>, TrainError> {
        let _span = tracing::debug_span!("optimizer", step = computed.report.step).entered();
        if self.decides_ahead() {
            self.step_ahead(computed, start)?;
            return Ok(None);
        }
        let ComputedStep { mut gradients, mut report, .. } = computed;
        let squared_norm_of_parts = self.squared_norm_of_parts(&gradients)?;
        report.norm = gradients.clip_beside(squared_norm_of_parts, self.config.optimizer.clip_norm);
        let outcome = self.decide(&report, progress)?;
        self.recovery = RecoveryPoint::DuringUpdate;
        if outcome == StepOutcome::Taken {
            self.move_parameters(&mut gradients, report.rate, None)?;
        }
        Ok(Some((outcome, report)))
    }

    /// Moves the parameters if the device finds that the numbers of the step allow it.
    fn step_ahead(&mut self, computed: ComputedStep, start: StateBeforeStep) -> Result<(), TrainError> {
        let ComputedStep { mut gradients, losses, report, .. } = computed;
        let rules = StepRules {
            gradient_scale: gradients.scale(),
            clip_norm: self.config.optimizer.clip_norm,
            highest_loss: self.config.guard.highest(&self.state.guard),
        };
        let squares = gradients.squared_norm().unwrap_or_else(|| Tensor::zeros([1], &self.device.clone().inner()));
        let control = losses.control(squares, rules);
        // Before the parameters move, so that it is not behind them.
        let reading = control.read_behind();
        self.recovery = RecoveryPoint::DuringUpdate;
        self.move_parameters(&mut gradients, report.rate, Some(&control))?;
        self.pending = Some(PendingStep { report, reading, start });
        Ok(())
    }

    /// Takes the optimizer's step, and that of the averages.
    fn move_parameters(
        &mut self,
        gradients: &mut GradientSum,
        rate: f64,
        control: Option<&StepControl>,
    ) -> Result<(), TrainError> {
        // Moved, not cloned: a parameter that nothing else holds is changed where it lies.
        let model = self.model.take().expect(MODEL);
        let (process_group, shard) = (&self.process_group, self.shard());
        let whole = |moved| match shard {
            Some(shard) => all_parts(process_group, shard, moved),
            None => Ok(moved),
        };
        self.model = Some(self.optimizer.sharded_step(model, gradients, rate, control, whole)?);
        if let Some(ema) = &mut self.ema {
            ema.update(self.model.as_ref().expect(MODEL), self.state.step + 1, control);
        }
        Ok(())
    }

    /// Counts a step, and logs it where its numbers are known; false where it was rolled back.
    pub(super) fn count_and_log(
        &mut self,
        decided: Option<(StepOutcome, StepReport)>,
        (samples, work): (usize, BatchStats),
        session: &mut Session,
    ) -> Result<bool, TrainError> {
        if let Some((StepOutcome::RolledBack, _)) = decided {
            session.rewind(self.state.step)?;
            self.recovery = RecoveryPoint::BetweenSteps;
            return Ok(false);
        }
        session.watch.lap(Section::Optimizer, &self.device);
        self.state.step += 1;
        self.state.samples += samples as u64;
        session.watch.end(samples, work, &self.device);
        if let Some((_, report)) = &decided {
            session.log(&mut self.state, report)?;
        }
        Ok(true)
    }

    /// Hears of the step before the one that began at `start`, where it is pending; whether that one may go on.
    pub(super) fn finish_step_before(
        &mut self,
        start: &mut StateBeforeStep,
        session: &mut Session,
    ) -> Result<bool, TrainError> {
        let Some(before) = self.pending.take() else { return Ok(true) };
        let position = (self.state.epoch, self.state.cursor);
        start.clone().restore(&mut self.state);
        let scale = |state: &TrainState| state.loss_scale.map(|scale| scale.scale);
        let scaled_by = scale(&self.state);
        let outcome = self.finish_and_log(before, false, session)?;
        if outcome != StepOutcome::Taken || scale(&self.state) != scaled_by {
            return Ok(false);
        }
        *start = StateBeforeStep::of(&self.state);
        (self.state.epoch, self.state.cursor) = position;
        self.recovery = RecoveryPoint::BeforeUpdate(start.clone());
        Ok(true)
    }

    /// Hears of the last step, where it is pending, with nothing else for the device to do meanwhile.
    pub(super) fn finish_now(&mut self, session: &mut Session) -> Result<Option<StepOutcome>, TrainError> {
        let pending = self.pending.take();
        pending.map(|pending| self.finish_and_log(pending, true, session)).transpose()
    }

    /// As [`finish`](Self::finish), and writes the step down.
    fn finish_and_log(
        &mut self,
        pending: PendingStep,
        now: bool,
        session: &mut Session,
    ) -> Result<StepOutcome, TrainError> {
        let (outcome, report) = self.finish(pending, now, &session.progress)?;
        if outcome == StepOutcome::RolledBack {
            session.rewind(self.state.step)?;
        } else {
            session.log(&mut self.state, &report)?;
        }
        self.recovery = RecoveryPoint::BetweenSteps;
        Ok(outcome)
    }

    /// Hears of a step that the device has decided on, `now` with nothing else for it to do meanwhile, and does what is to
    /// be done about it. After an error the state is that before the step.
    fn finish(
        &mut self,
        PendingStep { mut report, reading, start }: PendingStep,
        now: bool,
        progress: &Progress,
    ) -> Result<(StepOutcome, StepReport), TrainError> {
        // Where the device fails here, it is not known whether the parameters are those before the step or after it.
        self.recovery = RecoveryPoint::DuringUpdate;
        let numbers = if now { reading.finish_now() } else { reading.finish() };
        report.fill(&numbers);
        if !numbers.taken {
            self.forget_step(report.step);
        }
        self.recovery = RecoveryPoint::BeforeUpdate(start);
        let outcome = self.decide(&report, progress)?;
        self.recovery = RecoveryPoint::DuringUpdate;
        Ok((outcome, report))
    }

    /// Takes back what the last step counted, in which no parameter moved.
    pub(super) fn forget_step(&mut self, step: u64) {
        self.optimizer.take_back();
        if let Some(ema) = &mut self.ema {
            ema.take_back(step);
        }
    }

    /// Takes note that the parameters of step `sound` gave a loss to go on with.
    fn prove(&mut self, sound: u64) -> Result<(), TrainError> {
        self.state.sound = Some(sound);
        if self.process_group.is_main_process() && self.lock.is_some() {
            self.saver.prove(sound, self.directions()?.deciding);
        }
        Ok(())
    }

    /// Whether a step may move the parameters, and what is done if not.
    fn decide(&mut self, report: &StepReport, progress: &Progress) -> Result<StepOutcome, TrainError> {
        let StepReport { step, loss, norm, .. } = *report;
        if let Some(scale) = &mut self.state.loss_scale {
            if loss.is_finite() && norm.is_finite() {
                scale.good(&self.config.loss_scale);
            } else if scale.overflow() {
                return Ok(StepOutcome::Skipped);
            }
        }
        let (verdict, usual) = self.config.guard.judge(&mut self.state.guard, loss, norm);
        if verdict == Verdict::Go {
            if usual.is_none() {
                self.prove(step - 1)?;
            }
            return Ok(StepOutcome::Taken);
        }
        let trouble = Trouble { step, loss, norm, usual, samples: report.names.clone() };
        match verdict {
            Verdict::Go => Ok(StepOutcome::Taken),
            Verdict::Warn => {
                progress.warn(&trouble.to_string());
                Ok(StepOutcome::Taken)
            }
            Verdict::Skip => {
                progress.warn(&format!("{trouble}: the step is skipped"));
                Ok(StepOutcome::Skipped)
            }
            Verdict::Rollback => self.roll_back(&trouble, progress),
            Verdict::Stop => {
                Err(TrainError::Guard { trouble, incidents: self.state.guard.incidents, checkpoint: None })
            }
        }
    }
}
