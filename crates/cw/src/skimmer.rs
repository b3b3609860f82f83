//! Stations of a recording: every keyed tone of a band, each to be read by itself.

use crate::envelope::{Envelope, HOP, KeyedTone, Keying, Signal, WORD_GAP_DITS, baseband, decibels, share};
use crate::narrow::narrowed_at;
use crate::radio::RATE;
use rayon::prelude::*;
use std::f64::consts::TAU;
use std::ops::Range;
use undertone_data::fourier;

/// A station: a keyed tone with the times at which it sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Tone of the station.
    pub tone: KeyedTone,
    /// Level of its marks relative to a tone of amplitude 1, in decibels.
    pub level_dbfs: f64,
    /// Transmissions, in samples of the recording, each with up to 0.3 s before and after it. A gap of more than 5 s between
    /// marks ends one, and after a minute a gap between words.
    pub overs: Vec<Range<usize>>,
    /// Marks of other stations less than 120 Hz away, in samples of the recording. [`alone`](Self::alone) silences them.
    others: Vec<Range<usize>>,
}

/// Samples whose spectra are averaged to find tones: 10 s.
const BLOCK: usize = 160_000;
/// Samples of a spectrum, 128 ms: bins of 7.8 Hz.
const FRAME: usize = 2048;
/// Range of pitches, in hertz.
const PITCH_HZ: [f64; 2] = [150.0, 3900.0];
/// Bins to either side of a tone among which it is the strongest: 23 Hz.
const LINE: usize = 3;
/// Bins to either side whose lower quartile is the level of the noise: 260 Hz.
const AROUND: usize = 33;
/// Least level of a tone over the noise in a bin, as a ratio of powers: 3 dB. Averages of 10 s of noise stay below 2 dB.
const LEAST_LEVEL: f64 = 2.0;
/// Distance in hertz within which a much weaker tone counts as key clicks of a stronger one.
const SPREAD_HZ: f64 = 120.0;
/// Decibels by which it must be weaker: the first, and the second for each hertz of distance; 24.5 dB at 50 Hz.
const SPREAD_DB: [f64; 2] = [12.0, 0.25];
/// Maximum distance of a pitch from the mean pitch of its station up to there, in hertz.
const SAME_HZ: f64 = 15.0;
/// Blocks without the tone after which a station counts as ended.
const ABSENT: usize = 6;
/// Agreement of the marks of two tones above which the weaker is a harmonic or an image of the other. By chance it reaches 0.2.
const SAME_KEYING: f64 = 0.5;
/// Distance in hertz below which the filter of a station lets another one through.
const REACH_HZ: f64 = 120.0;
/// Samples that are averaged, twice, before the frequency of a mark is measured: 5 ms.
const AVERAGE: usize = 80;
/// Samples between two values whose phases are compared: 2.5 ms, unambiguous up to 200 Hz.
const LAG: usize = 40;
/// Share of the time that the key is down while a station sends.
const DUTY: f64 = 0.4;
/// Ratio of the mean power around a hop to that of noise from which a station sends. Noise alone stays below 1.5. The mean is
/// also at least half way, in decibels, from noise to the station, because of what is left of stronger stations.
const SENDING: f64 = 2.0;
/// Hops to either side over which that mean is taken: 0.75 s.
const AROUND_HOPS: usize = 150;
/// Ratio of the marks' amplitude to the root of the mean power around a hop above which nothing is sent.
const DEEPEST: f64 = 20.0;
/// Hops to either side within which the loudest mark decides from which level on the key is down: 1 s, longer than a gap between
/// words at 10 words per minute, in which clicks of stronger stations would be marks otherwise.
const STEADY_HOPS: usize = 200;
/// Gap between two transmissions, in samples: 5 s.
const OVER_GAP: usize = 80_000;
/// Audio before and after a transmission, in samples: 0.3 s.
const MARGIN: usize = 4_800;
/// Length from which a transmission is divided between words, in samples: a minute. After two, it is divided between
/// characters.
const LONG: usize = 960_000;
/// Gap between two characters, in dits.
const CHARACTER_GAP_DITS: f64 = 2.5;

