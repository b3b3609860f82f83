//! How a model that reads Morse is given its audio.

use super::envelope::Signal;
use super::listen::{self, KeyedTone};
use super::spacing::Spacing;
use super::{morse, narrow, repeats};
use std::ops::Range;
use undertone_data::reader::{Piece, Reader};

/// The reader `cw`. Recordings are cut between characters, and in doubt the keyed tone is read alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct MorseReader;

/// Fastest sender that counts as slow, in words per minute.
const SLOW_WPM: f64 = 14.0;
/// Highest pitch that is read where it is, in hertz.
const HIGHEST_HZ: f64 = 2000.0;
/// Speed that slow senders are read at, in words per minute: all models of Morse have learnt it.
const READ_WPM: f64 = 28.0;
/// Speeds that a signal in noise is read at, in words per minute, unless it is sent faster: the faster it is read, the more of it
/// is in a window, and the less noise in each frame.
const SIGNAL_WPM: [f64; 3] = [25.0, 35.0, 50.0];
/// Silence before audio that begins with the key down, in samples: 20 ms.
const SILENCE: usize = 320;
/// Largest factor by which audio is shortened.
const MOST: f64 = 6.0;
/// Number of windows by which it is decided whether characters are far apart: the first may have two of them.
const AHEAD: usize = 3;
/// Share of the shortening of wide gaps that a piece is made longer by: its later gaps may be shorter than those of its first window.
const EXPECTED: f64 = 0.8;
/// Limit on the size of a Morse vocabulary, special tokens included. Vocabularies of languages have thousands of
/// tokens.
const MOST_TOKENS: usize = 128;

impl Reader for MorseReader {
    fn name(&self) -> &str {
        "cw"
    }

    fn alphabet(&self) -> String {
        morse::alphabet().collect()
    }

    /// Folders that were written before they named their reader have a vocabulary of Morse characters only.
    fn recognises(&self, tokens: usize) -> bool {
        tokens < MOST_TOKENS
    }

    fn longest_piece(&self, audio: &[f32], window: usize) -> usize {
        let ahead = AHEAD * window;
        let is_open = audio.len() <= ahead && certain_signal(audio, window).is_some_and(|s| Spacing::may_be_wide(&s));
        if is_open { ahead } else { longest(audio, window) }
    }

    fn pieces(&self, audio: &[f32], window: usize) -> Vec<Piece> {
        listen::pieces(audio, |audio| longest(audio, window))
    }

    /// Slow senders are read faster than they send, and what they send far apart is brought together: few models have learnt
    /// characters that last a second, and a window has few of them. Tones above the pitches that people listen to are moved to
    /// 700 Hz. Audio that begins with the key down gets a moment of silence before it, without which its first character is lost.
    fn prepared(&self, piece: &[f32], window: usize) -> Option<Vec<f32>> {
        let first = certain_signal(piece, window)?;
        let closed = closed(piece, &first);
        let Signal { tone, marks, .. } = first;
        let own = closed.as_deref().unwrap_or(piece);
        let factor = slowness(&tone).max(own.len() as f64 / window as f64);
        let moved = (factor > 1.0 || tone.pitch_hz > HIGHEST_HZ).then(|| narrow::faster(own, tone.pitch_hz, factor));
        if marks.first().is_none_or(|mark| mark.start >= SILENCE) {
            return moved.or(closed);
        }
        let read = moved.as_deref().unwrap_or(own);
        let silence = SILENCE.min(window.saturating_sub(read.len()));
        Some([&vec![0.0; silence], read].concat())
    }

    /// What is read before it is known whether characters are far apart may have spaces within words.
    fn complete(&self, audio: &[f32], window: usize) -> Option<usize> {
        let is_open = |signal: &Signal| Spacing::may_be_wide(signal) && Spacing::wide(signal).is_none();
        let piece = &audio[..audio.len().min(longest(audio, window))];
        if listen::certain_signal(piece).is_some_and(|signal| is_open(&signal)) {
            return None;
        }
        listen::last_gap(piece).map(|gap| gap.samples.end)
    }

    fn missing(&self, text: &str, piece: &[f32]) -> Vec<usize> {
        repeats::missing(text, &listen::heard(piece))
    }

