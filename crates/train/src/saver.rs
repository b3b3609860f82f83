//! Writing of checkpoints in the background.

use crate::checkpoint::{Checkpoints, Contents};
use std::thread::JoinHandle;
use undertone_metrics::Direction;
use undertone_store::StoreError;

/// Writes one checkpoint at a time in a thread of its own. Training waits only until the tensors are on the host.
#[derive(Debug)]
pub(crate) struct Saver {
    checkpoints: Checkpoints,
    keep_last: usize,
    keep_best: usize,
    /// Step of the newest checkpoint, until a later step shows that it is sound.
    unproven: Option<u64>,
    writing: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Saver {
    pub fn new(checkpoints: Checkpoints, keep_last: usize, keep_best: usize) -> Self {
        Self { checkpoints, keep_last, keep_best, unproven: None, writing: None }
    }

    /// Starts to write `contents`, and to delete checkpoints that need not be kept, or are of later steps. `direction` is that of the scores.
    /// Waits for the checkpoint before.
    ///
    /// # Errors
    /// That of the checkpoint before.
    pub fn save(&mut self, contents: Contents, direction: Direction) -> Result<(), StoreError> {
        self.wait()?;
        self.unproven = Some(contents.state.step);
        let (checkpoints, keep_last, keep_best) = (self.checkpoints.clone(), self.keep_last, self.keep_best);
        self.writing = Some(std::thread::spawn(move || {
            checkpoints.save(&contents)?;
            // What is later was passed over by the resume, damaged or doubtful: it must not take the place of this one.
            checkpoints.remove_after(contents.state.step)?;
            checkpoints.rotate(keep_last, keep_best, direction, contents.state.sound)
        }));
        Ok(())
    }

    /// Records that the parameters of step `sound` are sound. Checkpoints that were kept only because the newest was
    /// not known to be sound are deleted. If one is being written, this happens after a later step.
    pub fn prove(&mut self, sound: u64, direction: Direction) {
        let is_writing = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if is_writing || self.unproven.is_none_or(|newest| newest > sound) {
            return;
        }
        self.unproven = None;
        let (checkpoints, keep_last, keep_best) = (self.checkpoints.clone(), self.keep_last, self.keep_best);
        let before = self.writing.take();
        self.writing = Some(std::thread::spawn(move || {
            // The thread has ended; its error must not get lost.
            before.map_or(Ok(()), |before| before.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))?;
            checkpoints.rotate(keep_last, keep_best, direction, Some(sound))
        }));
    }

    /// Returns the error of a checkpoint that could not be written, once it is known.
    pub fn check(&mut self) -> Result<(), StoreError> {
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) { self.wait() } else { Ok(()) }
    }

    /// Waits until nothing is being written.
    pub fn wait(&mut self) -> Result<(), StoreError> {
        match self.writing.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Saver {
    /// Waits for a checkpoint that is being written, even if training ends with an error.
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TrainState;

    #[test]
    fn a_checkpoint_is_kept_beside_a_later_one_that_is_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        let at = |step| Contents { state: TrainState { step, ..TrainState::default() }, ..Contents::default() };
        [4, 8].iter().for_each(|step| checkpoints.save(&at(*step)).expect("saved"));
        std::fs::write(dir.path().join("step-00000008/model.safetensors"), "").expect("damaged");
        let mut saver = Saver::new(checkpoints.clone(), 1, 0);
        saver.save(at(5), Direction::Lower).expect("started");
        saver.wait().expect("written");
        assert_eq!(checkpoints.newest().0.expect("the one that was just written").state.step, 5);
    }
}