/// Returns the stations of 16 kHz audio without NaN, the strongest first. A station becomes several, one after the other, if it is
/// silent for a minute or its pitch comes to lie 15 Hz or more from its mean so far. What is found has the rhythm of Morse code;
/// whether it can be read only a model can tell.
pub fn stations(audio: &[f32]) -> Vec<Station> {
    let found: Vec<Candidate> = tracks(audio).par_iter().filter_map(|track| Candidate::of(track, audio)).collect();
    let separated = |candidate: &Candidate| candidate.without(&found, audio);
    let mut all: Vec<(Signal, Vec<Range<usize>>)> = found.par_iter().filter_map(separated).collect();
    all.sort_by(|(a, _), (b, _)| b.power.total_cmp(&a.power));
    let mut apart: Vec<(Signal, Vec<Range<usize>>)> = Vec::new();
    for (signal, others) in all {
        if !apart.iter().any(|(stronger, _)| agreement(&signal.marks, &stronger.marks) > SAME_KEYING) {
            apart.push((signal, others));
        }
    }
    let station = |(signal, others): (Signal, Vec<Range<usize>>)| Station {
        tone: signal.tone,
        // Shifted down, a tone has half of its amplitude.
        level_dbfs: decibels(4.0 * signal.power),
        overs: overs(&signal, audio.len()),
        others,
    };
    apart.into_iter().map(station).collect()
}

impl Station {
    /// Returns the audio of one of its transmissions, with its tone moved to 700 Hz. What is 100 Hz away is 10 dB weaker in it,
    /// what is 200 Hz away 50 dB. A narrower filter makes the clicks of stronger stations longer, and was worse. `audio` is the
    /// recording that it was found in.
    ///
    /// # Panics
    /// If the transmission reaches beyond the audio.
    pub fn alone(&self, audio: &[f32], over: &Range<usize>) -> Vec<f32> {
        let mut own = audio[over.clone()].to_vec();
        for other in self.others.iter().filter(|other| other.start < over.end && over.start < other.end) {
            own[other.start.max(over.start) - over.start..other.end.min(over.end) - over.start].fill(0.0);
        }
        narrowed_at(&own, self.tone.pitch_hz)
    }

    /// Samples of the recording from its first transmission to its last.
    pub fn samples(&self) -> Range<usize> {
        self.overs.first().map_or(0, |over| over.start)..self.overs.last().map_or(0, |over| over.end)
    }
}

/// A tone in some of the blocks.
struct Track {
    /// Mean of the pitches in its blocks.
    pitch_hz: f64,
    /// Samples of the blocks that have the tone, in order.
    blocks: Vec<Range<usize>>,
}

impl Track {
    fn end(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.end)
    }

    /// Samples of its blocks, and of one more before and after, where the tone may begin or end.
    fn samples(&self, all: usize) -> Range<usize> {
        let start = self.blocks.first().map_or(0, |block| block.start);
        start.saturating_sub(BLOCK)..(self.end() + BLOCK).min(all)
    }
}

/// Follows tones from block to block.
fn tracks(audio: &[f32]) -> Vec<Track> {
    let mut tracks: Vec<Track> = Vec::new();
    // Half a block or less at the end is a part of the last one: a mean of little noise has peaks.
    let blocks = ((audio.len() + BLOCK / 2 - 1) / BLOCK).max(1);
    for index in 0..blocks {
        let block = index * BLOCK..if index + 1 == blocks { audio.len() } else { (index + 1) * BLOCK };
        for pitch_hz in tones(&audio[block.clone()]) {
            let distance = |track: &Track| (track.pitch_hz - pitch_hz).abs();
            let near = |track: &&mut Track| {
                let end = track.end();
                distance(track) < SAME_HZ && end <= block.start && block.start < end + ABSENT * BLOCK
            };
            match tracks.iter_mut().filter(near).min_by(|a, b| distance(a).total_cmp(&distance(b))) {
                Some(track) => {
                    track.blocks.push(block.clone());
                    track.pitch_hz += (pitch_hz - track.pitch_hz) / track.blocks.len() as f64;
                }
                None => tracks.push(Track { pitch_hz, blocks: vec![block.clone()] }),
            }
        }
    }
    tracks
}

