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
const AVERAGE: usize = 192;
/// Longer averages, for slower senders in more noise; 72 ms is half a dit at 8 words per minute.
const LONGER: [usize; 5] = [288, 384, 576, 768, 1152];
/// Share of the variance of an envelope from which on its keying is clear, and no longer average is tried.
const CLEAR: f64 = 0.85;
/// Fall of that share after which no longer average is tried: it rises up to the average that fits the marks, and falls from there.
const CLEAR_FALL: f64 = 0.03;
/// Samples of which an envelope is computed at a time: half a minute, a multiple of [`HOP`].
const PART: usize = 480_000;
/// Samples beside a part that its envelope depends on, a multiple of [`HOP`] too.
const MARGIN: usize = 240;
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
/// Minimum length of a run in samples, as a multiple of the average: 15 ms, less than a dit at 60 words per minute, for one of
/// 12 ms. Shorter runs are noise.
const SHORTEST_RUN: f64 = 1.25;
/// Length up to which a mark may be a peak of noise far from all others, as a multiple of the average, and level below which it is
/// one, as a share of that of marks. In fading, marks are as weak, but longer, or near some that are.
const LONGEST_PEAK: usize = 3;
const PEAK: f64 = 0.3;
/// Minimum number of marks in Morse.
const FEWEST_MARKS: usize = 5;
/// Minimum gap between characters, in dits; and minimum gap between words, as a multiple of the lower quartile of the
/// character gaps or, if there are few of them, in dits.
pub(super) const CHARACTER_GAP: f64 = 2.0;
const WORD_GAP: f64 = 1.7;
const FEW_GAPS: usize = 5;
pub(super) const WORD_GAP_DITS: f64 = 5.0;
/// Gap in dits that is too long for one between words: characters are far apart.
pub(super) const WIDE_GAP_DITS: f64 = 10.0;
/// Ratio of a mark to a gap inside a character above which it is a dah: a dit reaches 1.8 in heavy keying, a dah falls to 2.1 in
/// light keying.
const DAH_TO_GAP: f64 = 1.95;
/// Dits of speeds from 4 to 60 words per minute, in seconds.
pub(super) const DIT_S: [f64; 2] = [0.02, 0.3];
/// Minimum signal-to-noise ratio of a tone with the shortest average: noise alone fluctuates like a tone of -2.5 dB. With longer
/// ones, less noise is left to fluctuate.
const LEAST_SNR_DB: f64 = 0.0;

/// Strength of a tone.
pub(super) struct Envelope {
    /// Level every 5 ms.
    pub levels: Vec<f64>,
    /// Samples of each of the two moving averages that filter the tone.
    average: usize,
}

/// Marks and gaps, in order.
pub(super) struct Keying {
    runs: Vec<Run>,
    /// Hops in gaps at which other stations send.
    others: Vec<Range<usize>>,
    /// Share of the variance of the levels, relative to the loudest ones around, that is due to the difference between marks and
    /// gaps, from 0 to 1.
    pub clear: f64,
}

/// A mark or a gap.
struct Run {
    hops: Range<usize>,
    down: bool,
}

impl Envelope {
    /// Shifts the audio down by `pitch_hz` and averages it twice over 12 ms.
    pub fn new(audio: &[f32], pitch_hz: f64) -> Self {
        Self::of(&mixed(audio, pitch_hz), AVERAGE)
    }

    fn of(mixed: &[Vec<f64>; 2], average: usize) -> Self {
        let [re, im] = [0, 1].map(|part| averaged(&averaged(&mixed[part], average), average));
        Self { levels: re.iter().zip(&im).step_by(HOP).map(|(re, im)| re.hypot(*im)).collect(), average }
    }

    /// Returns the envelope of the average with which marks and gaps are the most distinct, and its keying. `None` if their
    /// levels differ with none.
    pub fn clearest(audio: &[f32], pitch_hz: f64) -> Option<(Self, Keying)> {
        let mixed = mixed(audio, pitch_hz);
        let mut best: Option<(Self, Keying)> = None;
        for average in std::iter::once(AVERAGE).chain(LONGER) {
            let envelope = Self::of(&mixed, average);
            let Some(keying) = envelope.keying().filter(|keying| keying.dit().is_some()) else { continue };
            let clear = keying.clear;
            if best.as_ref().is_none_or(|(_, best)| clear > best.clear) {
                best = Some((envelope, keying));
            }
            // Longer averages merge the marks of a character, and take few characters for slow marks.
            let is_past = best.as_ref().is_some_and(|(_, best)| clear < best.clear - CLEAR_FALL);
            if clear > CLEAR || is_past {
                break;
            }
        }
        best
    }

    /// Hops of an edge of a mark after both averages.
    pub fn edge(&self) -> usize {
        self.average / HOP
    }

    /// Noise bandwidth of both averages together, in hertz: ∫h² of a triangle of 2 · 12 ms is 2 / (3 · 12 ms).
    fn noise_bandwidth_hz(&self) -> f64 {
        2.0 * RATE / (3.0 * self.average as f64)
    }

