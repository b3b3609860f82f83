//! This rank's training batches, read as optimizer steps need them.

use crate::objective::{BatchStream, Batches, BoxError, Share};

/// This rank's training batches.
pub(super) struct Feed<'a, B: Batches> {
    data: &'a B,
    /// Epoch, and number in it of the next batch of a step; `None` before the first.
    position: Option<(u64, usize)>,
    stream: BatchStream<'a, B::Batch>,
    /// A batch that was read and belongs to a later step.
    held: Option<(usize, B::Batch)>,
}

/// This rank's batches up to some position in the epoch.
pub(super) struct Read<B> {
    pub batches: Vec<B>,
    /// Number of each batch in the epoch.
    pub numbers: Vec<usize>,
    /// Whether the epoch has no more batches.
    pub ended: bool,
}

impl<'a, B: Batches> Feed<'a, B> {
    pub fn new(data: &'a B) -> Self {
        Self { data, position: None, stream: Box::new(std::iter::empty()), held: None }
    }

    /// Goes to a position. If the feed is somewhere else, after the end of an epoch or a step that was discarded, its
    /// stream starts anew there.
    pub fn seek(&mut self, (epoch, cursor): (u64, usize), share: Share) {
        if self.position != Some((epoch, cursor)) {
            let stream = self.data.share(epoch, cursor, share);
            *self = Self { position: Some((epoch, cursor)), stream, ..Self::new(self.data) };
        }
    }

    /// Reads the batches before position `end` of the epoch, and goes there.
    pub fn read_until(&mut self, end: usize) -> Result<Read<B::Batch>, BoxError> {
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