/// Returns the pitches of the tones in a block, in hertz.
fn tones(audio: &[f32]) -> Vec<f64> {
    let power = spectrum(audio);
    let hz = |bin: f64| bin * RATE / FRAME as f64;
    let bins = PITCH_HZ.map(|hz| (hz * FRAME as f64 / RATE) as usize);
    let around = |bin: usize, reach: usize| &power[bin.saturating_sub(reach)..power.len().min(bin + reach + 1)];
    let peaks: Vec<usize> = (bins[0]..=bins[1])
        .filter(|bin| around(*bin, LINE).iter().all(|other| *other <= power[*bin]))
        .filter(|bin| share(around(*bin, AROUND), 0.25).is_some_and(|noise| power[*bin] > LEAST_LEVEL * noise))
        .collect();
    let is_part = |bin: usize, of: usize| {
        let apart = hz(bin.abs_diff(of) as f64);
        apart < SPREAD_HZ && decibels(power[of] / power[bin]) > SPREAD_DB[0] + SPREAD_DB[1] * apart
    };
    let own = peaks.iter().filter(|bin| !peaks.iter().any(|other| is_part(**bin, *other)));
    // The top of a parabola through the levels of three bins.
    let top = |bin: usize| {
        let [left, level, right] = [bin - 1, bin, bin + 1].map(|bin| decibels(power[bin]));
        let curve = left - 2.0 * level + right;
        if curve < 0.0 { bin as f64 + (left - right) / (2.0 * curve) } else { bin as f64 }
    };
    own.map(|bin| hz(top(*bin))).collect()
}

/// Returns the mean power of each bin.
fn spectrum(audio: &[f32]) -> Vec<f64> {
    let window: Vec<f32> =
        (0..FRAME).map(|n| (0.5 - 0.5 * (TAU * (n as f64 + 0.5) / FRAME as f64).cos()) as f32).collect();
    let mut sums = vec![f64::MIN_POSITIVE; FRAME / 2 + 1];
    let frames = (0..).step_by(FRAME / 2).take_while(|start| start + FRAME <= audio.len());
    for start in frames {
        let frame: Vec<f32> =
            audio[start..][..FRAME].iter().zip(&window).map(|(sample, weight)| sample * weight).collect();
        for (sum, value) in sums.iter_mut().zip(fourier::spectrum(&frame, FRAME)) {
            *sum += f64::from(value.norm_sqr());
        }
    }
    sums
}

/// A track with the rhythm of Morse code.
struct Candidate {
    pitch_hz: f64,
    /// Samples of the recording that the envelope is of.
    samples: Range<usize>,
    envelope: Envelope,
    keying: Keying,
}

impl Candidate {
    /// The level of marks is that of the blocks that have the tone.
    fn of(track: &Track, audio: &[f32]) -> Option<Self> {
        let samples = track.samples(audio.len());
        let envelope = Envelope::long(&audio[samples.clone()], track.pitch_hz);
        let hop = |sample: usize| ((sample - samples.start) / HOP).min(envelope.levels.len());
        let hops = |block: &Range<usize>| &envelope.levels[hop(block.start)..hop(block.end)];
        let present: Vec<f64> = track.blocks.iter().flat_map(hops).copied().collect();
        let levels @ (low, high) = (share(&envelope.levels, 0.1)?, share(&present, 0.95)?);
        // The lower tenth of the levels of noise, by the distribution of Rayleigh.
        let noise = low.powi(2) / (-(0.9_f64).ln());
        let sending = DUTY * high.powi(2);
        let least = (SENDING * noise).max((sending * noise).sqrt()).max((high / DEEPEST).powi(2));
        let mean = means(&envelope.levels.iter().map(|level| level.powi(2)).collect::<Vec<_>>(), AROUND_HOPS);
        let keying = envelope.keying_between(levels, STEADY_HOPS, |hop| mean[hop] > least)?;
        Signal::of(&envelope, &keying, track.pitch_hz)?;
        Some(Self { pitch_hz: track.pitch_hz, samples, envelope, keying })
    }

    fn is_beside(&self, other: &Self) -> bool {
        let apart = (self.pitch_hz - other.pitch_hz).abs();
        let together = self.samples.start < other.samples.end && other.samples.start < self.samples.end;
        together && apart > 0.0 && apart < REACH_HZ
    }

