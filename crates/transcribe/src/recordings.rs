//! Transcription of many recordings: read and divided in the background, and decoded in batches that may hold pieces of
//! several of them.

use crate::error::TranscribeError;
use crate::transcriber::{Transcriber, Waiting};
use crate::transcript::{DetectedLanguage, Segment, Transcript};
use std::cell::RefCell;
use std::collections::VecDeque;
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
        /// Its transcript.
        transcript: Result<Transcript, TranscribeError>,
    },
}

/// What the reading thread sends.
enum Read {
    Piece(Box<Waiting>),
    End { recording: usize, samples: Result<usize, AudioError> },
}

/// Recording whose pieces are being decoded.
#[derive(Default)]
struct Open {
    recording: usize,
    transcript: Transcript,
    language: Option<Option<DetectedLanguage>>,
    /// Number of pieces that wait in the batch.
    waiting: usize,
    end: Option<Result<usize, AudioError>>,
}

impl Transcriber {
    /// Transcribes recordings, and calls `on` with news. An error of one recording ends it and none of the others. No more
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
        let failed = RefCell::new(None);
        let transcript = stored.stream().map_err(TranscribeError::from).and_then(|mut stream| {
            let mut tell = |segments: &[Segment], reached| {
                let update = Update::Segments { recording, segments: segments.to_vec(), reached };
                let mut failed = failed.borrow_mut();
                *failed = failed.take().or_else(|| on(update).err());
            };
            // It ends where nobody listens any more.
            let read = || if failed.borrow().is_some() { Ok(None) } else { stream.next().transpose() };
            Ok(self.sequential(read, &mut tell)?)
        });
        match failed.into_inner() {
            Some(error) => Err(error),
            None => on(Update::Done { recording, transcript }),
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
            let mut divide = || -> Result<Option<usize>, AudioError> {
                let (mut stream, mut divider, mut samples) = (stored.stream()?, self.divider(), 0);
                while let Some(block) = stream.next().transpose()? {
                    samples += block.len();
                    if !divider.push(&block).into_iter().all(&mut send) {
                        return Ok(None);
                    }
                }
                Ok(divider.finish().into_iter().all(&mut send).then_some(samples))
            };
            let samples = match divide() {
                Ok(None) => return,
                Ok(Some(samples)) => Ok(samples),
                Err(error) => Err(error),
            };
            if sender.send(Read::End { recording, samples }).is_err() {
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
                Read::End { samples, .. } => last.end = Some(samples),
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
            let transcript = match end {
                Some(Err(error)) => Err(error.into()),
                end => {
                    transcript.samples = end.and_then(Result::ok).unwrap_or_default();
                    transcript.language = language.flatten();
                    Ok(transcript)
                }
            };
            on(Update::Done { recording, transcript })?;
        }
        Ok(())
    }
}
