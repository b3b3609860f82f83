//! Analysis of Morse recordings without a model: whether a tone is keyed, its pitch, speed and level, and the gaps
//! between characters at which a long recording can be cut.

use crate::radio::{RATE, carrier_pitch};
use std::f64::consts::TAU;
use std::ops::Range;
use undertone_data::cut;
use undertone_data::reader::Piece;

/// A keyed tone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyedTone {
    /// Frequency, in hertz.
    pub pitch_hz: f64,
    /// Speed of the characters, in words per minute, measured from dits and the gaps inside characters together,
    /// because many senders make one longer and the other shorter.
    pub wpm: f64,
    /// Power of the tone, key down, over that of the noise between marks in 500 Hz, in decibels; infinite without
    /// noise.
    pub snr_db: f64,
}

/// Samples between two values of an envelope: 5 ms.
const HOP: usize = 80;
/// Samples of each of the two moving averages that filter the tone: 12 ms, half a dit at 50 words per minute.
const AVERAGE: usize = 192;
/// Noise bandwidth of both averages together, in hertz: ∫h² of a triangle of 2 · 12 ms is 2 / (3 · 12 ms).
const NOISE_BANDWIDTH_HZ: f64 = 2.0 * RATE / (3.0 * AVERAGE as f64);
/// Minimum ratio of marks and gaps in amplitude, 6 dB; below it nothing is keyed.
const LEAST_CONTRAST: f64 = 2.0;
/// Position of the key-down threshold between the level of gaps and that of marks, as a share.
const KEY_DOWN: f64 = 0.4;
/// Minimum length of a fade to either side of a mark, in hops: 0.3 s.
const FADE_HOPS: usize = 60;
/// Maximum ratio of the loudest mark to the weakest, in amplitude: 20 dB.
const DEEPEST_FADE: f64 = 10.0;
/// Minimum ratio of marks to the level of gaps: the noise in gaps has peaks of eight times its lower tenth.
const ABOVE_GAPS: f64 = 12.0;
/// Minimum signal-to-noise ratio of a tone: noise alone fluctuates like a tone of -2.5 dB.
const LEAST_SNR_DB: f64 = 0.0;
/// Minimum length of a run, in hops: 15 ms, less than a dit at 60 words per minute. Shorter runs are noise.
const SHORTEST_RUN: usize = 3;
/// Minimum number of marks in Morse.
const FEWEST_MARKS: usize = 5;
/// Minimum gap between characters, in dits; and minimum gap between words, as a multiple of the lower quartile of the
/// character gaps or, if there are few of them, in dits.
const CHARACTER_GAP: f64 = 2.0;
const WORD_GAP: f64 = 1.7;
const FEW_GAPS: usize = 5;
const WORD_GAP_DITS: f64 = 5.0;
/// Dits of speeds from 5 to 60 words per minute, in seconds.
const DIT_S: [f64; 2] = [0.02, 0.24];

/// Returns the strongest tone of 16 kHz audio, if it is keyed and stronger than the noise in 500 Hz. For a long
/// recording it is the tone of the half minute with the median level among those that have one.
pub fn keyed_tone(audio: &[f32]) -> Option<KeyedTone> {
    let mut tones: Vec<KeyedTone> = audio.chunks(STRETCH).filter_map(tone_of).collect();
    tones.sort_by(|a, b| a.snr_db.total_cmp(&b.snr_db));
    tones.get(tones.len() / 2).copied()
}

/// Number of samples that are searched for one tone: 30 s.
const STRETCH: usize = 480_000;

