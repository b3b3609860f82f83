//! Keyed carrier of a station: a rotating phasor whose pitch and level are recomputed a thousand times per second.
//!
//! Amplitudes are relative to the wanted carrier's without fading, which is 1; its power is therefore 1/2.

use super::CwChirpInfo;
use crate::radio::{
    DrawnDrift, DrawnFading, RATE,
    channel::{BLOCK, carrier_hz, fading, walk},
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

/// One station's carrier at the receiver.
pub(super) struct Carrier {
    pub pitch_hz: f64,
    pub amplitude: f64,
    pub drift: Option<DrawnDrift>,
    pub chirp: Option<CwChirpInfo>,
    pub qsb: Option<DrawnFading>,
}

impl Carrier {
    /// Adds the carrier, keyed by `envelope`, to `audio`. The chirp depends on the key-down times in `elements`.
    pub fn add(&self, envelope: &[f32], elements: &[[f64; 2]], rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        let mut phase = rng.random::<f64>() * TAU;
        let mut walked = 0.0;
        let mut elements = elements.iter().map(|[down, _]| *down).peekable();
        let mut key_down = f64::NEG_INFINITY;
        for (block, (shape, out)) in envelope.chunks(BLOCK).zip(audio.chunks_mut(BLOCK)).enumerate() {
            let time = (block * BLOCK) as f64 / RATE;
            let next = ((block + 1) * BLOCK) as f64 / RATE;
            while let Some(down) = elements.next_if(|down| *down < next) {
                key_down = down;
            }
            let mut pitch = self.pitch_hz;
            if let Some(drift) = self.drift {
                walked += walk(drift, rng);
                pitch += f64::from(drift.hz_per_s) * time + walked;
            }
            if let Some(chirp) = self.chirp {
                let since = (time - key_down).max(0.0);
                pitch += f64::from(chirp.hz) * (-since * 1000.0 / f64::from(chirp.settle_ms)).exp();
            }
            let step = TAU * carrier_hz(pitch) / RATE;
            if shape.iter().any(|value| *value > 0.0) {
                let from = self.amplitude * fading(self.qsb, time);
                let slope = (self.amplitude * fading(self.qsb, next) - from) / BLOCK as f64;
                add_block(shape, phase, step, from, slope, out);
            }
            phase = (phase + step * BLOCK as f64) % TAU;
        }
    }
}

fn add_block(shape: &[f32], phase: f64, step: f64, from: f64, slope: f64, out: &mut [f32]) {
    let (mut sine, mut cosine) = (phase.sin() as f32, phase.cos() as f32);
    let (step_sine, step_cosine) = (step.sin() as f32, step.cos() as f32);
    let (mut gain, slope) = (from as f32, slope as f32);
    for (out, shape) in out.iter_mut().zip(shape) {
        *out += gain * shape * sine;
        (sine, cosine) = (sine * step_cosine + cosine * step_sine, cosine * step_cosine - sine * step_sine);
        gain += slope;
    }
}
