//! Division of a recording into pieces that fit a model's window, while it is read.

use crate::options::{Segmentation, TranscribeOptions};
use crate::reading::Reading;
use crate::transcript::Word;
use crate::vad::{SpeechFinder, Stretch, VadNetwork};
use crate::words::TimedWord;
use std::ops::Range;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::reader::Piece;

/// A piece of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AudioPiece {
    /// Stretches of the recording that it consists of, in samples; all else between them is left out.
    pub parts: Vec<Range<usize>>,
    /// Speech in the recording, in samples; empty if it was not searched for.
    pub speech: Vec<Range<usize>>,
    /// Its samples.
    pub audio: Vec<f32>,
    /// Samples that the model is given instead of them.
    pub prepared: Option<Vec<f32>>,
    /// Whether it starts with a new word.
    pub begins_word: bool,
}

impl AudioPiece {
    /// Returns a piece of a recording as it is read.
    pub fn read(reading: &Reading, audio: &[f32], Piece { samples, begins_word }: Piece) -> Self {
        let audio = audio[samples.clone()].to_vec();
        let prepared = reading.prepared(&audio);
        Self { audio, prepared, parts: vec![samples], speech: Vec::new(), begins_word }
    }

    /// Samples that the model is given.
    pub fn given(&self) -> &[f32] {
        self.prepared.as_ref().unwrap_or(&self.audio)
    }

    /// Position in the recording, from the first to the last stretch.
    pub fn samples(&self) -> Range<usize> {
        self.parts.first().map_or(0, |part| part.start)..self.parts.last().map_or(0, |part| part.end)
    }

    /// Returns words at their places in the recording. The first word after a pause begins when the speech does, and the last
    /// one before a pause ends about when it does: attention, which words are aligned by, misses both by up to half a second.
    pub fn words(&self, words: Vec<TimedWord>) -> Vec<Word> {
        let mut words: Vec<Word> = words.into_iter().map(|word| Word::placed(word, |own| self.place(own))).collect();
        for speech in &self.speech {
            let [start, end] = [speech.start, speech.end].map(|samples| samples as f64 / f64::from(SAMPLE_RATE));
            let Some(first) = words.iter().position(|word| word.end > start && word.start < end) else { continue };
            let last = words.iter().rposition(|word| word.start < end).map_or(first, |last| last.max(first));
            let before = first.checked_sub(1).map_or(0.0, |before| words[before].end);
            let after = words.get(last + 1).map_or(f64::INFINITY, |after| after.start);
            if words[first].start - start <= MOST_AMISS {
                words[first].start = words[first].start.min(start.max(before));
            }
            if end - words[last].end <= MOST_AMISS {
                words[last].end = words[last].end.max((end - LATE_END).min(after));
            }
        }
        words
    }

    /// Returns the position in the recording of a word in the piece, in samples. A word does not reach over audio that is
    /// left out: it is in the stretch that has most of it. Nor does it reach into a pause beside the speech that has most of it.
    pub fn place(&self, word: Range<usize>) -> Range<usize> {
        let placed = self.placed(word);
        let common = |speech: &Range<usize>| placed.start.max(speech.start)..placed.end.min(speech.end);
        let most = self.speech.iter().map(common).max_by_key(ExactSizeIterator::len);
        most.filter(|most| most.len() >= SHORTEST_WORD).unwrap_or(placed)
    }

    fn placed(&self, word: Range<usize>) -> Range<usize> {
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

/// Longest time between an end of speech and that of the word there, in seconds. What is longer may be a word that was not
/// written.
const MOST_AMISS: f64 = 0.5;

/// Time by which the search for speech may find its end too late, in seconds.
const LATE_END: f64 = 0.1;

/// Shortest part of a word that is in speech, in samples: 50 ms. Where less is, the search for speech missed the word.
const SHORTEST_WORD: usize = SAMPLE_RATE as usize / 20;

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
            packed: 0,
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
                let piece = |piece: Piece| AudioPiece::read(reading, &audio, piece);
                reading.pieces(&audio).into_iter().map(piece).collect()
            }
        }
    }
}