    /// As [`new`](Self::new), for audio of any length: no more than half a minute of it is copied at a time.
    pub fn long(audio: &[f32], pitch_hz: f64) -> Self {
        let part = |start: usize| {
            let from = start.saturating_sub(MARGIN);
            let hops = Self::new(&audio[from..audio.len().min(start + PART + MARGIN)], pitch_hz).levels;
            let own = (start - from) / HOP..;
            hops[own].iter().copied().take(PART / HOP).collect::<Vec<_>>()
        };
        Self { levels: (0..audio.len()).step_by(PART).flat_map(part).collect(), average: AVERAGE }
    }

    /// Returns marks and gaps, if their levels differ enough.
    pub fn keying(&self) -> Option<Keying> {
        let levels = share(&self.levels, 0.1).zip(share(&self.levels, 0.95));
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
        let loudest = loudest_around(&self.levels, reach);
        let threshold = |loudest: f64| low + KEY_DOWN * (loudest.clamp(least, high) - low);
        let levels = self.levels.iter().zip(&loudest).enumerate();
        let keys: Vec<bool> =
            levels.map(|(hop, (value, loudest))| *value > threshold(*loudest) && active(hop)).collect();
        let runs = self.without_peaks(self.runs(&keys), PEAK * high, reach);
        let levels = self.levels.iter().zip(&loudest);
        let relative: Vec<f64> =
            levels.map(|(value, loudest)| (value - low) / (loudest.clamp(least, high) - low)).collect();
        let clear = explained(&relative, &runs);
        Some(Keying { runs, others: Vec::new(), clear })
    }

    /// Returns marks and gaps. A spike of noise is merged with the runs before and after it.
    fn runs(&self, keys: &[bool]) -> Vec<Run> {
        let shortest = (SHORTEST_RUN * self.average as f64 / HOP as f64) as usize;
        let mut start = 0;
        let all = keys.chunk_by(|a, b| a == b).map(|same| {
            let hops = start..start + same.len();
            start = hops.end;
            Run { hops, down: same[0] }
        });
        merged(all, |run| run.hops.len() < shortest)
    }

    /// Removes marks that are short and weaker than `least`, and further than `reach` from all others. In long gaps nothing loud
    /// is around, and the level from which on the key is down is as low as in a fade.
    fn without_peaks(&self, runs: Vec<Run>, least: f64, reach: usize) -> Vec<Run> {
        let longest = LONGEST_PEAK * self.average / HOP;
        let is_weak = |hops: &Range<usize>| self.levels[hops.clone()].iter().all(|level| *level < least);
        let may_be = |run: &Run| run.down && run.hops.len() <= longest && is_weak(&run.hops);
        let others: Vec<Range<usize>> =
            runs.iter().filter(|run| run.down && !may_be(run)).map(|run| run.hops.clone()).collect();
        let is_alone = |hops: &Range<usize>| {
            let next = others.partition_point(|other| other.start < hops.start);
            let is_near = |other: &Range<usize>| other.start < hops.end + reach && hops.start < other.end + reach;
            !others[next.saturating_sub(1)..others.len().min(next + 1)].iter().any(is_near)
        };
        let peaks: Vec<bool> = runs.iter().map(|run| may_be(run) && is_alone(&run.hops)).collect();
        let mut peaks = peaks.into_iter();
        merged(runs.into_iter(), |_| peaks.next().unwrap_or_default())
    }
}

/// Returns runs, where those that are `noise` belong to the run before, and equal ones in a row are one.
fn merged(runs: impl Iterator<Item = Run>, mut noise: impl FnMut(&Run) -> bool) -> Vec<Run> {
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        let is_noise = noise(&run);
        match merged.last_mut() {
            Some(last) if is_noise || last.down == run.down => last.hops.end = run.hops.end,
            _ => merged.push(run),
        }
    }
    merged
}

impl Signal {
    /// Returns the tone of a pitch with its marks, if it has the rhythm of Morse and is stronger than the noise.
    pub fn of(envelope: &Envelope, keying: &Keying, pitch_hz: f64) -> Option<Self> {
        let least = LEAST_SNR_DB - decibels(envelope.average as f64 / AVERAGE as f64);
        Self::measured(envelope, keying, pitch_hz).filter(|signal| signal.tone.snr_db > least)
    }

    /// As [`of`](Self::of), however weak it is.
    pub fn measured(envelope: &Envelope, keying: &Keying, pitch_hz: f64) -> Option<Self> {
        let dit = keying.dit()?;
        let mut counts = vec![true; envelope.levels.len()];
        keying.others.iter().for_each(|other| counts[other.clone()].fill(false));
        let power = |down: bool| {
            let hops =
                keying.runs.iter().filter(|run| run.down == down).flat_map(|run| inner(&run.hops, envelope.edge()));
            let values: Vec<f64> = hops.filter(|hop| counts[*hop]).map(|hop| envelope.levels[hop].powi(2)).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        // Marks contain the tone and noise, so the noise power is subtracted.
        let (down, up) = (power(true), power(false));
        let noise = up * 500.0 / envelope.noise_bandwidth_hz();
        let snr_db = decibels((down - up).max(0.0) / noise);
        let tone = KeyedTone { pitch_hz, wpm: 1.2 / keying.unit(dit), snr_db };
        let marks = || keying.runs.iter().filter(|run| run.down).map(|run| run.hops.start * HOP..run.hops.end * HOP);
        Some(Self { tone, power: down, marks: marks().collect() })
    }
}

impl Keying {
    pub fn gaps(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs.iter().filter(|run| !run.down).map(|run| run.hops.clone())
    }