    /// The main sources of confusion are other stations beside the tone, and noise.
    fn signals(&self, piece: &[f32], window: usize) -> Vec<Vec<f32>> {
        let closed = certain_signal(piece, window).and_then(|first| closed(piece, &first));
        let piece = closed.as_deref().unwrap_or(piece);
        let Some(tone) = listen::faint_tone(piece) else { return Vec::new() };
        let least = (piece.len() as f64 / window as f64).max(1.0);
        let mut factors: Vec<f64> = SIGNAL_WPM.map(|wpm| (wpm / tone.wpm).clamp(least, MOST)).to_vec();
        factors.dedup();
        factors.into_iter().map(|factor| narrow::signal(piece, tone.pitch_hz, factor)).collect()
    }
}

/// Returns the tone of a sender and its marks, by the first window.
fn certain_signal(audio: &[f32], window: usize) -> Option<Signal> {
    listen::certain_signal(&audio[..audio.len().min(window)])
}

/// Returns the length of a piece at the start of audio, by what is there of its first windows.
fn longest(audio: &[f32], window: usize) -> usize {
    let Some(first) = certain_signal(audio, window) else { return window };
    let ahead = &audio[..audio.len().min(AHEAD * window)];
    let closed = wide(ahead, &first).map_or(1.0, |(wide, gaps)| EXPECTED * wide.gain(ahead.len(), &gaps));
    (window as f64 * (slowness(&first.tone) * closed.max(1.0)).min(MOST)) as usize
}

/// Returns the spacing of audio whose characters are far apart, and its wide gaps. `first` is the signal of its first window.
fn wide(audio: &[f32], first: &Signal) -> Option<(Spacing, Vec<Range<usize>>)> {
    let signal = Spacing::may_be_wide(first).then(|| listen::certain_signal(audio))??;
    let wide = Spacing::wide(&signal)?;
    Some((wide, wide.gaps(audio, &signal.marks)))
}

/// Returns a piece whose characters are far apart with usual gaps between them.
fn closed(piece: &[f32], first: &Signal) -> Option<Vec<f32>> {
    wide(piece, first).map(|(wide, gaps)| wide.closed(piece, &gaps))
}

