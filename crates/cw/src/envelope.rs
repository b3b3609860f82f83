//! Strength of a tone over time, and the marks and gaps that it is keyed with.

use crate::radio::RATE;
use std::f64::consts::TAU;
use std::ops::Range;

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

/// A keyed tone and its marks.
pub(super) struct Signal {
    /// The tone.
    pub tone: KeyedTone,
    /// Power of the marks: the mean square of the envelope, a quarter of the squared amplitude of the tone.
    pub power: f64,
    /// When the key is down, in samples.
    pub marks: Vec<Range<usize>>,
}

/// Samples between two values of an envelope: 5 ms.
pub(super) const HOP: usize = 80;
/// Samples of each of the two moving averages that filter the tone: 12 ms, half a dit at 50 words per minute.
pub(super) const AVERAGE: usize = 192;
/// Hops of an edge of a mark after both averages.
const EDGE: usize = AVERAGE / HOP;
/// Samples of which an envelope is computed at a time: half a minute, a multiple of [`HOP`].
const PART: usize = 480_000;
/// Samples beside a part that its envelope depends on, a multiple of [`HOP`] too.
const MARGIN: usize = 240;
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
/// Minimum length of a run, in hops: 15 ms, less than a dit at 60 words per minute. Shorter runs are noise.
const SHORTEST_RUN: usize = 3;
/// Minimum number of marks in Morse.
const FEWEST_MARKS: usize = 5;
/// Minimum gap between characters, in dits; and minimum gap between words, as a multiple of the lower quartile of the
/// character gaps or, if there are few of them, in dits.
pub(super) const CHARACTER_GAP: f64 = 2.0;
const WORD_GAP: f64 = 1.7;
const FEW_GAPS: usize = 5;
pub(super) const WORD_GAP_DITS: f64 = 5.0;
/// Dits of speeds from 5 to 60 words per minute, in seconds.
pub(super) const DIT_S: [f64; 2] = [0.02, 0.24];
/// Minimum signal-to-noise ratio of a tone: noise alone fluctuates like a tone of -2.5 dB.
const LEAST_SNR_DB: f64 = 0.0;

/// Strength of a tone, every 5 ms.
pub(super) struct Envelope(pub Vec<f64>);

/// Marks and gaps, in order.
pub(super) struct Keying {
    runs: Vec<Run>,
    /// Hops in gaps at which other stations send.
    others: Vec<Range<usize>>,
}

/// A mark or a gap.
struct Run {
    hops: Range<usize>,
    down: bool,
}

impl Envelope {
    /// Shifts the audio down by `pitch_hz` and averages it twice over 12 ms.
    pub fn new(audio: &[f32], pitch_hz: f64) -> Self {
        let [re, im] = baseband(audio, pitch_hz, AVERAGE, 2);
        Self(re.iter().zip(&im).step_by(HOP).map(|(re, im)| re.hypot(*im)).collect())
    }

    /// As [`new`](Self::new), for audio of any length: no more than half a minute of it is copied at a time.
    pub fn long(audio: &[f32], pitch_hz: f64) -> Self {
        let part = |start: usize| {
            let from = start.saturating_sub(MARGIN);
            let hops = Self::new(&audio[from..audio.len().min(start + PART + MARGIN)], pitch_hz).0;
            let own = (start - from) / HOP..;
            hops[own].iter().copied().take(PART / HOP).collect::<Vec<_>>()
        };
        Self((0..audio.len()).step_by(PART).flat_map(part).collect())
    }

    /// Returns marks and gaps, if their levels differ enough.
    pub fn keying(&self) -> Option<Keying> {
        let levels = share(&self.0, 0.1).zip(share(&self.0, 0.95));
        levels.and_then(|levels| self.keying_between(levels, FADE_HOPS, |_| true))
    }

    /// Returns marks and gaps by the levels of gaps and marks, if these differ enough. The loudest level up to `reach` hops away
    /// decides from which level on the key is down. There are marks only at the hops that are `active`.
    pub fn keying_between(
        &self,
        (low, high): (f64, f64),
        reach: usize,
        active: impl Fn(usize) -> bool,
    ) -> Option<Keying> {
        if high.is_nan() || low.is_nan() || high <= LEAST_CONTRAST * low {
            return None;
        }
        // Where the tone has faded, marks are as weak as gaps are elsewhere.
        let least = (high / DEEPEST_FADE).max(low * ABOVE_GAPS).min(high);
        let loudest = loudest_around(&self.0, reach);
        let threshold = |loudest: f64| low + KEY_DOWN * (loudest.clamp(least, high) - low);
        let levels = self.0.iter().zip(&loudest).enumerate();
        let keys: Vec<bool> =
            levels.map(|(hop, (value, loudest))| *value > threshold(*loudest) && active(hop)).collect();
        let mut runs: Vec<Run> = Vec::new();
        for same in keys.chunk_by(|a, b| a == b) {
            let start = runs.last().map_or(0, |run| run.hops.end);
            let run = Run { hops: start..start + same.len(), down: same[0] };
            match runs.last_mut() {
                // A spike of noise is merged with the runs before and after it.
                Some(last) if run.hops.len() < SHORTEST_RUN || last.down == run.down => last.hops.end = run.hops.end,
                _ => runs.push(run),
            }
        }
        Some(Keying { runs, others: Vec::new() })
    }
}

