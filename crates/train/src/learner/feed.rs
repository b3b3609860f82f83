//! Loading of the batches of an optimizer step.

use super::Learner;
use crate::objective::{BatchStream, Batches, BoxError, Objective, Share};
use crate::stepper::{Loaded, Plan};
use crate::{Progress, TrainError};

/// Maximum number of epochs in a row without a batch. A single one is possible if batches are cut by length and
/// incomplete ones left out.
const EMPTY_EPOCHS: usize = 100;

/// This rank's training batches.
pub(super) struct Feed<'a, B: Batches> {
    data: &'a B,
    /// Epoch, and number in it of the next batch of a step; `None` before the first.
    position: Option<(u64, usize)>,
    stream: BatchStream<'a, B::Batch>,
    /// A batch that was read and belongs to a later step.
    held: Option<(usize, B::Batch)>,
}

/// This rank's batches of an optimizer step, and the plan of the step.
type StepBatches<B> = (Vec<B>, Plan);

/// This rank's batches up to some position in the epoch.
struct Read<B> {
    batches: Vec<B>,
    /// Number of each batch in the epoch.
    numbers: Vec<usize>,
    /// Whether the epoch has no more batches.
    ended: bool,
}

impl<'a, B: Batches> Feed<'a, B> {
    pub fn new(data: &'a B) -> Self {
        Self { data, position: None, stream: Box::new(std::iter::empty()), held: None }
    }

    /// Goes to a position. If the feed is somewhere else, after the end of an epoch or a step that was discarded, its
    /// stream starts anew there.
    fn seek(&mut self, (epoch, cursor): (u64, usize), share: Share) {
        if self.position != Some((epoch, cursor)) {
            let stream = self.data.share(epoch, cursor, share);
            *self = Self { position: Some((epoch, cursor)), stream, ..Self::new(self.data) };
        }
    }

    /// Reads the batches before position `end` of the epoch, and goes there.
    fn read_until(&mut self, end: usize) -> Result<Read<B::Batch>, BoxError> {
        self.position = self.position.map(|(epoch, _)| (epoch, end));
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
            let heard = process_group.all_gather(Loaded { interrupted: self.is_asked_to_stop(), ..own })?;
            let interrupted = !process_group.is_alone() && heard.iter().any(|loaded| loaded.interrupted);
            let failure = heard.iter().enumerate().find_map(|(rank, loaded)| Some((rank, loaded.failure.clone()?)));
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
            if heard.iter().all(|loaded| loaded.ended) {
                (self.state.epoch, self.state.cursor) = (self.state.epoch + 1, 0);
                // Now, so that its first batches are made while this step is computed.
                feed.seek((self.state.epoch, self.state.cursor), share);
                empty += 1;
            }
            if heard.iter().any(|loaded| !loaded.terms.is_empty()) {
                let plan = Plan::of(&read.numbers, end - share.window, heard)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The batches 0, 1, 4 and 7 of each epoch, and the number of streams that there were.
    #[derive(Default)]
    struct Few(Cell<usize>);

    impl Batches for Few {
        type Batch = usize;

        fn per_epoch(&self) -> usize {
            8
        }

        fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
            self.0.set(self.0.get() + 1);
            Box::new(
                [0, 1, 4, 7].into_iter().filter(move |number| *number >= start).map(|number| Ok((number + 1, number))),
            )
        }
    }

    const ALONE: Share = Share { rank: 0, count: 1, window: 2 };

    fn read(feed: &mut Feed<Few>, end: usize) -> (Vec<usize>, bool) {
        let read = feed.read_until(end).expect("read");
        (read.batches, read.ended)
    }

    #[test]
    fn a_feed_gives_the_batches_before_a_number_and_keeps_the_next() {
        let data = Few::default();
        let mut feed = Feed::new(&data);
        feed.seek((0, 0), ALONE);
        assert_eq!(read(&mut feed, 2), (vec![0, 1], false));
        // The batches 2 and 3 are another rank's, or were passed over.
        assert_eq!(read(&mut feed, 4), (vec![], false));
        assert_eq!(read(&mut feed, 6), (vec![4], false));
        assert_eq!(read(&mut feed, 8), (vec![7], false));
        assert_eq!(read(&mut feed, 10), (vec![], true));
    }

    #[test]
    fn a_feed_starts_anew_only_where_it_is_not() {
        let data = Few::default();
        let mut feed = Feed::new(&data);
        feed.seek((0, 0), ALONE);
        assert_eq!(read(&mut feed, 4), (vec![0, 1], false));
        feed.seek((0, 4), ALONE);
        assert_eq!((read(&mut feed, 6), data.0.get()), ((vec![4], false), 1));
        // Back, without the batch that it held.
        feed.seek((0, 2), ALONE);
        assert_eq!((read(&mut feed, 6), data.0.get()), ((vec![4], false), 2));
        feed.seek((1, 0), ALONE);
        assert_eq!((read(&mut feed, 1), data.0.get()), ((vec![0], false), 3));
    }
}