fn tone_of(audio: &[f32]) -> Option<KeyedTone> {
    let pitch_hz = carrier_pitch(audio);
    let envelope = Envelope::new(audio, pitch_hz);
    let keying = envelope.keying()?;
    let dit = keying.dit()?;
    let power = |down: bool| {
        let hops = keying.runs.iter().filter(|run| run.down == down).flat_map(|run| inner(&run.hops));
        let values: Vec<f64> = hops.map(|hop| envelope.0[hop].powi(2)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    // Marks contain the tone and noise, so the noise power is subtracted.
    let (down, up) = (power(true), power(false));
    let noise = up * 500.0 / NOISE_BANDWIDTH_HZ;
    let snr_db = 10.0 * ((down - up).max(0.0) / noise).log10();
    (snr_db > LEAST_SNR_DB).then_some(KeyedTone { pitch_hz, wpm: 1.2 / keying.unit(dit), snr_db })
}

/// Cuts 16 kHz audio into pieces of at most `window` samples, at the longest gap of the keying in the later part of
/// each window. Two pieces share the gap between them, so that each character is surrounded by the silence that marks
/// its start and end. If nothing is keyed, the audio is cut at silences, as by [`cut::pieces`].
pub fn pieces(audio: &[f32], window: usize) -> Vec<Piece> {
    let window = window.max(1);
    let (mut pieces, mut start, mut begins_word) = (Vec::new(), 0, true);
    while audio.len() - start > window {
        let gap = gap_within(&audio[start..][..=window], window);
        // A cut inside the gap at the end of the last piece would only repeat a part of that piece.
        if pieces.last().is_none_or(|last: &Piece| start + gap.samples.end > last.samples.end) {
            pieces.push(Piece { samples: start..start + gap.samples.end, begins_word });
        }
        (start, begins_word) = (start + gap.samples.start, gap.between_words);
    }
    if start < audio.len() {
        pieces.push(Piece { samples: start..audio.len(), begins_word });
    }
    pieces
}

/// Returns the marks of the keyed tone in 16 kHz audio: when the key was down, in samples. Half a minute without a keyed
/// tone has none.
pub fn marks(audio: &[f32]) -> Vec<Range<usize>> {
    let stretches = audio.chunks(STRETCH).enumerate().filter(|(_, stretch)| tone_of(stretch).is_some());
    let marks = stretches.flat_map(|(index, stretch)| {
        let keying = Envelope::new(stretch, carrier_pitch(stretch)).keying();
        let down = keying.into_iter().flat_map(|keying| keying.runs).filter(|run| run.down);
        let first = index * STRETCH;
        down.map(move |run| first + run.hops.start * HOP..first + run.hops.end * HOP).collect::<Vec<_>>()
    });
    marks.collect()
}

/// A gap between characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Range of its samples; it begins after the first sample.
    pub samples: Range<usize>,
    /// Whether it is a word gap.
    pub between_words: bool,
}

/// Returns the last gap between characters in 16 kHz audio. Every character before it is complete, whatever follows.
/// None if no tone is keyed, or no character has ended.
pub fn last_gap(audio: &[f32]) -> Option<Gap> {
    let keying = Envelope::new(audio, carrier_pitch(audio)).keying()?;
    let dit = keying.dit().unwrap_or(DIT_S[1]);
    let between = |gap: &Range<usize>| gap.start > 0 && seconds(gap.len()) > CHARACTER_GAP * dit;
    let gap = keying.gaps().filter(between).last()?;
    Some(keying.gap(gap.clone(), gap.len(), audio.len()))
}

/// Returns the gap at which to cut audio that is a sample longer than a window.
fn gap_within(audio: &[f32], window: usize) -> Gap {
    let envelope = Envelope::new(audio, carrier_pitch(audio));
    let silence = || {
        let cut = cut::pieces(audio, window).first().map_or(window, |piece| piece.end);
        Gap { samples: cut..cut, between_words: true }
    };
    let Some(keying) = envelope.keying() else { return silence() };
    // The length of a gap that continues after the window is not known, unless it already is a word gap.
    let ends = |gap: &Range<usize>| gap.end < envelope.0.len() || keying.is_between_words(gap.len());
    let from = |hop: usize| {
        let later =
            keying.gaps().filter(ends).map(|gap| gap.start.max(hop)..gap.end).max_by_key(ExactSizeIterator::len);
        later.filter(|gap| !gap.is_empty())
    };
    let (half, third) = (envelope.0.len() / 2, (envelope.0.len() / 3).max(1));
    let length = |gap: &Option<Range<usize>>| gap.as_ref().map_or(0, ExactSizeIterator::len);
    // A slow sender's character may fill half of the window.
    let (latest, earlier) = (from(half), from(third));
    let Some(gap) = (if 2 * length(&latest) >= length(&earlier) { latest } else { earlier }) else { return silence() };
    let whole = keying.gaps().find(|whole| whole.end == gap.end).map_or(0, |whole| whole.len());
    keying.gap(gap, whole, window)
}

/// Strength of a tone, every 5 ms.
struct Envelope(Vec<f64>);

/// Marks and gaps, in order.
struct Keying {
    runs: Vec<Run>,
}

/// A mark or a gap.
struct Run {
    hops: Range<usize>,
    down: bool,
}

impl Envelope {
    /// Shifts the audio down by `pitch_hz` and averages it twice over 12 ms.
    fn new(audio: &[f32], pitch_hz: f64) -> Self {
        let turn = TAU * pitch_hz / RATE;
        let down = |part: fn(f64) -> f64| -> Vec<f64> {
            audio.iter().enumerate().map(|(n, sample)| f64::from(*sample) * part(turn * n as f64)).collect()
        };
        let [re, im] =
            [f64::cos as fn(f64) -> f64, f64::sin].map(|part| averaged(&averaged(&down(part), AVERAGE), AVERAGE));
        Self(re.iter().zip(&im).step_by(HOP).map(|(re, im)| re.hypot(*im)).collect())
    }

    /// Returns marks and gaps, if their levels differ enough.
    fn keying(&self) -> Option<Keying> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let share = |share: f64| sorted.get(((sorted.len().max(1) - 1) as f64 * share) as usize).copied();
        let (low, high) = (share(0.1)?, share(0.95)?);
        if high <= LEAST_CONTRAST * low {
            return None;
        }
        // Where the tone has faded, marks are as weak as gaps are elsewhere.
        let least = (high / DEEPEST_FADE).max(low * ABOVE_GAPS).min(high);
        let loudest = loudest_around(&self.0, FADE_HOPS);
        let threshold = |loudest: f64| low + KEY_DOWN * (loudest.clamp(least, high) - low);
        let mut runs: Vec<Run> = Vec::new();
        let keys: Vec<bool> =
            self.0.iter().zip(&loudest).map(|(value, loudest)| *value > threshold(*loudest)).collect();
        for same in keys.chunk_by(|a, b| a == b) {
            let start = runs.last().map_or(0, |run| run.hops.end);
            let run = Run { hops: start..start + same.len(), down: same[0] };
            match runs.last_mut() {
                // A spike of noise is merged with the runs before and after it.
                Some(last) if run.hops.len() < SHORTEST_RUN || last.down == run.down => last.hops.end = run.hops.end,
                _ => runs.push(run),
            }
        }
        Some(Keying { runs })
    }
}

