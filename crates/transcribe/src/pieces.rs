//! Division of a recording into pieces that fit a model's window, while it is read.

use crate::options::{Segmentation, TranscribeOptions};
use crate::reading::Reading;
use crate::vad::{SpeechFinder, VadNetwork};
use std::ops::Range;

/// A piece of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AudioPiece {
    /// Stretches of the recording that it consists of, in samples; all else between them is left out.
    pub parts: Vec<Range<usize>>,
    /// Its samples.
    pub audio: Vec<f32>,
    /// Whether it starts with a new word.
    pub begins_word: bool,
}

impl AudioPiece {
    /// Position in the recording, from the first to the last stretch.
    pub fn samples(&self) -> Range<usize> {
        self.parts.first().map_or(0, |part| part.start)..self.parts.last().map_or(0, |part| part.end)
    }

    /// Returns the position in the recording of a position in the piece, in samples.
    pub fn place(&self, at: usize) -> usize {
        let mut before = 0;
        for part in &self.parts {
            if at <= before + part.len() {
                return part.start + (at - before);
            }
            before += part.len();
        }
        self.samples().end
    }
}

/// Division of a recording that comes block by block.
pub(crate) enum Divider<'a> {
    Speech(Box<SpeechPacker<'a>>),
    /// What decides where to cut looks at the whole recording.
    Whole(&'a Reading, Vec<f32>),
}

impl<'a> Divider<'a> {
    pub fn new(reading: &'a Reading, options: &TranscribeOptions, network: impl FnOnce() -> &'a VadNetwork) -> Self {
        let finds_speech = reading.reader.is_none() && options.segmentation == Segmentation::Vad;
        if !finds_speech {
            return Self::Whole(reading, Vec::new());
        }
        Self::Speech(Box::new(SpeechPacker {
            finder: SpeechFinder::new(network(), options.vad.clone(), reading.window),
            window: reading.window,
            audio: Vec::new(),
            offset: 0,
            parts: Vec::new(),
            packed: Vec::new(),
        }))
    }

    /// Takes the next samples, and returns the pieces that are complete.
    pub fn push(&mut self, samples: &[f32]) -> Vec<AudioPiece> {
        match self {
            Self::Speech(packer) => packer.push(samples),
            Self::Whole(_, audio) => {
                audio.extend_from_slice(samples);
                Vec::new()
            }
        }
    }

    /// Returns the last pieces.
    pub fn finish(self) -> Vec<AudioPiece> {
        match self {
            Self::Speech(packer) => packer.finish(),
            Self::Whole(reading, audio) => {
                let piece = |piece: undertone_data::reader::Piece| AudioPiece {
                    audio: audio[piece.samples.clone()].to_vec(),
                    parts: vec![piece.samples],
                    begins_word: piece.begins_word,
                };
                reading.pieces(&audio).into_iter().map(piece).collect()
            }
        }
    }
}

/// Packing of stretches of speech into pieces that fill a window as far as they can.
pub(crate) struct SpeechPacker<'a> {
    finder: SpeechFinder<'a>,
    window: usize,
    /// Samples of the recording from `offset` on.
    audio: Vec<f32>,
    offset: usize,
    /// Stretches of the next piece, and their samples.
    parts: Vec<Range<usize>>,
    packed: Vec<f32>,
}

impl SpeechPacker<'_> {
    fn push(&mut self, samples: &[f32]) -> Vec<AudioPiece> {
        self.audio.extend_from_slice(samples);
        let found = self.finder.push(samples);
        let pieces = found.into_iter().filter_map(|stretch| self.pack(stretch)).collect();
        let passed = self.finder.needed_from().saturating_sub(self.offset).min(self.audio.len());
        self.audio.drain(..passed);
        self.offset += passed;
        pieces
    }

    fn finish(mut self) -> Vec<AudioPiece> {
        let found = self.finder.finish();
        let mut pieces: Vec<AudioPiece> = found.into_iter().filter_map(|stretch| self.pack(stretch)).collect();
        pieces.extend(self.take());
        pieces
    }

    /// Adds a stretch; returns the piece that is complete because it has no room for it.
    fn pack(&mut self, stretch: Range<usize>) -> Option<AudioPiece> {
        let complete = if self.packed.len() + stretch.len() > self.window { self.take() } else { None };
        let own = stretch.start - self.offset..(stretch.end - self.offset).min(self.audio.len());
        self.packed.extend_from_slice(&self.audio[own]);
        self.parts.push(stretch);
        complete
    }

    fn take(&mut self) -> Option<AudioPiece> {
        let (parts, audio) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.packed));
        (!parts.is_empty()).then_some(AudioPiece { parts, audio, begins_word: true })
    }
}
