//! Loading of the batches of an optimizer step.

use super::Learner;
use super::feed::{Feed, Read};
use crate::objective::{Batches, BoxError, Objective};
use crate::stepper::{Loaded, Plan};
use crate::{Progress, TrainError};

/// Maximum number of epochs in a row without a batch. A single one is possible if batches are cut by length and
/// incomplete ones left out.
const EMPTY_EPOCHS: usize = 100;

/// This rank's batches of an optimizer step, and the plan of the step.
type StepBatches<B> = (Vec<B>, Plan);

impl<O: Objective> Learner<O> {
    /// Number of batches of a step, over all ranks.
    pub(super) fn window(&self) -> usize {
        let usual = self.config.accumulation * self.stepper.process_group.count();
        self.state.batching.map_or(usual, |(_, window)| window)
    }

    /// Loads the batches of one optimizer step. At the end of an epoch these are the rest of it, then the next epoch
    /// begins. `None` if they fail after an interrupt, or another rank was interrupted; the step then still has to be
    /// taken from its first batch on.
    pub(super) fn load<B: Batches<Batch = O::Batch>>(
        &mut self,
        feed: &mut Feed<B>,
        progress: &Progress,
    ) -> Result<Option<StepBatches<O::Batch>>, TrainError> {
        let _span = tracing::debug_span!("load", step = self.state.step + 1).entered();
        let (begin, mut empty) = ((self.state.epoch, self.state.cursor), 0);
        let (objective, process_group) = (&self.stepper.objective, &self.stepper.process_group);
        let share = process_group.share(self.window());
        feed.seek(begin, share);
        loop {
            let end = self.state.cursor + share.window;
            let read = feed.read_until(end);
            let own = match &read {
                Ok(Read { batches, numbers, ended }) => {
                    Loaded { ended: *ended, ..Loaded::new(objective, batches, numbers) }
                }
                Err(error) => Loaded { failure: Some(error.to_string()), ..Loaded::default() },
            };
            let received = process_group.all_gather(Loaded { interrupted: self.is_asked_to_stop(), ..own })?;
            let interrupted = !process_group.is_alone() && received.iter().any(|loaded| loaded.interrupted);
            let failure = received.iter().enumerate().find_map(|(rank, loaded)| Some((rank, loaded.failure.clone()?)));
            if interrupted || failure.is_some() {
                match (read, failure) {
                    (Err(error), _) if !interrupted => self.gives_up(error, self.is_asked_to_stop(), progress)?,
                    (Ok(_), Some((rank, message))) if !interrupted => {
                        return Err(TrainError::Rank { rank: process_group.name(rank), message });
                    }
                    _ => {}
                }
                (self.state.epoch, self.state.cursor) = begin;
                return Ok(None);
            }
            let read = read.map_err(TrainError::Data)?;
            self.state.cursor = end;
            // In a short last step some ranks have no batch, and know before it that they have no more.
            if received.iter().all(|loaded| loaded.ended) {
                (self.state.epoch, self.state.cursor) = (self.state.epoch + 1, 0);
                // Now, so that its first batches are made while this step is computed.
                feed.seek((self.state.epoch, self.state.cursor), share);
                empty += 1;
            }
            if received.iter().any(|loaded| !loaded.terms.is_empty()) {
                let plan = Plan::of(&read.numbers, end - share.window, received)?;
                return Ok(Some((read.batches, plan)));
            }
            if empty > EMPTY_EPOCHS {
                return Err(TrainError::NoData);
            }
        }
    }

    /// After an interrupt, leaves an error of the data to the next session. Otherwise returns it.
    pub(super) fn gives_up(&self, error: BoxError, interrupted: bool, progress: &Progress) -> Result<(), TrainError> {
        if !interrupted {
            return Err(error.downcast::<TrainError>().map_or_else(TrainError::Data, |error| *error));
        }
        progress.say(&format!("step {}  interrupted: {error}", self.state.step));
        Ok(())
    }
}
