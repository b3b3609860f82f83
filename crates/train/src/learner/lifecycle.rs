//! Beginning and end of a training session, with its checkpoints and its summary.

use super::Learner;
use super::recovery::RecoveryPoint;
use super::session::Session;
use crate::checkpoint::{Checkpoints, Contents};
use crate::ema::Ema;
use crate::largest::check_largest;
use crate::loss_scale::LossScale;
use crate::memory::peak_memory_bytes;
use crate::objective::{Batches, Objective};
use crate::report::{ExampleChange, ParameterCount, Summary};
use crate::stopwatch::Stopwatch;
use crate::{LossScaleConfig, TrainError};
use std::collections::BTreeMap;
use undertone_ops::{Capacity, Compute, check_backend};
use undertone_store::{HostTensor, frozen_checksum, parameter_infos, trainable_parameters};

impl<O: Objective> Learner<O> {
    /// Checks that training on these batches is possible. Nothing is written.
    ///
    /// # Errors
    /// When there is no data, the configuration does not fit the model, or a checkpoint was made with other batches.
    pub fn check<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<(), TrainError> {
        self.steps_over(batches).map(|_| ())
    }

    /// Does everything before the first step: checks, the directory, the logs, and an evaluation if one is due.
    pub(super) fn begin_session<B: Batches<Batch = O::Batch>>(&mut self, batches: &B) -> Result<Session, TrainError> {
        let steps = self.steps_over(batches)?;
        check_backend(&self.stepper.device)?;
        self.stepper.process_group.reset_timeout();
        self.compare_ranks(batches)?;
        self.stepper.process_group.connect_cards(&self.stepper.device)?;
        let owned = self.own_directory();
        self.stepper.process_group.all_ok(owned)?;
        let (asked, compute) = (self.config.compute.number_type(), self.stepper.compute);
        match (asked, compute) {
            (Compute::Auto, Compute::F32) => {}
            (Compute::Auto, compute) => tracing::info!("{}", chosen(compute)),
            (asked, compute) if asked != compute => tracing::warn!("{}", instead(asked, compute)),
            _ => {}
        }
        let scaling = self.config.compute.loss_scale();
        if asked == Compute::Auto && compute != Compute::F16 && scaling != LossScaleConfig::default() {
            tracing::warn!(
                "the loss scaling of `train.compute` has no effect: products are made in {compute}, not in f16"
            );
        }
        self.state.ranks = Some(self.begun_with());
        self.state.batching = Some(self.batching(batches));
        let prepared = self.prepare_directory();
        self.stepper.process_group.all_ok(prepared)?;
        let mut session = Session::open(&self.config, &self.options, &self.stepper, &self.state, steps)?;
        self.stepper.coverage = None;
        // Once per session, because on an accelerator the frozen parameters have to be read back.
        if self.state.frozen.is_none() {
            self.state.frozen = Some(frozen_checksum(self.model()));
        }
        if self.state.before.is_none() {
            self.evaluate(&mut session)?;
            self.state.before.clone_from(&self.state.latest);
        } else if session.owes_evaluation {
            self.evaluate(&mut session)?;
            self.checkpoint()?;
        }
        if self.has_stalled() && self.state.step < steps {
            session.progress.say(&format!(
                "the run was stopped early at step {}: raise `train.early_stopping.patience`, or leave early stopping out, to go on",
                self.state.step
            ));
        }
        Ok(session)
    }

    /// Does everything after the last step: the last checkpoint and the summary.
    pub(super) fn end_session(&mut self, mut session: Session) -> Result<Summary, TrainError> {
        self.stepper.process_group.reset_timeout();
        self.finish_now(&mut session)?;
        self.state.seconds = session.seconds();
        let completed = !self.state.unjudged && (self.state.step >= session.steps || self.has_stalled());
        if !completed {
            self.checkpoint()?;
        }
        if completed {
            self.export_if_none_is_best(&session.progress)?;
            // No rollback follows any more.
            self.saver.wait()?;
            self.saver.prove(self.state.step, self.directions()?.deciding);
        }
        if let Some(LossScale { skipped, scale, .. }) = self.state.loss_scale
            && 2 * skipped > self.state.step
        {
            session.progress.warn(&format!(
                "{skipped} of {} steps were skipped, because gradients overflowed f16: begin with a lower `initial_scale` of \
                 `train.compute` (it is {scale} now), or train in bf16 or f32",
                self.state.step
            ));
        }
        self.saver.wait()?;
        session.progress.finish();
        let summary = self.summary(completed, &session.watch);
        session.write_summary(&summary)?;
        Ok(summary)
    }

