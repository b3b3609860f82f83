//! The run's directory, and what is saved there after an error.

use super::Learner;
use super::recovery::{PendingStep, RecoveryPoint};
use crate::TrainError;
use crate::error::io;
use crate::failure::catch_backend_failure;
use crate::objective::Objective;
use std::path::PathBuf;
use std::sync::Arc;
use undertone_store::{DirectoryLock, remove_leftovers};

impl<O: Objective> Learner<O> {
    pub(super) fn own_directory(&mut self) -> Result<(), TrainError> {
        if self.lock.is_none() && self.stepper.process_group.is_main_process() {
            self.lock = Some(Arc::new(DirectoryLock::acquire(&self.options.dir)?));
        }
        Ok(())
    }

    /// Creates the run's directory, and removes temporary files that a killed session left there.
    pub(super) fn prepare_directory(&self) -> Result<(), TrainError> {
        if !self.stepper.process_group.is_main_process() {
            return Ok(());
        }
        let checkpoints = self.options.dir.join("checkpoints");
        std::fs::create_dir_all(&checkpoints).map_err(io(&checkpoints))?;
        for dir in [&self.options.dir, &checkpoints] {
            remove_leftovers(dir)?;
        }
        // Checkpoints after the resumed one are damaged. If they stayed, rotation would take them for the newest.
        self.resumed.map_or(Ok(()), |step| Ok(self.checkpoints().remove_after(step)?))
    }

    /// Refuses to write if somebody has moved or deleted the run's directory: a new one would hold half of the run.
    pub(super) fn check_in_place(&self) -> Result<(), TrainError> {
        match self.options.dir.is_dir() {
            true => Ok(()),
            false => Err(TrainError::Moved(self.options.dir.clone())),
        }
    }

    /// Settles the state after a step that the host has not read. Once the device has told whether the parameters were
    /// updated: if they were not, the state is that before the step. Returns false if the device has failed.
    fn settle_in_rescue(&mut self) -> bool {
        let Some(PendingStep { mut report, reading, start }) = self.pending.take() else { return true };
        let Ok(numbers) = catch_backend_failure(|| reading.finish_now()) else { return false };
        if numbers.taken {
            report.fill(&numbers);
            // Like `decide` and `log`.
            if let Some(scale) = &mut self.state.loss_scale {
                scale.good(&self.config.compute.loss_scale());
            }
            let _ = self.config.guard.judge(&mut self.state.guard, report.loss, report.norm);
            self.state.losses.add(&report.terms);
        } else {
            self.stepper.take_back(report.step);
            start.restore(&mut self.state);
        }
        true
    }

    /// Returns the step of the newest complete checkpoint.
    pub fn saved(&mut self) -> Option<u64> {
        let _ = self.saver.wait();
        self.checkpoints().newest().0.map(|checkpoint| checkpoint.state.step)
    }

    /// Saves what is possible after an error. An error of the guard gets the checkpoint from which the run can be
    /// resumed.
    pub(super) fn rescued(&mut self, error: TrainError) -> TrainError {
        let TrainError::Guard { trouble, incidents, .. } = error else {
            self.rescue();
            return error;
        };
        TrainError::Guard { trouble, incidents, checkpoint: self.checkpoint_before_trouble() }
    }

    /// Returns the checkpoint to resume from after the guard has stopped training. The parameters at which it stopped
    /// are not saved. Checkpoints from which no sound loss was computed are marked, because training resumed from them
    /// would stop at the same place.
    fn checkpoint_before_trouble(&mut self) -> Option<PathBuf> {
        let _ = self.saver.wait();
        if self.stepper.process_group.is_main_process() && self.lock.is_some() {
            // If marking fails, they are resumed from, and that ends where this run did.
            let _ = self.checkpoints().doubt_after(self.state.sound.unwrap_or(0));
        }
        self.checkpoints().newest().0.map(|checkpoint| checkpoint.path)
    }

    /// After an error, saves the state before it, if that is further than the newest checkpoint. A failure to save is
    /// ignored, because the first error is the one to report.
    pub fn rescue(&mut self) {
        match std::mem::replace(&mut self.recovery, RecoveryPoint::DuringUpdate) {
            RecoveryPoint::BetweenSteps => {}
            RecoveryPoint::BeforeUpdate(start) => start.restore(&mut self.state),
            RecoveryPoint::DuringUpdate => return,
        }
        // Sharded state cannot be gathered from ranks that may be gone.
        if self.stepper.optimizer.shard().is_some() || !self.settle_in_rescue() {
            return;
        }
        let _ = self.saver.wait();
        let step = self.state.step;
        let saved = self.checkpoints().newest().0.map_or(0, |checkpoint| checkpoint.state.step);
        if !self.options.saves_on_error || self.lock.is_none() || self.stepper.model.is_none() || step <= saved {
            return;
        }
        // A device that has failed once may fail again when parameters are read from it.
        let saved = catch_backend_failure(|| {
            let optimizer = self.stepper.optimizer.to_tensors();
            self.write_checkpoint(optimizer).is_ok() && self.saver.wait().is_ok()
        });
        if saved == Ok(true) {
            tracing::info!("what was learned in {step} steps is saved: once the cause is mended, go on with --resume");
        }
    }
}
