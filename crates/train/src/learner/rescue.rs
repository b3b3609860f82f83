//! The run's directory, and what an error leaves in it.

use super::Learner;
use super::recovery::RecoveryPoint;
use super::step_report::{PendingStep, StepReport};
use crate::TrainError;
use crate::error::io;
use crate::failure::catch_backend_failure;
use crate::objective::Objective;
use std::path::PathBuf;
use std::sync::Arc;
use undertone_store::{DirectoryLock, remove_leftovers};

impl<O: Objective> Learner<O> {
    pub(super) fn own_directory(&mut self) -> Result<(), TrainError> {
        if self.lock.is_none() && self.process_group.is_main_process() {
            self.lock = Some(Arc::new(DirectoryLock::acquire(&self.dir)?));
        }
        Ok(())
    }

    /// Makes the run's directory, or clears it of what a killed session was writing.
    pub(super) fn prepare_directory(&self) -> Result<(), TrainError> {
        if !self.process_group.is_main_process() {
            return Ok(());
        }
        let checkpoints = self.dir.join("checkpoints");
        std::fs::create_dir_all(&checkpoints).map_err(io(&checkpoints))?;
        for dir in [&self.dir, &checkpoints] {
            remove_leftovers(dir)?;
        }
        // What lies beyond the one that was resumed is damaged; left there, rotation would take it for the newest.
        self.resumed.map_or(Ok(()), |step| Ok(self.checkpoints().remove_after(step)?))
    }

    /// Takes a step into account that went well, as `decide` and `log` do.
    fn remember(&mut self, report: &StepReport) {
        if let Some(scale) = &mut self.state.loss_scale {
            scale.good(&self.config.loss_scale);
        }
        let _ = self.config.guard.judge(&mut self.state.guard, report.loss, report.norm);
        self.state.losses.add(&report.terms);
    }

    /// What of the state a step that the host has not seen leaves, once the device has said whether parameters moved: those
    /// of a step that found no numbers to go on with are those before it.
    fn settle_in_rescue(&mut self) -> bool {
        let Some(PendingStep { mut report, reading, start }) = self.pending.take() else { return true };
        let Ok(numbers) = catch_backend_failure(|| reading.finish_now()) else { return false };
        if numbers.taken {
            report.fill(&numbers);
            self.remember(&report);
        } else {
            self.forget_step(report.step);
            start.restore(&mut self.state);
        }
        true
    }

    /// The step of the newest whole checkpoint.
    pub fn saved(&mut self) -> Option<u64> {
        let _ = self.saver.wait();
        self.checkpoints().newest().0.map(|checkpoint| checkpoint.state.step)
    }

    /// What an error leaves: one that training goes on after names the checkpoint to go on from.
    pub(super) fn rescued(&mut self, error: TrainError) -> TrainError {
        let TrainError::Guard { trouble, incidents, .. } = error else {
            self.rescue();
            return error;
        };
        TrainError::Guard { trouble, incidents, checkpoint: self.checkpoint_before_trouble() }
    }

    /// The checkpoint to go on from after the guard has stopped training. The parameters that it was stopped at are not
    /// saved, and the checkpoints that no loss was found with are marked: going on from them, training would only stop
    /// there again.
    fn checkpoint_before_trouble(&mut self) -> Option<PathBuf> {
        let _ = self.saver.wait();
        if self.process_group.is_main_process() && self.lock.is_some() {
            // Unmarked, they are gone on from, and that ends where this one did.
            let _ = self.checkpoints().doubt_after(self.state.sound.unwrap_or(0));
        }
        self.checkpoints().newest().0.map(|checkpoint| checkpoint.path)
    }

    /// After an error, saves where training stood before it, if that is further than the newest checkpoint. What cannot
    /// be saved either is left: the error is the one to be told.
    pub fn rescue(&mut self) {
        match std::mem::replace(&mut self.recovery, RecoveryPoint::DuringUpdate) {
            RecoveryPoint::BetweenSteps => {}
            RecoveryPoint::BeforeUpdate(start) => start.restore(&mut self.state),
            RecoveryPoint::DuringUpdate => return,
        }
        // State that is shared out cannot be gathered from ranks that may be gone.
        if self.shard().is_some() || !self.settle_in_rescue() {
            return;
        }
        let _ = self.saver.wait();
        let step = self.state.step;
        let saved = self.checkpoints().newest().0.map_or(0, |checkpoint| checkpoint.state.step);
        if !self.saves_on_error || self.lock.is_none() || self.model.is_none() || step <= saved {
            return;
        }
        // A device that has failed once may fail again when the parameters are read from it.
        let saved = catch_backend_failure(|| {
            let optimizer = self.optimizer.to_tensors();
            self.write_checkpoint(optimizer).is_ok() && self.saver.wait().is_ok()
        });
        if saved == Ok(true) {
            tracing::info!("what was learned in {step} steps is saved: once the cause is mended, go on with --resume");
        }
    }
}