    /// Returns the number of optimizer steps of the run over these batches, after checking that it can train on them.
    fn steps_over<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<u64, TrainError> {
        // One that was made in code has not been loaded.
        self.config.validate()?;
        if batches.per_epoch() == 0 {
            return Err(TrainError::NoData);
        }
        let steps = self.config.steps_of_windows(self.window(), |epoch| batches.in_epoch(epoch));
        if let Some(warmup) = self.config.optimizer.warmup_steps.filter(|warmup| *warmup >= steps) {
            return Err(TrainError::Warmup { warmup, steps });
        }
        let parameters = parameter_infos(self.model());
        check_largest(&parameters, Capacity::of(&self.stepper.device))?;
        self.config.optimizer.check(&parameters)?;
        self.directions()?;
        if self.stepper.process_group.count() > self.window() {
            return Err(TrainError::IdleRanks { ranks: self.stepper.process_group.count(), batches: self.window() });
        }
        // The cursor is invalid if batches are cut differently.
        let expected = self.batching(batches);
        match self.state.batching {
            Some(found) if found != expected => Err(TrainError::Batching { found, expected }),
            _ => Ok(steps),
        }
    }

    /// Returns the unit of the cursor: batches per epoch, and batches per step.
    pub(super) fn batching<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> (usize, usize) {
        (batches.per_epoch(), self.config.accumulation * self.begun_with())
    }

    /// Returns the number of ranks at the beginning of the run. Older checkpoints do not have it; they come from one
    /// rank.
    pub(super) fn begun_with(&self) -> usize {
        let usual = if self.state.batching.is_some() { 1 } else { self.stepper.process_group.count() };
        self.state.ranks.unwrap_or(usual)
    }

    /// Whether early stopping ends the run; never before there is a reference.
    pub(super) fn has_stalled(&self) -> bool {
        self.config.is_over(self.state.reference, self.state.stalled)
    }

    /// Starts a checkpoint. Returns once the tensors are in host memory.
    pub(super) fn checkpoint(&mut self) -> Result<(), TrainError> {
        let _span = tracing::debug_span!("checkpoint", step = self.state.step).entered();
        // Diverged parameters must not be saved by a rescue either.
        self.stepper
            .compare_parameters(self.state.step)
            .inspect_err(|_| self.recovery = RecoveryPoint::DuringUpdate)?;
        // Before the copies of parameters and state are made, so that those of the checkpoint before are gone.
        if self.stepper.process_group.is_main_process() {
            self.saver.wait()?;
        }
        let optimizer = self.stepper.optimizer_state()?;
        if self.stepper.process_group.is_main_process() { self.write_checkpoint(optimizer) } else { Ok(()) }
    }

    /// Starts a checkpoint with this optimizer state.
    pub(super) fn write_checkpoint(&mut self, optimizer: BTreeMap<String, HostTensor>) -> Result<(), TrainError> {
        self.check_in_place()?;
        let contents = Contents {
            state: self.state.clone(),
            model: trainable_parameters(self.model()),
            optimizer,
            ema: self.stepper.ema.as_ref().map(Ema::to_tensors),
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
            name: self.options.name(),
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
            intervals: after.intervals,
            remarks: after.remarks,
        }
    }

    pub(super) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.options.dir.join("checkpoints"))
    }
}

/// Message if `compute: auto` chose the type.
fn chosen(compute: Compute) -> String {
    let scaled = if compute == Compute::F16 { " with a scaled loss" } else { "" };
    format!(
        "products are made in {compute}{scaled}, as suits this card; `train.compute: f32` keeps all their bits and is slower"
    )
}

/// Message if the device uses another type than the one that the configuration asks for.
fn instead(asked: Compute, compute: Compute) -> String {
    let scaled = if compute == Compute::F16 { ", and the loss is scaled" } else { "" };
    format!(
        "`train.compute` asks for {asked}, which this device does not multiply in: products are made in {compute}{scaled}"
    )
}