    /// Returns its signal and the marks that belong to one of the others, by their frequency, both in samples of the recording.
    /// `None` if no rhythm is left.
    fn without(&self, others: &[Self], audio: &[f32]) -> Option<(Signal, Vec<Range<usize>>)> {
        let own = self.pitch_hz;
        let near: Vec<f64> = others.iter().filter(|other| other.is_beside(self)).map(|other| other.pitch_hz).collect();
        let in_recording = |mark: &Range<usize>| self.samples.start + mark.start..self.samples.start + mark.end;
        let is_own = |mark: &Range<usize>| {
            if near.is_empty() {
                return true;
            }
            let mark = in_recording(mark);
            let hz = own + offset_hz(baseband(&audio[mark.start..mark.end.min(audio.len())], own, AVERAGE, 2));
            near.iter().all(|other| (hz - own).abs() <= (hz - other).abs())
        };
        let (keying, removed) = self.keying.only(self.envelope.edge(), is_own);
        let mut signal = Signal::of(&self.envelope, &keying, own)?;
        signal.marks = signal.marks.iter().map(in_recording).collect();
        Some((signal, removed.iter().map(in_recording).collect()))
    }
}

/// Returns the mean frequency of a complex signal, in hertz: the turn of its phase within [`LAG`] samples.
fn offset_hz([re, im]: [Vec<f64>; 2]) -> f64 {
    // Mixing down multiplies by cos and sin, so the imaginary part has the sign of a spectrum that is turned round.
    let turn = (LAG..re.len()).fold([0.0, 0.0], |[cos, sin], n| {
        let (a, b) = ((re[n - LAG], -im[n - LAG]), (re[n], -im[n]));
        [cos + a.0 * b.0 + a.1 * b.1, sin + a.0 * b.1 - a.1 * b.0]
    });
    turn[1].atan2(turn[0]) * RATE / (TAU * LAG as f64)
}