impl Keying {
    fn gaps(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs.iter().filter(|run| !run.down).map(|run| run.hops.clone())
    }

    /// Makes a gap from its hops, excluding the edges of the marks around it, in audio of this many samples.
    fn gap(&self, hops: Range<usize>, whole: usize, samples: usize) -> Gap {
        let edge = (AVERAGE / HOP).min(hops.len() / 4);
        let [start, end] = [hops.start + edge, hops.end - edge].map(|hop| (hop * HOP).clamp(1, samples));
        Gap { samples: start..end, between_words: self.is_between_words(whole) }
    }

    /// Returns the length of a dit, in seconds.
    fn dit(&self) -> Option<f64> {
        let marks = self.runs.iter().filter(|run| run.down);
        dit(&marks.map(|run| seconds(run.hops.len())).collect::<Vec<_>>())
    }

    /// Returns the mean length of a dit and a gap inside a character, in seconds.
    fn unit(&self, dit: f64) -> f64 {
        let inside: Vec<f64> =
            self.gaps().map(|gap| seconds(gap.len())).filter(|gap| *gap < CHARACTER_GAP * dit).collect();
        let gap = if inside.is_empty() { dit } else { inside.iter().sum::<f64>() / inside.len() as f64 };
        (dit + gap) / 2.0
    }

    /// Returns whether a gap of this many hops is a word gap; true if it cannot be determined.
    fn is_between_words(&self, gap: usize) -> bool {
        let Some(dit) = self.dit() else { return true };
        // The first and the last gap may be longer than their part in the audio.
        let end = self.runs.last().map_or(0, |run| run.hops.end);
        let heard = self.gaps().filter(|gap| gap.start > 0 && gap.end < end).map(|gap| gap.len());
        let whole = heard.filter(|gap| seconds(*gap) > CHARACTER_GAP * dit);
        let mut between_characters: Vec<usize> = whole.collect();
        between_characters.sort_unstable();
        match between_characters.get(between_characters.len() / 4) {
            Some(quartile) if between_characters.len() >= FEW_GAPS => gap as f64 > WORD_GAP * *quartile as f64,
            _ => seconds(gap) > WORD_GAP_DITS * dit,
        }
    }
}

fn seconds(hops: usize) -> f64 {
    (hops * HOP) as f64 / RATE
}

