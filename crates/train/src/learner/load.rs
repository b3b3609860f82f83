//! The batches of an optimizer step.

use super::Learner;
use crate::objective::{BatchStream, Batches, BoxError, Objective};
use crate::{Progress, TrainError};
use std::sync::atomic::Ordering;

/// An epoch may be without a batch where batches are cut by length and incomplete ones left out, but not so many in a row.
const EMPTY_EPOCHS: usize = 100;

impl<O: Objective> Learner<O> {
    /// The batches of one optimizer step; at the end of an epoch what is left of it, then the next epoch begins. None where
    /// they fail at an interruption: the step is then still to be taken, from its first batch on.
    pub(super) fn load<'a, B: Batches<Batch = O::Batch>>(
        &mut self,
        batches: &'a B,
        stream: &mut BatchStream<'a, O::Batch>,
        progress: &Progress,
    ) -> Result<Option<Vec<O::Batch>>, TrainError> {
        let _span = tracing::debug_span!("load", step = self.state.step + 1).entered();
        let begin = (self.state.epoch, self.state.cursor);
        let (mut window, mut empty) = (Vec::new(), 0);
        while window.len() < self.config.accumulation {
            match stream.next() {
                Some(Ok((next, batch))) => {
                    window.push(batch);
                    self.state.cursor = next;
                }
                Some(Err(error)) => {
                    self.gives_up(error, progress)?;
                    (self.state.epoch, self.state.cursor) = begin;
                    return Ok(None);
                }
                None => {
                    self.state.epoch += 1;
                    self.state.cursor = 0;
                    *stream = batches.epoch(self.state.epoch, 0);
                    if !window.is_empty() {
                        break;
                    }
                    empty += 1;
                    if empty > EMPTY_EPOCHS {
                        return Err(TrainError::NoData);
                    }
                }
            }
        }
        Ok(Some(window))
    }

    /// At an interruption, leaves it to the next session what this error of data is.
    pub(super) fn gives_up(&self, error: BoxError, progress: &Progress) -> Result<(), TrainError> {
        if !self.interrupt.load(Ordering::Relaxed) {
            return Err(TrainError::Data(error));
        }
        progress.say(&format!("step {}  interrupted: {error}", self.state.step));
        Ok(())
    }
}
