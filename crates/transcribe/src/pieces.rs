//! Division of a recording into pieces that fit a model's window, while it is read.

use crate::options::{Segmentation, TranscribeOptions};
use crate::reading::Reading;
use crate::vad::{SpeechFinder, VadNetwork};
use std::ops::Range;
use undertone_data::audio::SAMPLE_RATE;

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

    /// Returns the position in the recording of a word in the piece, in samples. A word does not reach over audio that is
    /// left out: it is in the stretch that has most of it.
    pub fn place(&self, word: Range<usize>) -> Range<usize> {
        let mut before = 0;
        let mut most: Option<Range<usize>> = None;
        for part in &self.parts {
            let of = |at: usize| part.start + at.clamp(before, before + part.len()) - before;
            let own = of(word.start)..of(word.end);
            // Of two that have as much, a word at a boundary begins the later one.
            let is_there = (before..=before + part.len()).contains(&word.start);
            if most.as_ref().is_none_or(|most| own.len() > most.len() || is_there && own.len() == most.len()) {
                most = Some(own);
            }
            before += part.len();
        }
        most.unwrap_or(0..0)
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

/// Longest pause within a piece, in samples: 5 seconds. What is said after it is a segment of its own.
const MOST_APART: usize = 5 * SAMPLE_RATE as usize;

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

    /// Adds a stretch; returns the piece that is complete because it has no room for it, or the stretch is far away.
    fn pack(&mut self, stretch: Range<usize>) -> Option<AudioPiece> {
        let is_full = self.packed.len() + stretch.len() > self.window;
        let is_far = self.parts.last().is_some_and(|last| stretch.start - last.end > MOST_APART);
        let complete = if is_full || is_far { self.take() } else { None };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn pieces(audio: &[f32], block: usize) -> Vec<AudioPiece> {
        let reading = Reading { reader: None, window: 480_000 };
        let network = VadNetwork::new();
        let mut divider = Divider::new(&reading, &TranscribeOptions::default(), || &network);
        let mut pieces: Vec<AudioPiece> = audio.chunks(block).flat_map(|block| divider.push(block)).collect();
        pieces.extend(divider.finish());
        pieces
    }

    #[test]
    fn speech_is_packed_unless_it_is_far_apart() {
        let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/src/verify/clips/jfk.flac");
        let clip = undertone_data::audio::load(&clip).expect("the clip");
        let apart = |seconds: usize| [&clip[..], &vec![0.0; seconds * 16_000], &clip].concat();
        assert_eq!(pieces(&apart(3), 16_000).len(), 1);
        assert_eq!(pieces(&apart(20), 16_000).len(), 2);
        let three = [&apart(3)[..], &[0.0; 32_000], &clip].concat();
        let found = pieces(&three, 10_000);
        assert_eq!(found.len(), 2, "three do not fit a window");
        assert_eq!(found, pieces(&three, 77_777), "however the audio comes");
        for piece in &found {
            assert!(piece.audio.len() <= 480_000);
            let own: Vec<f32> = piece.parts.iter().flat_map(|part| three[part.clone()].to_vec()).collect();
            assert_eq!(piece.audio, own);
            assert_eq!(piece.place(0..piece.parts[0].len()), piece.parts[0]);
            let Some(second) = piece.parts.get(1) else { continue };
            let before = piece.parts[0].len();
            assert_eq!(piece.place(before - 10..before + 90), second.start..second.start + 90);
            assert_eq!(piece.place(before - 90..before + 10), piece.parts[0].end - 90..piece.parts[0].end);
            assert_eq!(piece.place(before..before), second.start..second.start);
        }
    }
}
