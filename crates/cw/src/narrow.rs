//! Extraction of the strongest tone of a recording that contains other stations.

use super::envelope::baseband;
use crate::radio::{RATE, carrier_pitch};
use std::f64::consts::TAU;

/// Frequency that the tone is moved to, in hertz: a usual pitch, far from both ends of the usual range.
const PITCH_HZ: f64 = 700.0;
/// Samples of each moving average that filters the tone: 4 ms, which removes signals 250 Hz away.
const AVERAGE: usize = 64;
/// Number of averages: signals 100 Hz away are then 10 dB weaker, those 200 Hz away 50 dB; a dit at 50 words per minute
/// keeps its shape.
const TIMES: usize = 4;

/// Returns the strongest tone of 16 kHz audio with about 50 Hz to either side of it, moved to 700 Hz, as loud as the
/// audio.
pub fn narrowed(audio: &[f32]) -> Vec<f32> {
    narrowed_at(audio, carrier_pitch(audio))
}

/// As [`narrowed`], for the tone of this pitch, in hertz.
pub(super) fn narrowed_at(audio: &[f32], pitch_hz: f64) -> Vec<f32> {
    let [re, im] = baseband(audio, pitch_hz, AVERAGE, TIMES);
    let up = TAU * PITCH_HZ / RATE;
    let tone: Vec<f64> = re
        .iter()
        .zip(&im)
        .enumerate()
        .map(|(n, (re, im))| re * (up * n as f64).cos() + im * (up * n as f64).sin())
        .collect();
    let loudest = tone.iter().fold(0.0_f64, |loudest, value| loudest.max(value.abs()));
    let wanted = audio.iter().fold(0.0_f32, |loudest, sample| loudest.max(sample.abs()));
    let scale = if loudest > 0.0 { f64::from(wanted) / loudest } else { 0.0 };
    tone.iter().map(|value| (value * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, level: f64) -> impl Iterator<Item = f64> {
        (0..16_000).map(move |n| level * (TAU * hz * f64::from(n) / RATE).sin())
    }

    fn level(audio: &[f32], hz: f64) -> f64 {
        let turn = |part: fn(f64) -> f64| -> f64 {
            audio.iter().enumerate().map(|(n, x)| f64::from(*x) * part(TAU * hz * n as f64 / RATE)).sum()
        };
        turn(f64::cos).hypot(turn(f64::sin)) * 2.0 / audio.len() as f64
    }

    #[test]
    fn the_strongest_tone_is_left_alone_at_another_pitch() {
        let audio: Vec<f32> = tone(950.0, 0.4).zip(tone(1150.0, 0.2)).map(|(a, b)| (a + b) as f32).collect();
        let narrow = narrowed(&audio);
        assert_eq!(narrow.len(), audio.len());
        // It is as loud as both together were.
        let near = |hz: f64| (-20..=20).map(|tenth| level(&narrow, hz + f64::from(tenth) / 4.0)).fold(0.0, f64::max);
        assert!((near(700.0) - 0.6).abs() < 0.05, "{}", near(700.0));
        assert!(near(900.0) < 0.01 && near(950.0) < 0.01, "{} {}", near(900.0), near(950.0));
    }

    #[test]
    fn silence_stays_silent() {
        assert_eq!(narrowed(&[0.0; 400]), [0.0; 400]);
        assert!(narrowed(&[]).is_empty());
    }
}
