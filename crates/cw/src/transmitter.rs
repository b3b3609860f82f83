//! Faults of a transmitter beyond clean keying: a distorted or humming note, backwave while the key is up, and clicks.

use super::stream::Stream;
use crate::radio::{RATE, channel};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use undertone_data::bounds::BoundsError;
use undertone_data::effect;
use undertone_data::random::{Range, between, chance, either_way, pick};

/// Faults of a transmitter (`transmitter`). All are off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CwTransmitter {
    /// Harmonics.
    pub distortion: CwDistortion,
    /// Ripple of the supply.
    pub ripple: CwRipple,
    /// Residual carrier while the key is up.
    pub backwave: CwBackwave,
    /// Bursts of noise at each edge.
    pub clicks: CwClicks,
}

effect! {
    /// Distortion of the tone towards a square wave.
    pub struct CwDistortion at "transmitter.distortion" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Drive into the distortion, in decibels: 0 leaves a third harmonic of -23 dB, 30 gives a square wave.
        pub drive_db: Range = [-15.0, 20.0], range(-40.0, 60.0);
        /// Offset of the distortion, relative to the driven tone: 0 has odd harmonics only.
        pub bias: Range = [0.0, 0.5], range(0.0, 1.0);
    }
}

effect! {
    /// Ripple of an unfiltered supply: the tone's level follows the mains, 50, 60, 100 or 120 times per second.
    pub struct CwRipple at "transmitter.ripple" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Amplitude of the level's variation, as a fraction of it.
        pub depth: Range = [0.02, 0.8], range(0.0, 1.0);
    }
}

effect! {
    /// Backwave: an oscillator that is audible while the key is up.
    pub struct CwBackwave at "transmitter.backwave" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Level relative to the carrier, in decibels.
        pub level_db: Range = [-60.0, -15.0], range(-100.0, -6.0);
        /// Offset of its pitch, in hertz, upwards or downwards.
        pub offset_hz: Range = [0.0, 20.0], range(0.0, 500.0);
    }
}

effect! {
    /// Bursts of noise at key-down and key-up.
    pub struct CwClicks at "transmitter.clicks" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Level at the start of a burst relative to the carrier (root mean square each), in decibels.
        pub level_db: Range = [-40.0, -5.0], range(-100.0, 10.0);
        /// Time constant with which a burst decays, in milliseconds.
        pub decay_ms: Range = [0.2, 4.0], range(0.05, 50.0);
    }
}

/// Faults of a transmitter in one clip.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CwTransmitterInfo {
    /// Drive of the distortion in decibels, and its offset.
    pub distortion: Option<(f32, f32)>,
    /// Frequency of the ripple in hertz, and its depth.
    pub ripple: Option<(f32, f32)>,
    /// Level of the backwave in decibels, and its offset in hertz.
    pub backwave: Option<(f32, f32)>,
    /// Level of clicks in decibels, and their time constant in milliseconds.
    pub clicks: Option<(f32, f32)>,
}

impl CwTransmitter {
    pub(super) fn validate(&self) -> Result<(), BoundsError> {
        self.distortion.validate()?;
        self.ripple.validate()?;
        self.backwave.validate()?;
        self.clicks.validate()
    }

    pub(super) fn draw(&self, draw: u64) -> CwTransmitterInfo {
        let bending = &mut Stream::Distortion.of(draw);
        let humming = &mut Stream::Ripple.of(draw);
        let waving = &mut Stream::Backwave.of(draw);
        let clicking = &mut Stream::Clicks.of(draw);
        CwTransmitterInfo {
            distortion: chance(bending, self.distortion.probability)
                .then(|| (between(bending, self.distortion.drive_db), between(bending, self.distortion.bias))),
            ripple: chance(humming, self.ripple.probability)
                .then(|| (pick(humming, &[50.0, 60.0, 100.0, 120.0]), between(humming, self.ripple.depth))),
            backwave: chance(waving, self.backwave.probability)
                .then(|| (between(waving, self.backwave.level_db), either_way(waving, self.backwave.offset_hz))),
            clicks: chance(clicking, self.clicks.probability)
                .then(|| (between(clicking, self.clicks.level_db), between(clicking, self.clicks.decay_ms))),
        }
    }
}

/// Applies ripple to a keyed carrier of amplitude 1.
pub(super) fn ripple((hz, depth): (f32, f32), rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let phase = TAU * rng.random::<f64>();
    let step = TAU * f64::from(hz) * channel::BLOCK as f64 / RATE;
    for (block, samples) in audio.chunks_mut(channel::BLOCK).enumerate() {
        // A block is a millisecond: a 20th of the fastest ripple's period or less.
        let gain = 1.0 + depth * (phase + step * block as f64).sin() as f32;
        samples.iter_mut().for_each(|sample| *sample *= gain);
    }
}

/// Distorts a keyed carrier of amplitude 1, which keeps its amplitude from peak to peak: with a bias, one half of the wave is flat.
pub(super) fn distort((drive_db, bias): (f32, f32), audio: &mut [f32]) {
    let drive = channel::amplitude(drive_db) as f32;
    let [lowest, middle, highest] = [bias - 1.0, bias, bias + 1.0].map(|level| (level * drive).tanh());
    for sample in audio.iter_mut().filter(|sample| **sample != 0.0) {
        *sample = 2.0 * (((*sample + bias) * drive).tanh() - middle) / (highest - lowest);
    }
}

/// Adds a burst of noise at each key-down and key-up.
pub(super) fn click((level_db, decay_ms): (f32, f32), elements: &[[f64; 2]], rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let start = (channel::amplitude(level_db) * 0.5f64.sqrt()) as f32;
    let decay_samples = f64::from(decay_ms) / 1000.0 * RATE;
    let decay = (-1.0 / decay_samples).exp() as f32;
    let edges = elements.iter().flatten().filter(|time| **time >= 0.0);
    for time in edges {
        let mut level = start;
        // After seven time constants a burst is 60 dB down.
        for sample in audio.iter_mut().skip((time * RATE) as usize).take((7.0 * decay_samples) as usize) {
            *sample += level * channel::normal(rng) as f32;
            level *= decay;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distorted_carrier_keeps_its_amplitude_at_any_drive_and_bias() {
        for drive_db in (-40..=60).step_by(5) {
            // From a bias of 1 on, a hard drive leaves pulses, whose part at the carrier's frequency is small.
            for bias in [0.0, 0.1, 0.3, 0.5] {
                let mut audio: Vec<f32> =
                    (0..16_000).map(|n| (TAU * 700.0 * f64::from(n) / RATE).sin() as f32).collect();
                distort((drive_db as f32, bias), &mut audio);
                // The part at the carrier's frequency.
                let part = |turn: fn(f64) -> f64| {
                    let turned = audio
                        .iter()
                        .enumerate()
                        .map(|(n, sample)| f64::from(*sample) * turn(TAU * 700.0 * n as f64 / RATE));
                    turned.sum::<f64>() / 8000.0
                };
                let level_db = 20.0 * part(f64::sin).hypot(part(f64::cos)).log10();
                assert!(level_db.abs() < 3.0, "{drive_db} dB and {bias}: {level_db}");
            }
        }
    }
}