/// Returns the mean of `count` values around each value.
pub(super) fn averaged(values: &[f64], count: usize) -> Vec<f64> {
    let half = count / 2;
    let mut sum: f64 = values.iter().take(half).sum();
    let mean = |n: usize| {
        sum += values.get(n + half).copied().unwrap_or_default();
        sum -= n.checked_sub(half).map_or(0.0, |left| values[left]);
        sum / count as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Returns the maximum of the values up to `reach` away from each.
fn loudest_around(values: &[f64], reach: usize) -> Vec<f64> {
    let around = |n: usize| &values[n.saturating_sub(reach)..values.len().min(n + reach + 1)];
    (0..values.len()).map(|n| around(n).iter().copied().fold(0.0, f64::max)).collect()
}

/// Returns a run without its edges.
fn inner(hops: &Range<usize>) -> Range<usize> {
    let edge = (hops.len() / 4).min(AVERAGE / HOP);
    hops.start + edge..hops.end - edge
}

/// Returns the length of a dit, in seconds: the mean of the marks that are shorter than two dits, found iteratively.
fn dit(marks: &[f64]) -> Option<f64> {
    let mut marks: Vec<f64> = marks.iter().copied().filter(|mark| *mark > DIT_S[0] / 2.0).collect();
    if marks.len() < FEWEST_MARKS {
        return None;
    }
    marks.sort_by(f64::total_cmp);
    let mut dit = marks[marks.len() / 5];
    for _ in 0..20 {
        let short: Vec<f64> = marks.iter().copied().filter(|mark| *mark < 2.0 * dit).collect();
        dit = short.iter().sum::<f64>() / short.len() as f64;
    }
    (DIT_S[0]..=DIT_S[1]).contains(&dit).then_some(dit)
}

#[cfg(test)]
mod tests {
    use super::super::{CwConfig, CwHand, CwSynth, CwText, tests::plain};
    use super::*;
    use proptest::prelude::*;

    fn sent(text: &str, wpm: f32, pitch_hz: f32, snr_db: f32) -> super::super::CwSample {
        let config = CwConfig {
            text: CwText { fixed: vec![text.into()], ..CwText::default() },
            duration_s: [1.0, 120.0],
            wpm: [wpm, wpm],
            pitch_hz: [pitch_hz, pitch_hz],
            snr_db: [snr_db, snr_db],
            clean: 0.0,
            ..plain()
        };
        let mut clip = CwSynth::new(config, 1).expect("a synthesiser").sample(0);
        let end = clip.marks.last().map_or(0.0, |mark| mark.end) + 0.3;
        clip.audio.truncate((end * 16_000.0) as usize);
        clip
    }

    const LONG: &str = "NOW IS THE TIME FOR ALL GOOD MEN TO COME TO THE AID OF THE PARTY AND OF THEIR COUNTRY";

    #[test]
    fn a_keyed_tone_tells_pitch_speed_and_level() {
        for (wpm, pitch, snr) in [(12.0, 450.0, 20.0), (25.0, 700.0, 12.0), (30.0, 1200.0, 25.0)] {
            let found = keyed_tone(&sent(LONG, wpm, pitch, snr).audio).expect("a tone");
            assert!((found.pitch_hz - f64::from(pitch)).abs() < 10.0, "{found:?}");
            assert!((found.wpm / f64::from(wpm) - 1.0).abs() < 0.1, "{found:?}");
            // Fast marks consist of their edges alone.
            assert!((found.snr_db - f64::from(snr)).abs() < 4.0, "{found:?}");
        }
    }

    #[test]
    fn marks_are_where_the_key_was_down() {
        let clip = sent("CQ DE K1ABC", 20.0, 600.0, 25.0);
        let found = marks(&clip.audio);
        // C and Q have four each, D three, E one, K three, 1 five, A two, B and C four each.
        assert_eq!(found.len(), 30);
        let seconds = |sample: usize| sample as f32 / RATE as f32;
        let ends = [seconds(found[0].start) - clip.marks[0].start, seconds(found[29].end) - clip.marks[10].end];
        assert!(ends.iter().all(|far| far.abs() < 0.02), "{ends:?}");
        let lengths: Vec<f32> = found.iter().map(|mark| seconds(mark.len())).collect();
        assert!(lengths[0] > 2.0 * lengths[1] && lengths[2] > 2.0 * lengths[3], "C is long, short, long, short");
        assert!(marks(&[0.0; 32_000]).is_empty());
    }

    #[test]
    fn the_speed_is_that_of_dits_and_gaps_together() {
        for weighting in [0.38, 0.5, 0.6] {
            let hand = CwHand {
                probability: 1.0,
                mark_jitter: [0.0; 2],
                gap_jitter: [0.0; 2],
                weighting: [weighting; 2],
                swing: [0.0; 2],
            };
            let text = CwText { fixed: vec![LONG.into()], ..CwText::default() };
            let config = CwConfig { text, hand, duration_s: [1.0, 120.0], wpm: [20.0; 2], ..plain() };
            let clip = CwSynth::new(config, 1).expect("a synthesiser").sample(0);
            let found = keyed_tone(&clip.audio).expect("a tone");
            assert!((found.wpm - 20.0).abs() < 1.0, "{weighting}: {found:?}");
        }
    }

    #[test]
    fn characters_are_whole_up_to_the_last_gap_between_them() {
        let clip = sent(LONG, 20.0, 700.0, 20.0);
        for seconds in [3.0, 5.5, 9.0, 20.0_f32] {
            let audio = &clip.audio[..(seconds * 16_000.0) as usize];
            let whole = last_gap(audio).expect("characters").samples.end as f32 / 16_000.0;
            let cut = clip.marks.iter().find(|mark| mark.character != ' ' && mark.start < whole && whole < mark.end);
            assert_eq!(cut, None);
            // A character of twenty dits and a gap are all that is left.
            assert!(seconds - whole < 1.5, "{whole} of {seconds} s");
        }
        assert_eq!(last_gap(&[0.0; 16_000]), None);
    }

    #[test]
    fn what_is_not_keyed_is_no_tone() {
        let noise = CwConfig { noise_only: 1.0, clean: 0.0, ..plain() };
        let noise = CwSynth::new(noise, 1).expect("a synthesiser").sample(0).audio;
        let carrier: Vec<f32> = (0..64_000).map(|n| (0.3 * f64::from(n)).sin() as f32).collect();
        for audio in [noise, carrier, vec![0.0; 32_000], Vec::new()] {
            assert_eq!(keyed_tone(&audio), None);
        }
    }

    #[test]
    fn long_recordings_are_cut_between_characters() {
        let (mut right, mut cuts) = (0, 0);
        for (wpm, snr) in [(8.0, 25.0), (15.0, 5.0), (25.0, 5.0), (45.0, 15.0)] {
            let clip = sent(LONG, wpm, 620.0, snr);
            for (within, begins_word) in cuts_of(&clip, 8 * 16_000) {
                right += usize::from(within == begins_word);
                cuts += 1;
            }
        }
        // Noise fills gaps, so that their lengths are detected less reliably than their positions.
        assert!(10 * right >= 8 * cuts, "{right} of {cuts}");
    }

    #[test]
    fn a_recording_that_fades_is_cut_between_characters() {
        for (period_s, snr) in [(3.0_f32, 40.0), (4.0, 20.0), (10.0, 20.0)] {
            let mut clip = sent(LONG, 22.0, 620.0, snr);
            for (n, sample) in clip.audio.iter_mut().enumerate() {
                *sample *= 0.55 + 0.45 * (std::f32::consts::TAU * n as f32 / 16_000.0 / period_s).cos();
            }
            cuts_of(&clip, 8 * 16_000);
        }
    }

    /// For each cut, whether it is in a word gap and whether it is detected as one; there are no cuts inside a
    /// character.
    fn cuts_of(clip: &super::super::CwSample, window: usize) -> Vec<(bool, bool)> {
        let pieces = pieces(&clip.audio, window);
        assert!(pieces.len() > 1);
        let cut = |pair: &[Piece]| {
            let [start, end] = [pair[1].samples.start, pair[0].samples.end].map(|sample| sample as f32 / 16_000.0);
            let within = clip.marks.iter().find(|mark| mark.start < end && start < mark.end).map(|mark| mark.character);
            assert!(within.is_none_or(|c| c == ' '), "{within:?} is cut or read twice from {start} to {end} s");
            (within.is_some(), pair[1].begins_word)
        };
        pieces.windows(2).map(cut).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_sample_is_in_a_piece_and_no_piece_is_too_long(
            plan in prop::collection::vec((0u8..3, 1usize..40_000), 0..8),
            window in 1000usize..100_000,
        ) {
            let parts = plan.iter().flat_map(|(kind, length)| {
                (0..*length).map(move |n| match kind {
                    0 => 0.0,
                    1 => (0.2 * n as f32).sin(),
                    _ => f32::from(n / 1000 % 2 == 0) * (0.3 * n as f32).sin(),
                })
            });
            let audio: Vec<f32> = parts.collect();
            let pieces = pieces(&audio, window);
            prop_assert_eq!(pieces.last().map_or(0, |piece| piece.samples.end), audio.len());
            let overlap = |pair: &[Piece]| {
                let [before, after] = [&pair[0].samples, &pair[1].samples];
                before.start < after.start && after.start <= before.end && before.end <= after.end
            };
            prop_assert!(pieces.windows(2).all(overlap));
            prop_assert!(pieces.iter().all(|piece| !piece.samples.is_empty() && piece.samples.len() <= window));
        }
    }
}
