//! Loading of the batches of an optimizer step.

use super::Learner;
use super::step_batches::{Loaded, Plan, StepBatches};
use crate::objective::{BatchStream, Batches, BoxError, Objective};
use crate::{Progress, TrainError};

/// Maximum number of epochs in a row without a batch. A single one is possible if batches are cut by length and
/// incomplete ones left out.
const EMPTY_EPOCHS: usize = 100;

/// This rank's batches of an epoch.
pub(super) struct EpochBatches<'a, B> {
    stream: BatchStream<'a, B>,
    /// A batch that was read and belongs to a later step.
    held: Option<(usize, B)>,
}

/// This rank's batches up to some position in the epoch.
struct Read<B> {
    batches: Vec<B>,
    /// Number of each batch in the epoch.
    numbers: Vec<usize>,
    /// Whether the epoch has no more batches.
    ended: bool,
}

impl<'a, B> EpochBatches<'a, B> {
    pub fn new(stream: BatchStream<'a, B>) -> Self {
        Self { stream, held: None }
    }

    /// Reads the batches before position `end`.
    fn take_until(&mut self, end: usize) -> Result<Read<B>, BoxError> {
        let mut read = Read { batches: Vec::new(), numbers: Vec::new(), ended: false };
        loop {
            let Some((next, batch)) =
                self.held.take().map_or_else(|| self.stream.next().transpose(), |held| Ok(Some(held)))?
            else {
                read.ended = true;
                return Ok(read);
            };
            if next > end {
                self.held = Some((next, batch));
                return Ok(read);
            }
            read.batches.push(batch);
            read.numbers.push(next - 1);
            // Nothing beyond `end` is read before it is needed.
            if next == end {
                return Ok(read);
            }
        }
    }
}

impl<O: Objective> Learner<O> {
    /// Returns the batches of the epoch from the current position on.
    pub(super) fn epoch_batches<'a, B: Batches<Batch = O::Batch>>(&self, batches: &'a B) -> EpochBatches<'a, O::Batch> {
        EpochBatches::new(batches.share(self.state.epoch, self.state.cursor, self.process_group.share(self.window())))
    }

    /// Number of batches of a step, over all ranks.
    pub(super) fn window(&self) -> usize {
        self.state.batching.map_or(self.config.accumulation * self.process_group.count(), |(_, window)| window)
    }

    /// Loads the batches of one optimizer step. At the end of an epoch these are the rest of it, then the next epoch
    /// begins. `None` if they fail after an interrupt, or another rank was interrupted; the step then still has to be
    /// taken from its first batch on.
    pub(super) fn load<'a, B: Batches<Batch = O::Batch>>(
        &mut self,
        batches: &'a B,
        epoch_batches: &mut EpochBatches<'a, O::Batch>,
        progress: &Progress,
    ) -> Result<Option<StepBatches<O::Batch>>, TrainError> {
        let _span = tracing::debug_span!("load", step = self.state.step + 1).entered();
        let (begin, mut empty) = ((self.state.epoch, self.state.cursor), 0);
        loop {
            let end = self.state.cursor + self.window();
            let read = epoch_batches.take_until(end);
            let said = match &read {
                Ok(Read { batches, numbers, ended }) => self.said(batches, numbers, *ended),
                Err(error) => self.failed(error),
            };
            let heard = self.process_group.all_gather(said)?;
            let interrupted = !self.process_group.is_alone() && heard.iter().any(|loaded| loaded.interrupted);
            let failure = heard.iter().enumerate().find_map(|(rank, loaded)| Some((rank, loaded.failure.clone()?)));
            if interrupted || failure.is_some() {
                match (read, failure) {
                    (Err(error), _) if !interrupted => self.gives_up(error, self.is_asked_to_stop(), progress)?,
                    (Ok(_), Some((rank, message))) if !interrupted => {
                        return Err(TrainError::Rank { rank: self.process_group.name(rank), message });
                    }
                    _ => {}
                }
                (self.state.epoch, self.state.cursor) = begin;
                return Ok(None);
            }
            let read = read.map_err(TrainError::Data)?;
            self.state.cursor = end;
            // In a short last step some ranks have no batch, and know before it that they have no more.
            if heard.iter().all(|loaded| loaded.ended) {
                (self.state.epoch, self.state.cursor) = (self.state.epoch + 1, 0);
                *epoch_batches = self.epoch_batches(batches);
                empty += 1;
            }
            if heard.iter().any(|loaded| !loaded.terms.is_empty()) {
                let plan = Plan::of(&read.numbers, end - self.window(), heard)?;
                return Ok(Some(StepBatches { batches: read.batches, plan }));
            }
            if empty > EMPTY_EPOCHS {
                return Err(TrainError::NoData);
            }
        }
    }

    /// Returns the plan of a step in which this rank has these batches.
    pub(super) fn plan_of(&self, batches: &[O::Batch]) -> Result<Plan, TrainError> {
        let numbers: Vec<usize> =
            (0..batches.len()).map(|index| index * self.process_group.count() + self.process_group.rank()).collect();
        let heard = self.process_group.all_gather(self.said(batches, &numbers, false))?;
        Plan::of(&numbers, 0, heard)
    }

    fn said(&self, batches: &[O::Batch], numbers: &[usize], ended: bool) -> Loaded {
        Loaded {
            terms: numbers.iter().copied().zip(batches.iter().map(|batch| self.objective.loss_terms(batch))).collect(),
            names: batches.iter().flat_map(|batch| self.objective.names(batch)).collect(),
            ended,
            interrupted: self.is_asked_to_stop(),
            failure: None,
        }
    }

    fn failed(&self, error: &BoxError) -> Loaded {
        Loaded { failure: Some(error.to_string()), ..self.said(&[], &[], false) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(items: Vec<usize>) -> EpochBatches<'static, usize> {
        EpochBatches::new(Box::new(items.into_iter().map(|number| Ok((number + 1, number)))))
    }

    #[test]
    fn a_feed_gives_the_batches_before_a_number_and_keeps_the_next() {
        let mut epoch_batches = numbers(vec![0, 1, 4, 7]);
        let read = |epoch_batches: &mut EpochBatches<'static, usize>, end| {
            let read = epoch_batches.take_until(end).expect("read");
            (read.batches, read.ended)
        };
        assert_eq!(read(&mut epoch_batches, 2), (vec![0, 1], false));
        // The batches 2 and 3 are another rank's, or were passed over.
        assert_eq!(read(&mut epoch_batches, 4), (vec![], false));
        assert_eq!(read(&mut epoch_batches, 6), (vec![4], false));
        assert_eq!(read(&mut epoch_batches, 8), (vec![7], false));
        assert_eq!(read(&mut epoch_batches, 10), (vec![], true));
    }
}
