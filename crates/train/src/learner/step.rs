//! One optimizer step of a run: computed, decided about, counted and logged.

use super::Learner;
use super::recovery::{PendingStep, RecoveryPoint, StateBeforeStep};
use super::session::Session;
use crate::checkpoint::TrainState;
use crate::guard::{Trouble, Verdict};
use crate::objective::Objective;
use crate::stepper::{ComputedStep, Plan, StepOutcome, StepReport, StepSettings};
use crate::stopwatch::Section;
use crate::{Progress, TrainError};
use undertone_ops::{check_backend, seeds};

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
        check_backend(&self.stepper.device)?;
        let plan = self.stepper.plan_of(batches)?;
        if plan.terms.is_empty() {
            return Err(TrainError::NoData);
        }
        let mut session =
            Session::unlogged(&self.stepper.device, self.config.steps_without_epochs(), Progress::lines());
        let start = StateBeforeStep::of(&self.state);
        self.recovery = RecoveryPoint::BeforeUpdate(start.clone());
        // Of a run that has failed.
        self.pending = None;
        let taken = self.take_step(batches, plan, start.clone(), true, &mut session);
        if taken.is_err() {
            start.restore(&mut self.state);
        }
        self.recovery = RecoveryPoint::BetweenSteps;
        Ok(taken?.expect("no step is pending before this one, so it is not discarded"))
    }

    /// Takes the step on `batches` that began at `start`, counts and logs it. It does not count if it is rolled back, or
    /// discarded because it began with parameters, or with a loss scale, that are no longer valid.
    ///
    /// Returns its outcome and numbers, if the host has decided about it or `must_know` what the device has decided.
    pub(super) fn take_step(
        &mut self,
        batches: &mut [O::Batch],
        plan: Plan,
        mut start: StateBeforeStep,
        must_know: bool,
        session: &mut Session,
    ) -> Result<Option<(StepOutcome, StepReport)>, TrainError> {
        let step = self.state.step + 1;
        let settings = StepSettings {
            step,
            seed: seeds::of_number(self.state.seed, step),
            loss_scale: self.state.loss_scale.map_or(1.0, |scale| scale.scale),
            learning_rate: self.config.optimizer.rate(self.state.step.min(session.steps - 1), session.steps),
        };
        let computed = self.stepper.compute(batches, plan, settings, &mut session.watch)?;
        self.stepper.check_coverage(&computed, session.steps)?;
        // While the host waits for the loss of the step before, the device computes this one.
        if !self.finish_step_before(&mut start, session)? {
            return Ok(None);
        }
        let (samples, work) = (computed.report.samples, computed.report.work);
        let decided = self.unscale_clip_step(computed, start, &session.progress)?;
        if let Some((StepOutcome::RolledBack, _)) = decided {
            session.rewind(self.state.step)?;
            self.recovery = RecoveryPoint::BetweenSteps;
            return Ok(decided);
        }
        session.watch.lap(Section::Optimizer, &self.stepper.device);
        self.state.step += 1;
        self.state.samples += samples as u64;
        session.watch.end(samples, work, &self.stepper.device);
        if let Some((_, report)) = &decided {
            session.log(&mut self.state, report)?;
        }
        if must_know && decided.is_none() { self.finish_now(session) } else { Ok(decided) }
    }

    /// Unscales and clips the gradients, and updates the parameters if loss and gradient norm allow it. Returns the
    /// outcome if the host decides. Otherwise the step is [`pending`](Learner::pending).
    fn unscale_clip_step(
        &mut self,
        mut computed: ComputedStep,
        start: StateBeforeStep,
        progress: &Progress,
    ) -> Result<Option<(StepOutcome, StepReport)>, TrainError> {
        let _span = tracing::debug_span!("optimizer", step = computed.report.step).entered();
        let clip_norm = self.config.optimizer.clip_norm;
        if self.stepper.decides_ahead() {
            let highest_loss = self.config.guard.highest(&self.state.guard);
            let control = self.stepper.control(&mut computed, clip_norm, highest_loss);
            // Before the update, so that reading does not wait for it.
            let reading = control.read_behind();
            self.recovery = RecoveryPoint::DuringUpdate;
            self.stepper.update(&mut computed, Some(&control))?;
            self.pending = Some(PendingStep { report: computed.report, reading, start });
            return Ok(None);
        }
        self.stepper.clip(&mut computed, clip_norm)?;
        let outcome = self.decide(&computed.report, progress)?;
        self.recovery = RecoveryPoint::DuringUpdate;
        if outcome == StepOutcome::Taken {
            self.stepper.update(&mut computed, None)?;
        }
        Ok(Some((outcome, computed.report)))
    }

    /// Finishes the pending step before the one that began at `start`, if any. Returns whether the latter may continue.
    fn finish_step_before(&mut self, start: &mut StateBeforeStep, session: &mut Session) -> Result<bool, TrainError> {
        let Some(before) = self.pending.take() else { return Ok(true) };
        let position = (self.state.epoch, self.state.cursor);
        start.clone().restore(&mut self.state);
        let scale = |state: &TrainState| state.loss_scale.map(|scale| scale.scale);
        let scaled_by = scale(&self.state);
        let (outcome, _) = self.finish(before, false, session)?;
        if outcome != StepOutcome::Taken || scale(&self.state) != scaled_by {
            return Ok(false);
        }
        *start = StateBeforeStep::of(&self.state);
        (self.state.epoch, self.state.cursor) = position;
        self.recovery = RecoveryPoint::BeforeUpdate(start.clone());
        Ok(true)
    }

    /// Finishes the pending step, if any, while the device has nothing else to do.
    pub(super) fn finish_now(
        &mut self,
        session: &mut Session,
    ) -> Result<Option<(StepOutcome, StepReport)>, TrainError> {
        let pending = self.pending.take();
        pending.map(|pending| self.finish(pending, true, session)).transpose()
    }

    /// Reads the outcome of a step about which the device has decided, reacts to it and logs the step. `now` means that
    /// the device has nothing else to do meanwhile. After an error the state is that before the step.
    fn finish(
        &mut self,
        PendingStep { mut report, reading, start }: PendingStep,
        now: bool,
        session: &mut Session,
    ) -> Result<(StepOutcome, StepReport), TrainError> {
        // If the device fails here, it is unknown whether the parameters are those before or after the step.
        self.recovery = RecoveryPoint::DuringUpdate;
        let numbers = if now { reading.finish_now() } else { reading.finish() };
        report.fill(&numbers);
        if !numbers.taken {
            self.stepper.take_back(report.step);
        }
        self.recovery = RecoveryPoint::BeforeUpdate(start);
        let outcome = self.decide(&report, &session.progress)?;
        self.recovery = RecoveryPoint::DuringUpdate;
        if outcome == StepOutcome::RolledBack {
            session.rewind(self.state.step)?;
        } else {
            session.log(&mut self.state, &report)?;
        }
        self.recovery = RecoveryPoint::BetweenSteps;
        Ok((outcome, report))
    }

    /// Records that the parameters of step `sound` gave a loss that is finite and no spike.
    fn prove(&mut self, sound: u64) -> Result<(), TrainError> {
        self.state.sound = Some(sound);
        if self.stepper.process_group.is_main_process() && self.lock.is_some() {
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
        let trouble = || Trouble { step, loss, norm, usual, samples: report.names.clone() };
        match verdict {
            Verdict::Go if usual.is_none() => self.prove(step - 1)?,
            Verdict::Go => {}
            Verdict::Warn => progress.warn(&trouble().to_string()),
            Verdict::Skip => {
                progress.warn(&format!("{}: the step is skipped", trouble()));
                return Ok(StepOutcome::Skipped);
            }
            Verdict::Rollback => return self.roll_back(&trouble(), progress),
            Verdict::Stop => {
                let incidents = self.state.guard.incidents;
                return Err(TrainError::Guard { trouble: trouble(), incidents, checkpoint: None });
            }
        }
        Ok(StepOutcome::Taken)
    }
}