impl Signal {
    /// Returns the tone of a pitch with its marks, if it has the rhythm of Morse and is stronger than the noise.
    pub fn of(envelope: &Envelope, keying: &Keying, pitch_hz: f64) -> Option<Self> {
        let dit = keying.dit()?;
        let mut counts = vec![true; envelope.0.len()];
        keying.others.iter().for_each(|other| counts[other.clone()].fill(false));
        let power = |down: bool| {
            let hops = keying.runs.iter().filter(|run| run.down == down).flat_map(|run| inner(&run.hops));
            let values: Vec<f64> = hops.filter(|hop| counts[*hop]).map(|hop| envelope.0[hop].powi(2)).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        // Marks contain the tone and noise, so the noise power is subtracted.
        let (down, up) = (power(true), power(false));
        let noise = up * 500.0 / NOISE_BANDWIDTH_HZ;
        let snr_db = decibels((down - up).max(0.0) / noise);
        let tone = KeyedTone { pitch_hz, wpm: 1.2 / keying.unit(dit), snr_db };
        let marks = || keying.runs.iter().filter(|run| run.down).map(|run| run.hops.start * HOP..run.hops.end * HOP);
        (snr_db > LEAST_SNR_DB).then(|| Self { tone, power: down, marks: marks().collect() })
    }
}

impl Keying {
    pub fn gaps(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs.iter().filter(|run| !run.down).map(|run| run.hops.clone())
    }

    /// Returns the keying with only some of its marks, by their samples, and the other marks.
    pub fn only(&self, keep: impl Fn(&Range<usize>) -> bool) -> (Self, Vec<Range<usize>>) {
        let (mut runs, mut others, mut removed): (Vec<Run>, _, _) = (Vec::new(), Vec::new(), Vec::new());
        let end = self.runs.last().map_or(0, |run| run.hops.end);
        for Run { hops, down } in &self.runs {
            let mark = hops.start * HOP..hops.end * HOP;
            let is_kept = *down && keep(&mark);
            if *down && !is_kept {
                // With the edges that the filter makes of it.
                others.push(hops.start.saturating_sub(EDGE)..(hops.end + EDGE).min(end));
                removed.push(mark);
            }
            match runs.last_mut() {
                Some(last) if last.down == is_kept => last.hops.end = hops.end,
                _ => runs.push(Run { hops: hops.clone(), down: is_kept }),
            }
        }
        (Self { runs, others }, removed)
    }

    /// Returns the length of a dit, in seconds.
    pub fn dit(&self) -> Option<f64> {
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
    pub fn is_between_words(&self, gap: usize) -> bool {
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

pub(super) fn seconds(hops: usize) -> f64 {
    (hops * HOP) as f64 / RATE
}

/// Returns audio shifted down by `pitch_hz`, as its real and its imaginary part, each averaged `times` times over
/// `average` samples.
pub(super) fn baseband(audio: &[f32], pitch_hz: f64, average: usize, times: usize) -> [Vec<f64>; 2] {
    let turn = TAU * pitch_hz / RATE;
    [f64::cos as fn(f64) -> f64, f64::sin].map(|part| {
        let mixed = audio.iter().enumerate().map(|(n, sample)| f64::from(*sample) * part(turn * n as f64)).collect();
        (0..times).fold(mixed, |values: Vec<f64>, _| averaged(&values, average))
    })
}

/// Returns the mean of `count` values around each value.
fn averaged(values: &[f64], count: usize) -> Vec<f64> {
    let half = count / 2;
    let mut sum: f64 = values.iter().take(half).sum();
    let mean = |n: usize| {
        sum += values.get(n + half).copied().unwrap_or_default();
        sum -= n.checked_sub(half).map_or(0.0, |left| values[left]);
        sum / count as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Returns a ratio of powers in decibels.
pub(super) fn decibels(ratio: f64) -> f64 {
    10.0 * ratio.log10()
}

/// Returns the value that this share of all is below.
pub(super) fn share(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len().max(1) - 1) as f64 * share) as usize).copied()
}

/// Returns the maximum of the values up to `reach` away from each.
fn loudest_around(values: &[f64], reach: usize) -> Vec<f64> {
    let around = |n: usize| &values[n.saturating_sub(reach)..values.len().min(n + reach + 1)];
    (0..values.len()).map(|n| around(n).iter().copied().fold(0.0, f64::max)).collect()
}

/// Returns a run without its edges.
fn inner(hops: &Range<usize>) -> Range<usize> {
    let edge = (hops.len() / 4).min(EDGE);
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
