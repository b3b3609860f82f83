//! Extraction of a tone from a recording that contains noise and other stations.

use super::envelope::{baseband, turns};
use crate::radio::{carrier_pitch, line};

/// Frequency that the tone is moved to, in hertz: a usual pitch, far from both ends of the usual range.
const PITCH_HZ: f64 = 700.0;
/// Samples of each moving average that filters the tone: 4 ms, which removes signals 250 Hz away.
const NARROW: usize = 64;
/// The same for a filter that lets what is 150 Hz away through: 1.5 ms, at 3 dB.
const WIDE: usize = 24;
/// Factor up to which the filter of a tone that becomes faster is as much narrower: beyond it, what is left of drift would be
/// filtered out.
const NARROWEST: f64 = 3.0;
/// Number of averages: signals 100 Hz away are then 10 dB weaker, those 200 Hz away 50 dB; a dit at 50 words per minute
/// keeps its shape.
const TIMES: usize = 4;
/// Largest error of the pitch of a tone, and width of its line while it is measured again, in hertz.
const NEAR_HZ: f64 = 25.0;
const LINE_HZ: f64 = 2.0;

/// Returns the strongest tone of 16 kHz audio with about 50 Hz to either side of it, moved to 700 Hz, as loud as the
/// audio.
pub fn narrowed(audio: &[f32]) -> Vec<f32> {
    narrowed_at(audio, carrier_pitch(audio))
}

/// As [`narrowed`], for the tone of this pitch, in hertz.
pub(super) fn narrowed_at(audio: &[f32], pitch_hz: f64) -> Vec<f32> {
    moved(audio, pitch_hz, NARROW, 1.0)
}

/// As [`narrowed`], for the tone of about this pitch, in hertz, keyed faster by this factor, which is at least 1, and with a filter that
/// is as much narrower.
pub(super) fn signal(audio: &[f32], pitch_hz: f64, factor: f64) -> Vec<f32> {
    moved(audio, pitch(audio, pitch_hz), (NARROW as f64 * factor.min(NARROWEST)) as usize, factor)
}

/// Returns the tone of about this pitch, in hertz, of 16 kHz audio with about 150 Hz to either side of it, moved to 700 Hz and keyed
/// faster by this factor, which is at least 1.
pub(super) fn faster(audio: &[f32], pitch_hz: f64, factor: f64) -> Vec<f32> {
    moved(audio, pitch(audio, pitch_hz), WIDE, factor)
}

/// Returns a pitch, measured again where it is.
fn pitch(audio: &[f32], near: f64) -> f64 {
    line(audio, [near - NEAR_HZ, near + NEAR_HZ], LINE_HZ)
}

/// Returns a tone after averages of this many samples, moved to 700 Hz, with its time shortened by this factor.
fn moved(audio: &[f32], pitch_hz: f64, average: usize, factor: f64) -> Vec<f32> {
    let [re, im] = baseband(audio, pitch_hz, average, TIMES);
    let tone: Vec<f64> = (0..(audio.len() as f64 / factor) as usize)
        .zip(turns(PITCH_HZ))
        .map(|(n, [cosine, sine])| {
            let at = n as f64 * factor;
            between(&re, at) * cosine + between(&im, at) * sine
        })
        .collect();
    let loudest = tone.iter().fold(0.0_f64, |loudest, value| loudest.max(value.abs()));
    let wanted = audio.iter().fold(0.0_f32, |loudest, sample| loudest.max(sample.abs()));
    let scale = if loudest > 0.0 { f64::from(wanted) / loudest } else { 0.0 };
    tone.iter().map(|value| (value * scale) as f32).collect()
}

/// Returns the value at a position between two samples.
fn between(values: &[f64], at: f64) -> f64 {
    let (whole, part) = (at as usize, at.fract());
    let next = values.get(whole + 1).unwrap_or(&values[whole]);
    values[whole] + part * (next - values[whole])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::RATE;
    use std::f64::consts::TAU;

    fn tone(hz: f64, level: f64) -> impl Iterator<Item = f64> {
        (0..16_000).map(move |n| level * (TAU * hz * f64::from(n) / RATE).sin())
    }

    fn level(audio: &[f32], hz: f64) -> f64 {
        let turn = |part: fn(f64) -> f64| -> f64 {
            audio.iter().enumerate().map(|(n, x)| f64::from(*x) * part(TAU * hz * n as f64 / RATE)).sum()
        };
        turn(f64::cos).hypot(turn(f64::sin)) * 2.0 / audio.len() as f64
    }

    /// The highest level near a pitch.
    fn near(audio: &[f32], hz: f64) -> f64 {
        (-20..=20).map(|tenth| level(audio, hz + f64::from(tenth) / 4.0)).fold(0.0, f64::max)
    }

    #[test]
    fn the_strongest_tone_is_left_alone_at_another_pitch() {
        let audio: Vec<f32> = tone(950.0, 0.4).zip(tone(1150.0, 0.2)).map(|(a, b)| (a + b) as f32).collect();
        let narrow = narrowed(&audio);
        assert_eq!(narrow.len(), audio.len());
        // It is as loud as both together were.
        assert!((near(&narrow, 700.0) - 0.6).abs() < 0.05, "{}", near(&narrow, 700.0));
        assert!(near(&narrow, 900.0) < 0.01 && near(&narrow, 950.0) < 0.01);
    }

    #[test]
    fn a_tone_that_becomes_faster_stays_at_its_pitch() {
        let audio: Vec<f32> = tone(953.0, 0.4).zip(tone(1053.0, 0.1)).map(|(a, b)| (a + b) as f32).collect();
        for factor in [1.0, 1.7, 4.0] {
            let (narrow, wide) = (signal(&audio, 950.0, factor), faster(&audio, 950.0, factor));
            for audio in [&narrow, &wide] {
                assert_eq!(audio.len(), (16_000.0 / factor) as usize);
                assert!((near(audio, 700.0) - 0.45).abs() < 0.06, "{factor}: {}", near(audio, 700.0));
            }
            // What was beside it is further away by the factor.
            let beside = 700.0 + 100.0 * factor;
            let levels = [near(&narrow, beside), near(&wide, beside)];
            assert!(levels[0] < 0.04 && levels[1] > 0.05, "{factor}: {levels:?}");
        }
    }

    #[test]
    fn turns_stay_on_the_circle_and_in_step() {
        // Ten minutes.
        let last = 9_600_000;
        let [re, im] = turns(700.0).nth(last).expect("endless");
        let (sine, cosine) = (TAU * (700.0 * last as f64 / RATE).fract()).sin_cos();
        assert!((re - cosine).abs() < 1e-8 && (im - sine).abs() < 1e-8, "{re} {im}, not {cosine} {sine}");
    }

    #[test]
    fn silence_stays_silent() {
        assert_eq!(narrowed(&[0.0; 400]), [0.0; 400]);
        assert_eq!(faster(&[0.0; 400], 700.0, 2.0), [0.0; 200]);
        assert!(narrowed(&[]).is_empty() && signal(&[], 700.0, 2.0).is_empty());
    }
}
