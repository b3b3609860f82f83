//! Transcription of many recordings: read and divided in the background, and decoded in batches that may hold pieces of
//! several of them.

use crate::error::TranscribeError;
use crate::transcriber::{Transcriber, Waiting};
use crate::transcript::{DetectedLanguage, Segment, Transcript};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use undertone_data::audio::{AudioError, Stored};

/// News of the transcription of several recordings, in the order in which they are given.
#[derive(Debug)]
pub enum Update {
    /// The next segments of a recording.
    Segments {
        /// Index of the recording.
        recording: usize,
        /// New segments; there may be none.
        segments: Vec<Segment>,
        /// Position in the recording that is reached, in samples.
        reached: usize,
    },
    /// A recording is done. Its transcript has all segments.
    Done {
        /// Index of the recording.
        recording: usize,
        /// Its transcript, up to where it could be read.
        transcript: Transcript,
        /// Why no more of it could be read.
        error: Option<TranscribeError>,
    },
}

/// What the reading thread sends.
enum Read {
    Piece(Box<Waiting>),
    End { recording: usize, samples: usize, error: Option<AudioError> },
}

/// Recording whose pieces are being decoded.
#[derive(Default)]
struct Open {
    recording: usize,
    transcript: Transcript,
    language: Option<Option<DetectedLanguage>>,
    /// Number of pieces that wait in the batch.
    waiting: usize,
    /// Number of samples, and why no more could be read.
    end: Option<(usize, Option<AudioError>)>,
}

impl Transcriber {
    /// Transcribes recordings, and calls `on` with news. An error of one recording ends it where it is, and none of the others. No more
    /// of a recording is in memory than a few windows, unless the model or the options need all of it to divide it.
    ///
    /// # Errors
    /// The first error of `on`; what is left is not transcribed then.
    pub fn recordings<E>(&self, recordings: &[Stored], mut on: impl FnMut(Update) -> Result<(), E>) -> Result<(), E> {
        if self.is_sequential() {
            return recordings
                .iter()
                .enumerate()
                .try_for_each(|(index, stored)| self.in_sequence(index, stored, &mut on));
        }
        // Two batches are read ahead.
        let (sender, receiver) = sync_channel(2 * self.options.batch_size);
        std::thread::scope(|scope| {
            scope.spawn(move || self.read_all(recordings, &sender));
            self.decode_all(receiver, &mut on)
        })
    }

    fn in_sequence<E>(
        &self,
        recording: usize,
        stored: &Stored,
        on: &mut impl FnMut(Update) -> Result<(), E>,
    ) -> Result<(), E> {
        let (failed, mut unread) = (RefCell::new(None), None);
        let mut tell = |segments: &[Segment], reached| {
            let update = Update::Segments { recording, segments: segments.to_vec(), reached };
            let mut failed = failed.borrow_mut();
            *failed = failed.take().or_else(|| on(update).err());
        };
        let mut stream = stored.stream().map_err(|error| unread = Some(error)).ok();
        // It ends where nobody listens any more, and where no more can be read.
        let read = || {
            let block = stream.as_mut().filter(|_| failed.borrow().is_none()).and_then(Iterator::next);
            Ok::<_, Infallible>(block.transpose().unwrap_or_else(|error| {
                unread = Some(error);
                None
            }))
        };
        let Ok(transcript) = self.sequential(read, &mut tell);
        match failed.into_inner() {
            Some(error) => Err(error),
            None => on(Update::Done { recording, transcript, error: unread.map(TranscribeError::from) }),
        }
    }

    /// Reads and divides the recordings, until nobody listens any more.
    fn read_all(&self, recordings: &[Stored], sender: &SyncSender<Read>) {
        for (recording, stored) in recordings.iter().enumerate() {
            let mut first = true;
            let language = self.known_language();
            let mut send = |piece| {
                let (first, language) = (std::mem::take(&mut first), language.clone());
                let waiting = Waiting { recording, first, piece, language, states: None };
                sender.send(Read::Piece(Box::new(waiting))).is_ok()
            };
            let (mut divider, mut samples) = (self.divider(), 0);
            // False where nobody listens any more.
            let mut divide = || -> Result<bool, AudioError> {
                let mut stream = stored.stream()?;
                while let Some(block) = stream.next().transpose()? {
                    samples += block.len();
                    if !divider.push(&block).into_iter().all(&mut send) {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            let error = match divide() {
                Ok(true) => None,
                Ok(false) => return,
                Err(error) => Some(error),
            };
            let is_heard = divider.finish().into_iter().all(&mut send);
            if !is_heard || sender.send(Read::End { recording, samples, error }).is_err() {
                return;
            }
        }
    }

    fn decode_all<E>(&self, receiver: Receiver<Read>, on: &mut impl FnMut(Update) -> Result<(), E>) -> Result<(), E> {
        let (mut open, mut batch) = (VecDeque::<Open>::new(), Vec::new());
        for read in receiver {
            let recording = match &read {
                Read::Piece(waiting) => waiting.recording,
                Read::End { recording, .. } => *recording,
            };
            if open.back().is_none_or(|last| last.recording != recording) {
                open.push_back(Open { recording, ..Open::default() });
            }
            let Some(last) = open.back_mut() else { continue };
            match read {
                Read::Piece(waiting) => {
                    last.waiting += 1;
                    let language = last.language.clone().or(waiting.language);
                    batch.push(Waiting { language, ..*waiting });
                    self.encode_ahead(&mut batch);
                }
                Read::End { samples, error, .. } => last.end = Some((samples, error)),
            }
            if batch.len() == self.options.batch_size {
                self.decode_batch(&mut batch, &mut open, on)?;
            }
            Self::close(&mut open, on)?;
        }
        self.decode_batch(&mut batch, &mut open, on)?;
        Self::close(&mut open, on)
    }

    fn decode_batch<E>(
        &self,
        batch: &mut Vec<Waiting>,
        open: &mut VecDeque<Open>,
        on: &mut impl FnMut(Update) -> Result<(), E>,
    ) -> Result<(), E> {
        let waiting = std::mem::take(batch);
        if waiting.is_empty() {
            return Ok(());
        }
        let places: Vec<(usize, usize)> =
            waiting.iter().map(|waiting| (waiting.recording, waiting.piece.samples().end)).collect();
        let decoded = self.windows(waiting, None);
        for ((recording, reached), (language, segment)) in places.into_iter().zip(decoded) {
            let Some(own) = open.iter_mut().find(|open| open.recording == recording) else { continue };
            own.waiting -= 1;
            own.language.get_or_insert(language);
            own.transcript.segments.extend(segment.clone());
            on(Update::Segments { recording, segments: segment.into_iter().collect(), reached })?;
        }
        Ok(())
    }

    /// Reports the recordings that are read to their end and have no piece that waits.
    fn close<E>(open: &mut VecDeque<Open>, on: &mut impl FnMut(Update) -> Result<(), E>) -> Result<(), E> {
        while open.front().is_some_and(|first| first.waiting == 0 && first.end.is_some()) {
            let Some(Open { recording, mut transcript, language, end, .. }) = open.pop_front() else { continue };
            let (samples, error) = end.unwrap_or_default();
            transcript.samples = samples;
            transcript.language = language.flatten();
            on(Update::Done { recording, transcript, error: error.map(TranscribeError::from) })?;
        }
        Ok(())
    }
}