/// Longest pause within a piece, in samples: 5 seconds. What is said after it is a segment of its own.
const MOST_APART: usize = 5 * SAMPLE_RATE as usize;

/// Length of the last part of a full window in which the longest pause ends its piece, in samples: 3 seconds.
const LAST_PAUSES: usize = 3 * SAMPLE_RATE as usize;

/// Packing of speech into pieces that fill a window as far as they can. They end at pauses.
pub(crate) struct SpeechPacker<'a> {
    finder: SpeechFinder<'a>,
    window: usize,
    /// Samples of the recording from `offset` on.
    audio: Vec<f32>,
    offset: usize,
    /// Parts of the next piece, each without a pause in it.
    parts: Vec<Stretch>,
    /// Number of their samples.
    packed: usize,
}

impl SpeechPacker<'_> {
    fn push(&mut self, samples: &[f32]) -> Vec<AudioPiece> {
        self.audio.extend_from_slice(samples);
        let found = self.finder.push(samples);
        let pieces = found.into_iter().flat_map(|stretch| self.pack(stretch)).collect();
        let begun = self.parts.first().map_or(usize::MAX, |part| part.samples.start);
        let passed = self.finder.needed_from().min(begun).saturating_sub(self.offset).min(self.audio.len());
        self.audio.drain(..passed);
        self.offset += passed;
        pieces
    }

    fn finish(mut self) -> Vec<AudioPiece> {
        let found = self.finder.finish();
        let mut pieces: Vec<AudioPiece> = found.into_iter().flat_map(|stretch| self.pack(stretch)).collect();
        pieces.extend(self.take(self.parts.len()));
        pieces
    }

    /// Adds a stretch; returns the pieces that are complete because they have no room for all of it, or it is far away.
    fn pack(&mut self, stretch: Stretch) -> Vec<AudioPiece> {
        let mut complete = Vec::new();
        if self.parts.last().is_some_and(|last| stretch.samples.start - last.samples.end > MOST_APART) {
            complete.extend(self.take(self.parts.len()));
        }
        for part in stretch.at_pauses() {
            self.packed += part.samples.len();
            self.parts.push(part);
            // What is left after the longest pause may still be too long.
            while self.packed > self.window && self.parts.len() > 1 {
                complete.extend(self.take(self.best_end()));
            }
        }
        complete
    }

    /// Number of parts that end at the longest of the last pauses before the last part.
    fn best_end(&self) -> usize {
        let mut left = self.packed;
        let mut best = (self.parts.len() - 1, 0);
        for (index, pair) in self.parts.windows(2).enumerate().rev() {
            left -= pair[1].samples.len();
            if index + 2 < self.parts.len() && left + LAST_PAUSES < self.window {
                break;
            }
            let pause = pair[1].speech[0].start - pair[0].speech[0].end;
            if pause > best.1 {
                best = (index + 1, pause);
            }
        }
        best.0
    }

    /// Returns the piece of the first `count` parts.
    fn take(&mut self, count: usize) -> Option<AudioPiece> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        let (mut speech, mut audio) = (Vec::new(), Vec::new());
        for part in self.parts.drain(..count) {
            let kept = part.samples.start - self.offset..(part.samples.end - self.offset).min(self.audio.len());
            audio.extend_from_slice(&self.audio[kept]);
            match parts.last_mut() {
                Some(last) if last.end == part.samples.start => last.end = part.samples.end,
                _ => parts.push(part.samples),
            }
            speech.extend(part.speech);
        }
        self.packed = self.parts.iter().map(|part| part.samples.len()).sum();
        (!parts.is_empty()).then_some(AudioPiece { parts, speech, audio, prepared: None, begins_word: true })
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
            assert_eq!(piece.placed(0..piece.parts[0].len()), piece.parts[0]);
            let Some(second) = piece.parts.get(1) else { continue };
            let before = piece.parts[0].len();
            assert_eq!(piece.placed(before - 10..before + 90), second.start..second.start + 90);
            assert_eq!(piece.placed(before - 90..before + 10), piece.parts[0].end - 90..piece.parts[0].end);
            assert_eq!(piece.placed(before..before), second.start..second.start);
        }
    }

    /// What remains after the longest of the last pauses may be too long as well.
    #[test]
    fn no_piece_is_longer_than_the_window() {
        let network = VadNetwork::new();
        let mut packer = SpeechPacker {
            finder: SpeechFinder::new(&network, TranscribeOptions::default().vad, 480_000),
            window: 480_000,
            audio: vec![0.0; 62 * 16_000],
            offset: 0,
            parts: Vec::new(),
            packed: 0,
        };
        let speech = |from: usize, to: usize| from * 1_600..to * 1_600;
        // 27.4 s of speech, a pause of 0.6 s, 1.5 s, a pause of 0.3 s, and 29 s.
        let spoken = vec![speech(0, 274), speech(280, 295), speech(298, 588)];
        let pieces = packer.pack(Stretch { samples: speech(0, 588), speech: spoken });
        let rest = packer.take(packer.parts.len());
        let lengths: Vec<usize> = pieces.iter().chain(&rest).map(|piece| piece.audio.len()).collect();
        assert!(lengths.iter().all(|length| *length <= 480_000), "{lengths:?}");
        assert_eq!(lengths.iter().sum::<usize>(), 588 * 1_600);
    }

    #[test]
    fn words_do_not_reach_into_pauses() {
        let piece = AudioPiece {
            parts: vec![0..20_000, 60_000..90_000],
            speech: vec![4_000..16_000, 64_000..70_000, 74_000..86_000],
            audio: vec![0.0; 50_000],
            prepared: None,
            begins_word: true,
        };
        assert_eq!(piece.place(0..8_000), 4_000..8_000);
        assert_eq!(piece.place(8_000..20_000), 8_000..16_000);
        assert_eq!(piece.place(15_000..32_000), 64_000..70_000, "it is in the speech that has most of it");
        assert_eq!(piece.place(0..4_100), 0..4_100, "there is too little of it in the speech");
        let word = |start: f64, end: f64| TimedWord { text: String::new(), tokens: 1, start, end, probability: 1.0 };
        // In the piece, the second stretch begins at 1.25 s and its speech at 1.5 s and 2.125 s, in the recording at 4 s and
        // 4.625 s.
        let words = piece.words(vec![word(0.5, 0.6), word(0.6, 0.7), word(1.75, 1.8), word(2.7, 2.75)]);
        let ms = |seconds: f64| (1000.0 * seconds).round() as u32;
        let times: Vec<(u32, u32)> = words.into_iter().map(|word| (ms(word.start), ms(word.end))).collect();
        // The first stretch of speech ends at 1 s, the second at 4.375 s, the third at 5.375 s.
        let expected = [(250, 600), (600, 900), (4000, 4300), (5200, 5275)];
        assert_eq!(times, expected, "they begin and end with the speech, unless that was long before");
    }

    #[test]
    fn a_full_window_ends_at_the_longest_of_its_last_pauses() {
        let network = VadNetwork::new();
        let mut packer = SpeechPacker {
            finder: SpeechFinder::new(&network, Default::default(), 480_000),
            window: 480_000,
            audio: vec![0.0; 800_000],
            offset: 0,
            parts: Vec::new(),
            packed: 0,
        };
        // Speech of 1.5 s, 17 times in a window, with pauses of 0.2 s, of which one is longer.
        let mut at = 0;
        let mut speech = Vec::new();
        for index in 0..20 {
            speech.push(at..at + 24_000);
            at += 24_000 + if index == 15 { 6_400 } else { 3_200 };
        }
        let pieces = packer.pack(Stretch { samples: 0..at, speech });
        assert_eq!(pieces.iter().map(|piece| piece.speech.len()).collect::<Vec<_>>(), [16]);
        assert_eq!((pieces[0].parts.len(), pieces[0].samples()), (1, 0..pieces[0].audio.len()));
        assert_eq!(pieces[0].audio.len(), 16 * 24_000 + 15 * 3_200 + 3_200, "to the middle of the pause");
        assert_eq!(packer.take(packer.parts.len()).map(|piece| piece.speech.len()), Some(4));
        assert_eq!((packer.take(0), packer.packed), (None, 0));
    }
}
