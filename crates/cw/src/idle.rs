//! Sounds of a clip without a sender, besides noise: a carrier, speech, music.

use crate::radio::{RATE, channel};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, TAU};
use undertone_data::bounds::{BoundsError, number};
use undertone_data::random::{between, chance, pick, weighted, whole};

/// Weights of the sounds of a clip without a sender (`idle`). By default noise alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CwIdle {
    /// Noise and static as in other clips.
    pub noise: f32,
    /// An unkeyed carrier.
    pub carrier: f32,
    /// A voice-like sound: no words, but the pitch, vowels, hiss and rhythm of a voice.
    pub speech: f32,
    /// A music-like sound: chords and a melody of struck or blown tones.
    pub music: f32,
    /// Nothing: digital silence, unless the receiver has noise of its own.
    pub silence: f32,
}

/// Sound of one clip without a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CwIdleSound {
    /// Noise and static.
    Noise,
    /// An unkeyed carrier.
    Carrier,
    /// A voice.
    Speech,
    /// Music.
    Music,
    /// Nothing.
    Silence,
}

impl Default for CwIdle {
    fn default() -> Self {
        Self { noise: 1.0, carrier: 0.0, speech: 0.0, music: 0.0, silence: 0.0 }
    }
}

impl CwIdle {
    fn weights(&self) -> [(&'static str, f32); 5] {
        [
            ("idle.noise", self.noise),
            ("idle.carrier", self.carrier),
            ("idle.speech", self.speech),
            ("idle.music", self.music),
            ("idle.silence", self.silence),
        ]
    }

    pub(super) fn validate(&self) -> Result<(), BoundsError> {
        let weights = self.weights();
        weights.iter().try_for_each(|(field, weight)| number(field, *weight, 0.0, 1e6))?;
        number("the sum of the weights under idle", weights.iter().map(|(_, weight)| weight).sum(), 1e-3, 5e6)
    }

    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> CwIdleSound {
        use CwIdleSound::{Carrier, Music, Noise, Silence, Speech};
        let place = weighted(rng, self.weights().into_iter().map(|(_, weight)| weight));
        [Noise, Carrier, Speech, Music, Silence][place]
    }
}

impl CwIdleSound {
    /// Adds a voice or music, with the peak level of a carrier of amplitude 1.
    pub(super) fn add(self, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        let mut sound = vec![0.0; audio.len()];
        match self {
            Self::Speech => speak(rng, &mut sound),
            Self::Music => play(rng, &mut sound),
            Self::Noise | Self::Carrier | Self::Silence => return,
        }
        let peak = sound.iter().fold(1e-9f32, |peak, sample| peak.max(sample.abs()));
        audio.iter_mut().zip(&sound).for_each(|(out, sample)| *out += sample / peak);
    }
}

/// First, second and third formants of vowels, in hertz (Peterson and Barney, JASA 1952).
const VOWELS: [[f64; 3]; 6] = [
    [270.0, 2290.0, 3010.0],
    [390.0, 1990.0, 2550.0],
    [660.0, 1720.0, 2410.0],
    [730.0, 1090.0, 2440.0],
    [440.0, 1020.0, 2240.0],
    [300.0, 870.0, 2240.0],
];

/// Generates a sequence of syllables: mostly glottal pulses through three formants, sometimes preceded by a hiss or a
/// pause.
fn speak(rng: &mut ChaCha8Rng, sound: &mut [f32]) {
    let voice_hz = f64::from(between(rng, [85.0, 240.0]));
    let mut at = 0;
    while at < sound.len() {
        let mut samples = |range| (f64::from(between(rng, range)) * RATE) as usize;
        let (hiss, vowel, pause) = (samples([0.03, 0.12]), samples([0.08, 0.3]), samples([0.1, 0.8]));
        if chance(rng, 0.4) {
            let end = (at + hiss).min(sound.len());
            let mut last = 0.0;
            for sample in &mut sound[at..end] {
                // The difference of white noise is strong at high frequencies, like an s.
                let noise = 0.1 * channel::normal(rng) as f32;
                *sample += noise - last;
                last = noise;
            }
            at = end;
        }
        let end = (at + vowel).min(sound.len());
        let hz = voice_hz * f64::from(between(rng, [0.8, 1.3]));
        let glide = f64::from(between(rng, [-0.3, 0.2]));
        sing(pick(rng, &VOWELS), hz, glide, &mut sound[at..end]);
        at = end + if chance(rng, 0.2) { pause } else { 0 };
    }
}

/// Generates one vowel, whose pitch glides by a fraction of itself.
fn sing(formants: [f64; 3], hz: f64, glide: f64, sound: &mut [f32]) {
    let length = sound.len() as f64;
    let resonators = formants.map(|formant| {
        let radius = (-PI * 90.0 / RATE).exp();
        [2.0 * radius * (TAU * formant / RATE).cos(), -radius * radius]
    });
    let (mut state, mut phase) = ([[0.0; 2]; 3], 0.0);
    for (n, out) in sound.iter_mut().enumerate() {
        let place = n as f64 / length;
        phase += hz * (1.0 + glide * place) / RATE;
        let pulse = if phase >= 1.0 { 1.0 } else { 0.0 };
        phase %= 1.0;
        let envelope = (PI * place).sin();
        for (nth, ([last, before], state)) in resonators.iter().zip(&mut state).enumerate() {
            let value = pulse + last * state[0] + before * state[1];
            *state = [value, state[0]];
            // Each formant is about 6 dB below the previous one.
            *out += (envelope * value * 0.5f64.powi(nth as i32)) as f32;
        }
    }
}

/// Generates notes of a scale, some at once, each with harmonics that decay or hold.
fn play(rng: &mut ChaCha8Rng, sound: &mut [f32]) {
    const SCALE: [f64; 7] = [0.0, 2.0, 4.0, 5.0, 7.0, 9.0, 11.0];
    let key_hz = f64::from(between(rng, [110.0, 330.0]));
    let beat = (f64::from(between(rng, [0.15, 0.6])) * RATE) as usize;
    let struck = chance(rng, 0.6);
    let brightness = f64::from(between(rng, [0.3, 0.75]));
    for start in (0..sound.len()).step_by(beat) {
        for _ in 0..whole(rng, 0..=3) {
            let tone = pick(rng, &SCALE) + 12.0 * whole(rng, 0..=2) as f64;
            let beats = whole(rng, 1..=4);
            let end = (start + beats * beat).min(sound.len());
            let fall_s = f64::from(between(rng, [0.1, 0.8]));
            let phase = TAU * rng.random::<f64>();
            let hz = key_hz * (tone / 12.0).exp2();
            note(hz, brightness, struck.then_some(fall_s), phase, &mut sound[start..end]);
        }
    }
}

/// Generates one note with up to 8 harmonics below 6 kHz, each weaker than the previous one by `brightness`.
fn note(hz: f64, brightness: f64, fall_s: Option<f64>, phase: f64, sound: &mut [f32]) {
    let harmonics = ((6000.0 / hz) as usize).min(8);
    let length = sound.len() as f64;
    // The note rises within 5 ms and falls within 20 ms at its end.
    let shape = |n: usize| {
        let (now, left) = (n as f64, length - n as f64);
        let held = (now / (0.005 * RATE)).min(1.0) * (left / (0.02 * RATE)).min(1.0);
        held * fall_s.map_or(1.0, |fall| (-now / (fall * RATE)).exp())
    };
    let envelope: Vec<f32> =
        (0..sound.len().div_ceil(channel::BLOCK)).map(|n| shape(n * channel::BLOCK) as f32).collect();
    for harmonic in 1..=harmonics {
        let step = TAU * hz * harmonic as f64 / RATE;
        let (turn_sine, turn_cosine) = (step.sin() as f32, step.cos() as f32);
        let start = phase * harmonic as f64;
        let (mut sine, mut cosine) = (start.sin() as f32, start.cos() as f32);
        let gain = brightness.powi(harmonic as i32 - 1) as f32;
        for (piece, envelope) in sound.chunks_mut(channel::BLOCK).zip(&envelope) {
            for out in piece {
                *out += gain * envelope * sine;
                (sine, cosine) = (sine * turn_cosine + cosine * turn_sine, cosine * turn_cosine - sine * turn_sine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::random;

    #[test]
    fn voices_and_music_sound_and_pause() {
        for sound in [CwIdleSound::Speech, CwIdleSound::Music] {
            let mut soft = 0;
            for index in 0..20 {
                let mut audio = vec![0.0; 80_000];
                sound.add(&mut random::stream(1, index), &mut audio);
                let levels: Vec<f32> =
                    audio.chunks(800).map(|piece| piece.iter().map(|x| x * x).sum::<f32>() / 800.0).collect();
                let loudest = levels.iter().copied().fold(0.0, f32::max);
                soft += levels.iter().filter(|level| **level < loudest / 4.0).count();
                assert!(loudest > 1e-3, "{sound:?} {index}: {loudest}");
            }
            // A tenth of the time at least.
            assert!(soft > 200, "{sound:?}: {soft} of 2000 pieces");
        }
    }
}
