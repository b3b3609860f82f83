//! One optimizer step: its gradients, and the update.

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
    /// Takes one optimizer step on these batches, as in [`train`](Self::train): the loss is the sum over all batches
    /// divided by their count, with the same precision, loss scale, clipping, guard and average of the weights. Nothing
    /// is logged, evaluated or saved.
    ///
    /// The learning rate is that of a run of `max_steps` steps, or of 1000 if the configuration has none, because only
    /// you know the length of an epoch.
    ///
    /// # Errors
    /// When a batch does not fit the model, the loss is not finite, or a trainable parameter never receives a gradient.
    /// The model is then as it was before the step.
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

    /// Computes the gradients of the mean loss of the step: each term's sum over all its batches divided by its count
    /// over all its batches. On a device that runs ahead, the loss is not read yet.
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
        // Seeding by step makes dropout the same on any device and in any session.
        let seed = undertone_ops::seeds::of_number(self.state.seed, step);
        let (objective, device, compute) = (&self.objective, &self.device, self.config.compute.number_type());
        let passes = BatchPasses { objective, device, compute, terms: &terms, scale, step, seed };
        // One call around all batches, because on the CPU it sets the whole process.
        autocast(compute, || {
            let at_a_time = self.concurrency.at_a_time();
            let rounds = batches.len().div_ceil(at_a_time);
            // In rounds, so that at most as many gradients wait to be added as batches are computed at a time.
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

    /// Adds the result of one batch to the step.
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

    /// Refuses a run in which a trainable parameter never receives a gradient.
    pub(super) fn check_coverage(&mut self, computed: &ComputedStep, steps: u64) -> Result<(), TrainError> {
        if self.coverage.is_none() {
            // Parameters with optimizer state had a gradient in an earlier session.
            let trainable = parameter_infos(self.model()).into_iter().filter(|p| p.trainable).map(|p| p.name);
            let missing: Vec<String> = trainable.filter(|name| !self.optimizer.has_state(name)).collect();
            self.coverage = Some(GradientCoverage::new(missing));
        }
        let Some(coverage) = &mut self.coverage else { return Ok(()) };
        coverage.observe(computed.gradients.names(), &computed.report.terms);
        coverage.check(self.state.step + 1, steps)
    }

    /// Whether the device itself decides about the update, so that it need not wait until the host has read the loss.
    pub(super) fn decides_ahead(&self) -> bool {
        // Sums over ranks go through the host.
        runs_ahead(&self.device) && self.process_group.is_alone()
    }

    /// Unscales and clips the gradients, and updates the parameters if loss and gradient norm allow it. Returns the
    /// outcome if the host decides. Otherwise the step is [`pending`](Learner::pending).
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

    /// Updates the parameters if the device finds that loss and gradient norm allow it.
    fn step_ahead(&mut self, computed: ComputedStep, start: StateBeforeStep) -> Result<(), TrainError> {
        let ComputedStep { mut gradients, losses, report, .. } = computed;
        let rules = StepRules {
            gradient_scale: gradients.scale(),
            clip_norm: self.config.optimizer.clip_norm,
            highest_loss: self.config.guard.highest(&self.state.guard),
        };
        let squares = gradients.squared_norm().unwrap_or_else(|| Tensor::zeros([1], &self.device.clone().inner()));
        let control = losses.control(squares, rules);
        // Before the update, so that reading does not wait for it.
        let reading = control.read_behind();
        self.recovery = RecoveryPoint::DuringUpdate;
        self.move_parameters(&mut gradients, report.rate, Some(&control))?;
        self.pending = Some(PendingStep { report, reading, start });
        Ok(())
    }

    /// Takes the optimizer's step, and updates the moving average.
    fn move_parameters(
        &mut self,
        gradients: &mut GradientSum,
        rate: f64,
        control: Option<&StepControl>,
    ) -> Result<(), TrainError> {
        // Moved, not cloned: a parameter that nothing else holds is updated in place.
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

    /// Counts a step, and logs it if its loss is known. Returns false if it was rolled back.
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

    /// Finishes the pending step before the one that began at `start`, if any. Returns whether the latter may continue.
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

    /// Finishes the pending step, if any, while the device has nothing else to do.
    pub(super) fn finish_now(&mut self, session: &mut Session) -> Result<Option<StepOutcome>, TrainError> {
        let pending = self.pending.take();
        pending.map(|pending| self.finish_and_log(pending, true, session)).transpose()
    }

    /// Like [`finish`](Self::finish), and logs the step.
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

    /// Reads the outcome of a step about which the device has decided, and reacts to it. `now` means that the device
    /// has nothing else to do meanwhile. After an error the state is that before the step.
    fn finish(
        &mut self,
        PendingStep { mut report, reading, start }: PendingStep,
        now: bool,
        progress: &Progress,
    ) -> Result<(StepOutcome, StepReport), TrainError> {
        // If the device fails here, it is unknown whether the parameters are those before or after the step.
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

    /// Takes the last step off the step counts, because it did not update parameters.
    pub(super) fn forget_step(&mut self, step: u64) {
        self.optimizer.take_back();
        if let Some(ema) = &mut self.ema {
            ema.take_back(step);
        }
    }

    /// Records that the parameters of step `sound` gave a loss that is finite and no spike.
    fn prove(&mut self, sound: u64) -> Result<(), TrainError> {
        self.state.sound = Some(sound);
        if self.process_group.is_main_process() && self.lock.is_some() {
            self.saver.prove(sound, self.directions()?.deciding);
        }
        Ok(())
    }

    /// Decides whether a step may update the parameters, and reacts if it may not.
    fn decide(&mut self, report: &StepReport, progress: &Progress) -> Result<StepOutcome, TrainError> {
        let StepReport { step, loss, norm, .. } = *report;
        if let Some(scale) = &mut self.state.loss_scale {
            if loss.is_finite() && norm.is_finite() {
                scale.good(&self.config.compute.loss_scale());
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