/// Returns the factor by which a piece is shortened: 1, unless the sender is slow.
fn slowness(tone: &KeyedTone) -> f64 {
    if tone.wpm < SLOW_WPM { (READ_WPM / tone.wpm).clamp(1.0, MOST) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{far_apart, fixed, one, plain};
    use super::super::{CwConfig, CwSample};
    use super::*;

    const WINDOW: usize = 128_000;
    const TEXT: &str = "NOW IS THE TIME FOR ALL GOOD MEN TO COME TO THE AID";

    fn sent(wpm: f32, snr_db: f32) -> CwSample {
        one(fixed(CwConfig { wpm: [wpm; 2], snr_db: [snr_db; 2], clean: 0.0, ..plain() }, TEXT, 120.0))
    }

    #[test]
    fn high_tones_are_moved_to_a_usual_pitch() {
        for pitch in [1200.0, 1750.0] {
            let config = CwConfig { pitch_hz: [pitch; 2], wpm: [10.0; 2], snr_db: [20.0; 2], ..plain() };
            // Every second sample: twice as fast and twice as high, where nothing is synthesised.
            let audio: Vec<f32> = one(fixed(config, TEXT, 60.0)).audio.into_iter().step_by(2).collect();
            let found = listen::keyed_tone(&audio).expect("a tone");
            assert!(
                (found.pitch_hz - 2.0 * f64::from(pitch)).abs() < 10.0 && (found.wpm - 20.0).abs() < 3.0,
                "{found:?}"
            );
            let given = MorseReader.prepared(&audio[..WINDOW], WINDOW).expect("moved");
            assert_eq!(given.len(), WINDOW);
            assert!((crate::radio::carrier_pitch(&given) - 700.0).abs() < 15.0);
        }
        assert!(
            MorseReader.prepared(&sent(20.0, 20.0).audio[..WINDOW], WINDOW).is_none(),
            "a usual pitch is read as it is"
        );
    }

    #[test]
    fn audio_that_begins_with_the_key_down_gets_a_silence() {
        let audio = sent(20.0, 20.0).audio;
        let first = listen::marks(&audio)[0].start;
        let (early, cut) = (&audio[first - 800..first + 100_000], &audio[first + 160..first + 100_000]);
        assert!(MorseReader.prepared(early, WINDOW).is_none());
        assert_eq!(MorseReader.prepared(cut, WINDOW), Some([&[0.0; SILENCE], cut].concat()));
        let whole = &audio[first + 160..][..WINDOW];
        assert!(MorseReader.prepared(whole, WINDOW).is_some_and(|given| given == whole), "there is no room");
    }

    #[test]
    fn slow_senders_are_read_faster_and_more_of_them_at_once() {
        for (wpm, snr_db) in [(5.0, 20.0), (8.0, 3.0), (12.0, 10.0)] {
            let clip = sent(wpm, snr_db);
            let pieces = MorseReader.pieces(&clip.audio, WINDOW);
            let first = &clip.audio[pieces[0].samples.clone()];
            assert!(first.len() > WINDOW, "{wpm}: {}", first.len());
            for piece in &pieces {
                let piece = &clip.audio[piece.samples.clone()];
                assert!(piece.len() <= MorseReader.longest_piece(piece, WINDOW));
                assert!(MorseReader.prepared(piece, WINDOW).map_or(piece.len(), |given| given.len()) <= WINDOW);
            }
            let read = listen::keyed_tone(&MorseReader.prepared(first, WINDOW).expect("it is slow")).expect("a tone");
            assert!((read.wpm / READ_WPM - 1.0).abs() < 0.15, "{wpm}: {read:?}");
        }
    }

    #[test]
    fn fast_characters_far_apart_are_brought_together_and_not_made_faster() {
        for (wpm, ratio) in [(30.0, 0.33), (18.0, 0.28), (20.0, 0.5)] {
            let audio = far_apart(TEXT, wpm, ratio);
            let pieces = MorseReader.pieces(&audio, WINDOW);
            assert!(pieces[0].samples.len() > WINDOW, "{wpm}: {pieces:?}");
            let given = pieces.iter().map(|piece| MorseReader.prepared(&audio[piece.samples.clone()], WINDOW));
            let given: Vec<Vec<f32>> = given.flatten().collect();
            assert!(given.iter().all(|given| given.len() <= WINDOW));
            let is_own = |given: &&Vec<f32>| {
                let read = listen::keyed_tone(given).expect("a tone").wpm;
                (read / f64::from(wpm) - 1.0).abs() < 0.2
            };
            let own = given.iter().filter(is_own).count();
            // The spacing of a piece with a single gap is not known.
            assert!(own + 2 >= pieces.len() && own > 2, "{wpm}: {own} of {}", pieces.len());
        }
    }

    #[test]
    fn others_are_read_as_they_are() {
        let mut all: Vec<Vec<f32>> = [16.0, 25.0, 50.0].map(|wpm| sent(wpm, 15.0).audio).into();
        all.push(one(CwConfig { noise_only: 1.0, clean: 0.0, ..plain() }).audio);
        all.extend([vec![0.0; 20_000], Vec::new()]);
        for audio in all {
            let first = &audio[..audio.len().min(WINDOW)];
            assert_eq!(MorseReader.longest_piece(&audio, WINDOW), WINDOW);
            assert_eq!(MorseReader.prepared(first, WINDOW), None);
        }
    }

    #[test]
    fn a_signal_is_offered_at_several_speeds_that_fit_the_window() {
        let speeds = |wpm: f32, snr_db: f32| {
            let clip = sent(wpm, snr_db);
            let piece = &clip.audio[..WINDOW];
            MorseReader
                .signals(piece, WINDOW)
                .iter()
                .map(|signal| WINDOW as f64 / signal.len() as f64)
                .collect::<Vec<_>>()
        };
        let near = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            found.iter().zip(expected).for_each(|(a, b)| assert!((a / b - 1.0).abs() < 0.15, "{found:?}"));
        };
        near(speeds(15.0, 0.0), &[25.0 / 15.0, 35.0 / 15.0, 50.0 / 15.0]);
        near(speeds(30.0, 6.0), &[1.0, 35.0 / 30.0, 50.0 / 30.0]);
        near(speeds(55.0, 10.0), &[1.0]);
        assert!(MorseReader.signals(&[0.0; 20_000], WINDOW).is_empty());
        let long = &sent(6.0, 10.0).audio[..3 * WINDOW];
        assert!(MorseReader.signals(long, WINDOW).iter().all(|signal| signal.len() <= WINDOW));
    }
}