/// Returns the mean of the values up to `reach` away from each.
fn means(values: &[f64], reach: usize) -> Vec<f64> {
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(values.iter().scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        }))
        .collect();
    let mean = |n: usize| {
        let (from, to) = (n.saturating_sub(reach), values.len().min(n + reach + 1));
        (sums[to] - sums[from]).max(0.0) / (to - from) as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Correlation of two series of marks while the first one lasts: 1 if both keys are always down together.
fn agreement(own: &[Range<usize>], other: &[Range<usize>]) -> f64 {
    let (Some(first), Some(last)) = (own.first(), own.last()) else { return 0.0 };
    let all = (last.end - first.start) as f64;
    let length = |mark: &Range<usize>| mark.end.saturating_sub(mark.start);
    let common = |a: &Range<usize>, b: &Range<usize>| length(&(a.start.max(b.start)..a.end.min(b.end)));
    let share = |marks: &mut dyn Iterator<Item = usize>| marks.sum::<usize>() as f64 / all;
    let a = share(&mut own.iter().map(length));
    let b = share(&mut other.iter().map(|mark| common(mark, &(first.start..last.end))));
    let mut next = 0;
    let both = share(&mut own.iter().map(|mark| {
        next += other[next..].iter().take_while(|other| other.end <= mark.start).count();
        other[next..].iter().take_while(|other| other.start < mark.end).map(|other| common(mark, other)).sum()
    }));
    (both - a * b) / (a * (1.0 - a) * b * (1.0 - b)).sqrt().max(f64::MIN_POSITIVE)
}

/// Returns the transmissions of a signal's marks, with a margin, in audio of this many samples.
fn overs(signal: &Signal, all: usize) -> Vec<Range<usize>> {
    let dits = |dits: f64| (dits * 1.2 / signal.tone.wpm * RATE) as usize;
    let gaps = [dits(WORD_GAP_DITS), dits(CHARACTER_GAP_DITS)];
    let mut overs: Vec<Range<usize>> = Vec::new();
    for mark in &signal.marks {
        match overs.last_mut() {
            Some(over) if !is_end(over, mark, gaps) => over.end = mark.end,
            _ => overs.push(mark.clone()),
        }
    }
    let ends: Vec<usize> = overs.iter().map(|over| over.end).collect();
    for (index, over) in overs.iter_mut().enumerate() {
        // The margins of two transmissions do not overlap.
        let before = index.checked_sub(1).map_or(0, |before| (ends[before] + over.start) / 2);
        over.start = over.start.saturating_sub(MARGIN).max(before);
    }
    let starts: Vec<usize> = overs.iter().map(|over| over.start).collect();
    for (index, over) in overs.iter_mut().enumerate() {
        over.end = (over.end + MARGIN).min(starts.get(index + 1).copied().unwrap_or(all)).min(all);
    }
    overs
}

/// Whether a transmission ends before this mark.
fn is_end(over: &Range<usize>, mark: &Range<usize>, [word, character]: [usize; 2]) -> bool {
    let gap = mark.start.saturating_sub(over.end);
    gap > OVER_GAP || (over.len() > LONG && gap > word) || (over.len() > 2 * LONG && gap > character)
}

#[cfg(test)]
mod tests {
    use super::super::{CwConfig, CwSynth, CwText, tests::plain};
    use super::*;

    /// A transmission at `start` seconds, added to the audio.
    fn send(audio: &mut [f32], text: &str, [start, pitch_hz, wpm, level]: [f32; 4]) {
        let config = CwConfig {
            text: CwText { fixed: vec![text.into()], ..CwText::default() },
            duration_s: [1.0, 60.0],
            wpm: [wpm; 2],
            pitch_hz: [pitch_hz; 2],
            clean: 1.0,
            level_dbfs: [-6.0; 2],
            ..plain()
        };
        let clip = CwSynth::new(config, 1).expect("a synthesiser").sample(0);
        let end = clip.marks.last().map_or(0.0, |mark| mark.end) + 0.1;
        let own = &clip.audio[..((end * 16_000.0) as usize).min(clip.audio.len())];
        for (to, sample) in audio[(start * 16_000.0) as usize..].iter_mut().zip(own) {
            *to += level * sample;
        }
    }

    fn noise(seconds: usize, level: f32) -> Vec<f32> {
        let config = CwConfig { noise_only: 1.0, clean: 0.0, duration_s: [seconds as f32; 2], ..plain() };
        let audio = CwSynth::new(config, 7).expect("a synthesiser").sample(0).audio;
        let mean = (audio.iter().map(|x| x * x).sum::<f32>() / audio.len() as f32).sqrt();
        audio.iter().map(|sample| sample * level / mean).collect()
    }

    const TEXT: &str = "CQ CQ DE DL1ABC DL1ABC THE WEATHER IS FINE";

    #[test]
    fn every_station_of_a_band_is_found_with_its_pitch_speed_and_times() {
        let sent = [
            [1.0, 500.0, 18.0, 0.3],
            [12.0, 750.0, 25.0, 0.1],
            [5.0, 1000.0, 30.0, 0.03],
            [20.0, 1500.0, 22.0, 0.3],
            [2.0, 2000.0, 20.0, 0.05],
        ];
        let mut audio = noise(60, 0.02);
        for station in sent {
            send(&mut audio, TEXT, station);
        }
        let found = stations(&audio);
        assert_eq!(found.len(), sent.len(), "{found:?}");
        for [start, pitch_hz, wpm, _] in sent.map(|station| station.map(f64::from)) {
            let station = found.iter().find(|station| (station.tone.pitch_hz - pitch_hz).abs() < 4.0);
            let station = station.unwrap_or_else(|| panic!("{pitch_hz} Hz in {found:?}"));
            assert!((station.tone.wpm - wpm).abs() < 2.0, "{station:?}");
            assert!((station.samples().start as f64 / RATE - start).abs() < 1.5, "{station:?}");
        }
        let weakest = found.last().expect("a station");
        assert!((weakest.tone.pitch_hz - 1000.0).abs() < 4.0, "{weakest:?}");
        // The clip's -6 dB, and a factor of 0.03.
        assert!((weakest.level_dbfs - (-6.0 - 30.5)).abs() < 2.0, "{weakest:?}");
    }

    #[test]
    fn stations_that_answer_each_other_are_told_apart_by_their_pitch() {
        let mut audio = noise(40, 0.005);
        for (start, pitch_hz, wpm, level) in
            [(0.5, 700.0, 28.0, 0.3), (14.0, 745.0, 24.0, 0.15), (30.0, 700.0, 28.0, 0.3)]
        {
            send(&mut audio, "TNX FER CALL UR RST 599", [start, pitch_hz, wpm, level]);
        }
        let found = stations(&audio);
        assert_eq!(found.len(), 2, "{found:?}");
        let speeds: Vec<f64> = found.iter().map(|station| station.tone.wpm.round()).collect();
        assert_eq!(speeds, [28.0, 24.0], "{found:?}");
        // Where the other one sends, there is no noise to be measured.
        assert!(found.iter().all(|station| station.tone.snr_db > 20.0), "{found:?}");
        let second = found.iter().find(|station| station.tone.pitch_hz > 720.0).expect("the second");
        assert_eq!(second.overs.len(), 1, "{second:?}");
        let over = &second.overs[0];
        assert!((over.start as f64 / RATE - 14.0).abs() < 1.0 && (over.end as f64 / RATE) < 30.0, "{over:?}");
        let alone = second.alone(&audio, over);
        assert_eq!(alone.len(), over.len());
    }

    #[test]
    fn harmonics_are_no_stations() {
        let mut audio = noise(20, 0.001);
        send(&mut audio, TEXT, [1.0, 600.0, 25.0, 0.3]);
        send(&mut audio, TEXT, [1.0, 1200.0, 25.0, 0.01]);
        // The same text at another time is another station.
        send(&mut audio, TEXT, [1.7, 1500.0, 25.0, 0.01]);
        let pitches: Vec<f64> = stations(&audio).iter().map(|station| station.tone.pitch_hz.round()).collect();
        assert_eq!(pitches, [600.0, 1500.0]);
    }

    #[test]
    fn agreement_is_a_correlation() {
        let marks = [0..10, 20..30, 40..50, 60..70];
        assert!((agreement(&marks, &marks) - 1.0).abs() < 1e-9);
        let between = [10..20, 30..40, 50..60];
        assert!((agreement(&marks, &between) + 1.0).abs() < 1e-9);
        assert_eq!(agreement(&[], &marks), 0.0);
        assert!(agreement(&marks, &[]).abs() < 1e-9);
    }

    #[test]
    fn the_frequency_of_a_mark_is_measured() {
        for offset in [-110.0, -40.0, 0.0, 12.0, 110.0_f64] {
            let mark: Vec<f32> =
                (0..960).map(|n| (TAU * (700.0 + offset) * f64::from(n) / RATE).sin() as f32).collect();
            let found = offset_hz(baseband(&mark, 700.0, AVERAGE, 2));
            assert!((found - offset).abs() < 8.0, "{offset}: {found}");
        }
    }

    #[test]
    fn noise_and_steady_carriers_have_no_station() {
        assert_eq!(stations(&noise(60, 0.1)), []);
        let carrier: Vec<f32> = (0..480_000).map(|n| 0.2 * (0.3 * n as f32).sin()).collect();
        assert_eq!(stations(&carrier), []);
        assert_eq!(stations(&[]), []);
        assert_eq!(stations(&[0.0; 400]), []);
        // Eleven seconds: the rest of a second is a part of the block before it.
        assert_eq!(stations(&noise(11, 0.1)), []);
    }

    #[test]
    fn long_transmissions_are_divided_between_words() {
        let marks: Vec<Range<usize>> =
            (0..4000).map(|n| n * 3840 + n / 5 * 9600..n * 3840 + n / 5 * 9600 + 1920).collect();
        let tone = KeyedTone { pitch_hz: 700.0, wpm: 10.0, snr_db: 20.0 };
        let end = marks[3999].end;
        let overs = overs(&Signal { tone, power: 1.0, marks }, end);
        assert!(overs.len() > 10 && overs.iter().all(|over| over.len() < 2 * LONG), "{}", overs.len());
        assert!(overs.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert_eq!((overs[0].start, overs[overs.len() - 1].end), (0, end));
    }
}