    /// Returns the keying with only some of its marks, by their samples, and the other marks, which have edges of `edge` hops.
    pub fn only(&self, edge: usize, keep: impl Fn(&Range<usize>) -> bool) -> (Self, Vec<Range<usize>>) {
        let (mut runs, mut others, mut removed): (Vec<Run>, _, _) = (Vec::new(), Vec::new(), Vec::new());
        let end = self.runs.last().map_or(0, |run| run.hops.end);
        for Run { hops, down } in &self.runs {
            let mark = hops.start * HOP..hops.end * HOP;
            let is_kept = *down && keep(&mark);
            if *down && !is_kept {
                // With the edges that the filter makes of it.
                others.push(hops.start.saturating_sub(edge)..(hops.end + edge).min(end));
                removed.push(mark);
            }
            match runs.last_mut() {
                Some(last) if last.down == is_kept => last.hops.end = hops.end,
                _ => runs.push(Run { hops: hops.clone(), down: is_kept }),
            }
        }
        (Self { runs, others, clear: self.clear }, removed)
    }

    /// Returns the length of a dit, in seconds. `TO COME TO` has few dits, so that its dahs are taken for them; the gaps inside its
    /// characters show it.
    pub fn dit(&self) -> Option<f64> {
        let marks = self.runs.iter().filter(|run| run.down);
        let dit = dit(&marks.map(|run| seconds(run.hops.len())).collect::<Vec<_>>())?;
        let mut short: Vec<f64> = self.gaps().map(|gap| seconds(gap.len())).filter(|gap| *gap < dit).collect();
        short.sort_by(f64::total_cmp);
        let gap = short.get(short.len() / 2).filter(|gap| short.len() >= FEW_GAPS && dit > DAH_TO_GAP * **gap);
        // However heavy the keying is, a dah and a gap are four dits.
        let dit = gap.map_or(dit, |gap| (dit + gap) / 4.0);
        (DIT_S[0]..=DIT_S[1]).contains(&dit).then_some(dit)
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
        let few = between_characters.len() < FEW_GAPS;
        match between_characters.get(between_characters.len() / 4) {
            Some(quartile) if !few => gap as f64 > WORD_GAP * *quartile as f64,
            Some(shortest) if between_characters.len() > 1 && seconds(*shortest) > WIDE_GAP_DITS * dit => {
                gap as f64 > WORD_GAP * *shortest as f64
            }
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
    mixed(audio, pitch_hz).map(|part| (0..times).fold(part, |values, _| averaged(&values, average)))
}

/// Returns audio shifted down by `pitch_hz`, as its real and its imaginary part.
fn mixed(audio: &[f32], pitch_hz: f64) -> [Vec<f64>; 2] {
    let turned = audio.iter().zip(turns(pitch_hz));
    let (re, im) = turned.map(|(sample, turn)| (f64::from(*sample) * turn[0], f64::from(*sample) * turn[1])).unzip();
    [re, im]
}

/// Returns cosine and sine of a tone, sample by sample. Each is the one before turned by a step, which needs no sine for each
/// sample and is off by less than 1e-8 after ten minutes.
pub(super) fn turns(hz: f64) -> impl Iterator<Item = [f64; 2]> {
    let (sine, cosine) = (TAU * hz / RATE).sin_cos();
    std::iter::successors(Some([1.0, 0.0]), move |[re, im]| Some([re * cosine - im * sine, im * cosine + re * sine]))
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
fn inner(hops: &Range<usize>, edge: usize) -> Range<usize> {
    let edge = (hops.len() / 4).min(edge);
    hops.start + edge..hops.end - edge
}

/// Returns the share of the variance of levels that is due to the difference between marks and gaps.
fn explained(levels: &[f64], runs: &[Run]) -> f64 {
    let sums = |down: bool| {
        let own = runs.iter().filter(|run| run.down == down).flat_map(|run| &levels[run.hops.clone()]);
        own.fold([0.0; 3], |[count, sum, squares], level| [count + 1.0, sum + level, squares + level * level])
    };
    let ([marks, mark, loud], [gaps, gap, quiet]) = (sums(true), sums(false));
    let all = marks + gaps;
    let variance = (loud + quiet) / all - ((mark + gap) / all).powi(2);
    let between = marks / all * (gaps / all) * (mark / marks - gap / gaps).powi(2);
    if variance > 0.0 && between > 0.0 { between / variance } else { 0.0 }
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
    Some(dit)
}
