//! Analysis of Morse recordings without a model: whether a tone is keyed, its pitch, speed and level, and the gaps
//! between characters at which a long recording can be cut.

pub use crate::envelope::KeyedTone;
use crate::envelope::{CHARACTER_GAP, DIT_S, Envelope, HOP, Keying, Signal, WORD_GAP_DITS, seconds};
use crate::radio::{Line, RATE, carriers};
use std::ops::Range;
use undertone_data::cut;
use undertone_data::reader::Piece;

/// Returns the strongest tone of 16 kHz audio, if it is keyed and stronger than the noise in 500 Hz. For a long
/// recording it is the tone of the half minute with the median level among those that have one.
pub fn keyed_tone(audio: &[f32]) -> Option<KeyedTone> {
    let mut tones: Vec<KeyedTone> = audio.chunks(STRETCH).filter_map(signal).map(|signal| signal.tone).collect();
    tones.sort_by(|a, b| a.snr_db.total_cmp(&b.snr_db));
    tones.get(tones.len() / 2).copied()
}

/// Number of samples that are searched for one tone: 30 s.
const STRETCH: usize = 480_000;

/// Tones among which one is looked for that is keyed.
const TONES: usize = 4;
/// Ranges of the pitches of stations, in hertz: those that people listen to, and those above.
const PITCHES_HZ: [[f64; 2]; 2] = [[200.0, 2000.0], [2000.0, 3900.0]];
/// Ratio of powers from which on what is below 2000 Hz may be left of a tone above it: 20 dB.
const FAR_STRONGER: f64 = 100.0;

/// Returns the pitch of the strongest tone that is certainly keyed, in hertz, with its envelope and keying, and if none is, of the
/// strongest one below 2000 Hz whose levels differ: a steady carrier beside a station may be stronger than it. Tones above 2000 Hz
/// count where one is stronger than all below, and come first where it is far stronger.
fn strongest(audio: &[f32]) -> Option<(f64, Envelope, Keying)> {
    let [low, high] = carriers(audio, PITCHES_HZ, TONES);
    let power = |lines: &[Line]| lines.first().map_or(0.0, |line| line.power);
    let (ours, above) = (power(&low), power(&high));
    let (before, after) = match () {
        () if above > FAR_STRONGER * ours => (high.as_slice(), &[][..]),
        () if above > ours => (&[][..], high.as_slice()),
        () => (&[][..], &[][..]),
    };
    let mut first = None;
    let tones = before.iter().map(|line| (line, false)).chain(low.iter().map(|line| (line, true)));
    for (line, is_low) in tones.chain(after.iter().map(|line| (line, false))) {
        let Some((envelope, keying)) = Envelope::clearest(audio, line.hz) else { continue };
        if keying.clear >= CERTAIN {
            return Some((line.hz, envelope, keying));
        }
        if is_low && first.is_none() {
            first = Some((line.hz, envelope, keying));
        }
    }
    first
}

/// Returns the strongest tone, if it is keyed.
fn signal(audio: &[f32]) -> Option<Signal> {
    let (pitch_hz, envelope, keying) = strongest(audio)?;
    Signal::of(&envelope, &keying, pitch_hz)
}

/// Share of the variance of an envelope from which on the speed of a tone is certain.
const CERTAIN: f64 = 0.7;
/// Length of a mark in dits above which it is a dah.
const DAH: f64 = 2.0;
/// Minimum signal-to-noise ratio of a tone that a model may read, in dB.
const FAINTEST_DB: f64 = -8.0;

/// Returns the strongest tone, with its marks, if it is certainly keyed.
pub(super) fn certain_signal(audio: &[f32]) -> Option<Signal> {
    let (pitch_hz, envelope, keying) = strongest(audio)?;
    Signal::of(&envelope, &keying, pitch_hz).filter(|_| keying.clear >= CERTAIN)
}

/// A character by its marks.
pub(super) struct Heard {
    /// `.` for a dit and `-` for a dah.
    pub code: String,
    /// Whether a word ends after it.
    pub ends_word: bool,
}

