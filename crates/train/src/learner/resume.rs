//! Resume and rollback.

use super::Learner;
use super::recovery::RecoveryPoint;
use crate::checkpoint::{Checkpoint, TrainState};
use crate::exported::{BEST, BEST_EMA, Exported};
use crate::guard::Trouble;
use crate::objective::Objective;
use crate::stepper::StepOutcome;
use crate::{Progress, TrainError};

impl<O: Objective> Learner<O> {
    /// Resumes from the newest complete checkpoint, and logs which it is. Returns false if there is none. Nothing is
    /// written before [`train`](Self::train).
    ///
    /// A finished run continues if the configuration asks for more steps by now. From there on its learning rate is
    /// that of the longer run, so its result is not bit-identical to that of a run that was as long from the start.
    ///
    /// # Errors
    /// When the checkpoint does not fit the model, or was made with other frozen parameters, another optimizer or
    /// another seed; and when another process trains in the directory.
    pub fn resume(&mut self) -> Result<bool, TrainError> {
        let owned = self.own_directory();
        self.stepper.process_group.all_ok(owned)?;
        let (newest, complaints) = self.checkpoints().newest();
        for complaint in complaints {
            tracing::warn!("{complaint}");
        }
        let Some(checkpoint) = newest else { return Ok(false) };
        if checkpoint.state.seed != self.state.seed {
            let (found, expected) = (checkpoint.state.seed, self.state.seed);
            return Err(TrainError::Seed { path: checkpoint.path, found, expected });
        }
        let path = checkpoint.path.clone();
        self.restore(checkpoint)?;
        self.resumed = Some(self.state.step);
        if self.stepper.process_group.is_main_process() {
            tracing::info!("resuming from `{}`, step {}", path.display(), self.state.step);
        }
        Ok(true)
    }

    /// Loads everything from a checkpoint.
    fn restore(&mut self, checkpoint: Checkpoint) -> Result<(), TrainError> {
        let frozen = Some(self.stepper.restore(&checkpoint)?);
        self.pending = None;
        // The configuration decides whether the loss is scaled, even if the checkpoint was made with another setting.
        let loss_scale = self.state.loss_scale.and_then(|fresh| checkpoint.state.loss_scale.or(Some(fresh)));
        self.state = TrainState { frozen, loss_scale, ..checkpoint.state };
        // A better model that was found after the checkpoint is in the folder, and a worse one must not replace it.
        let metric = &self.config.checkpoint.metric;
        self.state.best = Exported::best_known(&self.options.dir.join(BEST), metric, self.state.best);
        self.state.best_ema = Exported::best_known(&self.options.dir.join(BEST_EMA), metric, self.state.best_ema);
        Ok(())
    }

    /// Goes back to the last sound checkpoint, and leaves out the data up to here. Without such a checkpoint the step
    /// is skipped.
    pub(super) fn roll_back(&mut self, trouble: &Trouble, progress: &Progress) -> Result<StepOutcome, TrainError> {
        let written = self.saver.wait().map_err(TrainError::from);
        self.stepper.process_group.all_ok(written)?;
        self.recovery = RecoveryPoint::DuringUpdate;
        let Some(checkpoint) = self.state.sound.and_then(|sound| self.checkpoints().newest_until(sound)) else {
            progress.warn(&format!("{trouble}: there is no checkpoint to go back to, so the step is skipped"));
            return Ok(StepOutcome::Skipped);
        };
        let here = self.state.clone();
        let restored = self.restore(checkpoint);
        self.stepper.process_group.all_ok(restored)?;
        self.state.sound = Some(self.state.step);
        if self.stepper.process_group.is_main_process() {
            // They belong to the steps that are left out now.
            self.checkpoints().remove_after(self.state.step)?;
        }
        progress.warn(&format!("{trouble}: back to step {}, and on with the data after this", self.state.step));
        let TrainState { epoch, cursor, loss_scale, .. } = here;
        let incidents = here.guard.incidents;
        self.state = TrainState { epoch, cursor, loss_scale, ..self.state.clone() };
        self.state.guard.incidents = incidents;
        Ok(StepOutcome::RolledBack)
    }
}