/// Returns the characters of the strongest tone; none unless it is certainly keyed. Of a character that goes on beyond either end, only
/// the marks before that are heard.
pub(super) fn heard(audio: &[f32]) -> Vec<Heard> {
    let certain = strongest(audio).filter(|(_, _, keying)| keying.clear >= CERTAIN);
    let signal = certain.as_ref().and_then(|(pitch_hz, envelope, keying)| Signal::of(envelope, keying, *pitch_hz));
    let (Some((_, envelope, keying)), Some(Signal { tone, marks, .. })) = (&certain, signal) else { return Vec::new() };
    let dits = |samples: usize| samples as f64 * tone.wpm / (1.2 * RATE);
    let edge = envelope.edge() * HOP;
    let mut heard: Vec<Heard> = Vec::new();
    let mut end = None;
    // The edge of a mark that is cut off would be a dit.
    for mark in marks.into_iter().filter(|mark| mark.start > edge && mark.end + edge < audio.len()) {
        let gap = end.map(|end| mark.start - end);
        if gap.is_none_or(|gap| dits(gap) > CHARACTER_GAP) {
            if let (Some(last), Some(gap)) = (heard.last_mut(), gap) {
                last.ends_word = keying.is_between_words(gap / HOP);
            }
            heard.push(Heard { code: String::new(), ends_word: false });
        }
        if let Some(last) = heard.last_mut() {
            last.code.push(if dits(mark.len()) > DAH { '-' } else { '.' });
        }
        end = Some(mark.end);
    }
    heard
}

/// Returns the strongest tone, if it may be keyed.
pub(super) fn faint_tone(audio: &[f32]) -> Option<KeyedTone> {
    let (pitch_hz, envelope, keying) = strongest(audio)?;
    let tone = Signal::measured(&envelope, &keying, pitch_hz)?.tone;
    (tone.snr_db > FAINTEST_DB).then_some(tone)
}

/// Cuts 16 kHz audio into pieces of at most `longest` samples, which depends on the audio from the start of the piece on, at the
/// longest gap of the keying in the later part of each. Two pieces share the gap between them, so that each character is
/// surrounded by the silence that marks its start and end. If nothing is keyed, the audio is cut at silences, as by
/// [`cut::pieces`].
pub fn pieces(audio: &[f32], longest: impl Fn(&[f32]) -> usize) -> Vec<Piece> {
    let (mut pieces, mut start, mut begins_word) = (Vec::new(), 0, true);
    loop {
        let window = longest(&audio[start..]).max(1);
        if audio.len() - start <= window {
            break;
        }
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
    let stretches = audio.chunks(STRETCH).enumerate();
    let marks = stretches.filter_map(|(index, stretch)| {
        let marks = signal(stretch)?.marks;
        let first = index * STRETCH;
        Some(marks.into_iter().map(move |mark| first + mark.start..first + mark.end))
    });
    marks.flatten().collect()
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
    let (_, envelope, keying) = strongest(audio)?;
    let dit = keying.dit().unwrap_or(DIT_S[1]);
    let between = |gap: &Range<usize>| gap.start > 0 && seconds(gap.len()) > CHARACTER_GAP * dit;
    let gap = keying.gaps().filter(between).last()?;
    let gap = gap_of(&envelope, &keying, gap.clone(), gap.len(), audio.len());
    Some(gap.without_others(audio, [true; 2], |free| free.last()))
}

/// Returns the gap at which to cut audio that is a sample longer than a window.
fn gap_within(audio: &[f32], window: usize) -> Gap {
    let silence = || {
        let cut = cut::pieces(audio, window).first().map_or(window, |piece| piece.end);
        Gap { samples: cut..cut, between_words: true }
    };
    let Some((_, envelope, keying)) = strongest(audio) else { return silence() };
    // The length of a gap that continues after the window is not known, unless it already is a word gap.
    let ends = |gap: &Range<usize>| gap.end < envelope.levels.len() || keying.is_between_words(gap.len());
    // The part of a gap in which nobody sends counts.
    let from = |hop: usize| {
        let later = keying.gaps().filter(ends).filter(|whole| whole.end > hop).map(|whole| {
            let gap = gap_of(&envelope, &keying, whole.start.max(hop)..whole.end, whole.len(), window);
            let between_marks = [whole.start >= hop, whole.end < envelope.levels.len()];
            gap.without_others(audio, between_marks, |free| free.max_by_key(ExactSizeIterator::len))
        });
        later.max_by_key(|gap| gap.samples.len())
    };
    let (half, third) = (envelope.levels.len() / 2, (envelope.levels.len() / 3).max(1));
    let length = |gap: &Option<Gap>| gap.as_ref().map_or(0, |gap| gap.samples.len());
    // A slow sender's character may fill half of the window.
    let (latest, earlier) = (from(half), from(third));
    if 2 * length(&latest) >= length(&earlier) { latest } else { earlier }.unwrap_or_else(silence)
}

/// Minimum length of a gap in which another station may answer, in samples: 1 s.
const ANSWER: usize = 16_000;
/// Samples beside a mark of another station that may still be its edge: 10 ms, less than half of a gap between its characters.
const MARK_EDGE: usize = 160;

/// Returns the signal of another station that sends in a gap, if one certainly does.
pub(super) fn answer(gap: &[f32]) -> Option<Signal> {
    (gap.len() >= ANSWER).then(|| certain_signal(gap)).flatten()
}

impl Gap {
    /// Returns the part of the gap that `choose` takes of those in which no other station sends. A gap is that of the strongest
    /// station, and another one that answers it is cut where it is between its own characters. `between_marks` is whether the gap
    /// begins and ends beside a mark of the strongest station.
    fn without_others(
        self,
        audio: &[f32],
        between_marks: [bool; 2],
        choose: impl FnOnce(&mut dyn ExactSizeIterator<Item = Range<usize>>) -> Option<Range<usize>>,
    ) -> Self {
        let Range { start, end } = self.samples;
        let Some(other) = answer(&audio[start..end]) else { return self };
        let dit = 1.2 / other.tone.wpm * RATE;
        let starts = std::iter::once(0).chain(other.marks.iter().map(|mark| mark.end));
        let ends = other.marks.iter().map(|mark| mark.start).chain([end - start]);
        let free = starts.zip(ends).filter(|(from, to)| (to - from) as f64 > CHARACTER_GAP * dit);
        let free: Vec<Range<usize>> = free.map(|(from, to)| from + MARK_EDGE..to - MARK_EDGE).collect();
        let Some(chosen) = choose(&mut free.into_iter()) else { return self };
        let is_change = [chosen.start == MARK_EDGE, chosen.end == end - start - MARK_EDGE];
        let between_words = std::iter::zip(is_change, between_marks).any(|(change, mark)| change && mark)
            || chosen.len() as f64 > WORD_GAP_DITS * dit;
        Self { samples: start + chosen.start..start + chosen.end, between_words }
    }
}

/// Makes a gap from its hops, excluding the edges of the marks around it, in audio of this many samples.
fn gap_of(envelope: &Envelope, keying: &Keying, hops: Range<usize>, whole: usize, samples: usize) -> Gap {
    let edge = envelope.edge().min(hops.len() / 4);
    let [start, end] = [hops.start + edge, hops.end - edge].map(|hop| (hop * HOP).clamp(1, samples));
    Gap { samples: start..end, between_words: keying.is_between_words(whole) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixed, plain};
    use super::super::{CwConfig, CwHand, CwSynth};
    use super::*;
    use proptest::prelude::*;
    use std::f64::consts::TAU;

    fn sent(text: &str, wpm: f32, pitch_hz: f32, snr_db: f32) -> super::super::CwSample {
        let config = CwConfig { wpm: [wpm; 2], pitch_hz: [pitch_hz; 2], snr_db: [snr_db; 2], clean: 0.0, ..plain() };
        let mut clip = CwSynth::new(fixed(config, text, 120.0), 1).expect("a synthesiser").sample(0);
        let end = clip.marks.last().map_or(0.0, |mark| mark.end) + 0.3;
        clip.audio.truncate((end * 16_000.0) as usize);
        clip
    }

    #[test]
    fn characters_are_heard_by_their_marks() {
        for (wpm, snr_db) in [(15.0, 25.0), (22.0, 10.0), (40.0, 15.0)] {
            let clip = sent("RIG IC7300 ES TS5000 EEE", wpm, 650.0, snr_db);
            let spelled = |audio: &[f32]| -> String {
                let spell = |heard: Heard| {
                    let space = if heard.ends_word { " " } else { "" };
                    crate::morse::spelling(&heard.code).unwrap_or_default() + space
                };
                heard(audio).into_iter().map(spell).collect()
            };
            assert_eq!(spelled(&clip.audio), "RIG IC7300 ES TS5000 EEE", "{wpm}");
            // Where audio ends with the key down, the part of the mark is none.
            let last = clip.marks.last().expect("a mark");
            let cut = ((last.start + (last.end - last.start) / 2.0) * 16_000.0) as usize;
            assert_eq!(spelled(&clip.audio[..cut]).trim(), "RIG IC7300 ES TS5000 EE", "{wpm}");
        }
        assert!(heard(&sent("CQ CQ DE W1AW", 25.0, 650.0, -6.0).audio).is_empty());
        assert!(heard(&[]).is_empty());
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
    fn a_station_is_found_beside_a_steady_carrier_that_is_stronger() {
        let clip = sent(LONG, 20.0, 700.0, 20.0);
        let power = clip.audio.iter().map(|sample| f64::from(sample * sample)).sum::<f64>() / clip.audio.len() as f64;
        for (offset, times) in [(200.0, 1.0), (400.0, 3.0), (800.0, 3.0)] {
            // About as strong as the station, and three times as strong.
            let carrier =
                |at: usize| (TAU * (700.0 + offset) * at as f64 / 16_000.0).sin() * times * (4.0 * power).sqrt();
            let both: Vec<f32> =
                clip.audio.iter().enumerate().map(|(at, sample)| sample + carrier(at) as f32).collect();
            for part in both.chunks_exact(128_000) {
                let found = keyed_tone(part).expect("a tone");
                assert!((found.pitch_hz - 700.0).abs() < 30.0 && (found.wpm / 20.0 - 1.0).abs() < 0.2, "{found:?}");
                assert!(last_gap(part).is_some());
            }
        }
        let steady: Vec<f32> = (0..128_000).map(|at| (TAU * 900.0 * f64::from(at) / 16_000.0).sin() as f32).collect();
        assert_eq!(keyed_tone(&steady), None);
    }

    #[test]
    fn marks_are_where_the_key_was_down() {
        let clip = sent("CQ DE K1ABC", 20.0, 600.0, 25.0);
        let found = marks(&clip.audio);
        // C and Q have four each, D three, E one, K three, 1 five, A two, B and C four each.
        assert_eq!(found.len(), 30);
        let seconds = |sample: usize| sample as f32 / 16_000.0;
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
            let config = fixed(CwConfig { hand, wpm: [20.0; 2], ..plain() }, LONG, 120.0);
            let clip = CwSynth::new(config, 1).expect("a synthesiser").sample(0);
            let found = keyed_tone(&clip.audio).expect("a tone");
            assert!((found.wpm - 20.0).abs() < 1.0, "{weighting}: {found:?}");
        }
    }

    #[test]
    fn the_speed_of_text_with_few_dits_is_that_of_its_gaps() {
        for (text, wpm, snr_db) in
            [("TO COME TO", 13.0, 20.0), ("OTTO MOOT TOM", 20.0, 15.0), ("1900 MOTOR", 9.0, 10.0)]
        {
            let found = keyed_tone(&sent(text, wpm, 700.0, snr_db).audio).expect("a tone");
            assert!((found.wpm / f64::from(wpm) - 1.0).abs() < 0.15, "{text}: {found:?}");
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

    /// Two stations answer each other, 200 Hz apart.
    fn exchange() -> (Vec<f32>, Vec<Range<usize>>) {
        let turns = [("CQ CQ DE DL1ABC K", 600.0), ("DL1ABC DE G4XYZ K", 800.0), ("G4XYZ UR RST 599 K", 600.0)];
        let (mut audio, mut sent_at) = (vec![0.0; 4_000], Vec::new());
        for (text, pitch) in turns {
            let clip = sent(text, 22.0, pitch, 40.0);
            let characters = clip.marks.iter().filter(|mark| mark.character != ' ');
            let at = |seconds: f32| audio.len() + (seconds * 16_000.0) as usize;
            sent_at.extend(characters.map(|mark| at(mark.start)..at(mark.end)));
            audio.extend(clip.audio);
            audio.extend([0.0; 8_000]);
        }
        (audio, sent_at)
    }

    #[test]
    fn no_station_is_cut_within_its_characters_or_read_twice() {
        let (audio, characters) = exchange();
        for window in [64_000, 96_000, 128_000] {
            let pieces = pieces(&audio, |_| window);
            assert!(pieces.len() > 2);
            for pair in pieces.windows(2) {
                let shared = pair[1].samples.start..pair[0].samples.end;
                let cut = characters.iter().find(|mark| mark.start < shared.end && shared.start < mark.end);
                assert_eq!(cut, None, "{window}: {shared:?}");
            }
        }
        // A character of the second station, in the gap of the first, is complete only once it has ended. It takes a few to
        // tell a station.
        for end in (64_000..audio.len()).step_by(8_000) {
            let begun = characters.iter().filter(|mark| (end - 24_000..end).contains(&mark.start)).count();
            let Some(gap) = last_gap(&audio[..end]).filter(|_| begun > 3) else { continue };
            let cut = characters.iter().find(|mark| mark.start < gap.samples.end && gap.samples.end < mark.end);
            assert_eq!(cut, None, "up to {end}: {gap:?}");
        }
    }

    /// For each cut, whether it is in a word gap and whether it is detected as one; there are no cuts inside a
    /// character.
    fn cuts_of(clip: &super::super::CwSample, window: usize) -> Vec<(bool, bool)> {
        let pieces = pieces(&clip.audio, |_| window);
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
            let pieces = pieces(&audio, |_| window);
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
