//! Signals for tests.

use std::f64::consts::TAU;

use super::{RATE, RadioChannel};

/// A channel that changes nothing.
pub(crate) fn off() -> RadioChannel {
    let mut channel = RadioChannel { p: 1.0, ..RadioChannel::default() };
    channel.drift.probability = 0.0;
    channel.qsb.probability = 0.0;
    channel.qrm.probability = 0.0;
    channel.qrn.probability = 0.0;
    channel.filter.probability = 0.0;
    channel
}

/// A carrier at a tenth of full scale.
pub(crate) fn tone(hz: f64, seconds: f64) -> Vec<f32> {
    carrier(hz, 0.1, (seconds * RATE) as usize)
}

/// A carrier of an amplitude.
pub(crate) fn carrier(hz: f64, amplitude: f32, samples: usize) -> Vec<f32> {
    (0..samples).map(|n| amplitude * (TAU * hz * n as f64 / RATE).sin() as f32).collect()
}

/// A carrier at half of full scale that is keyed at random: marks of 60 ms to 180 ms, with pauses in between.
pub(crate) fn keyed_tone(hz: f64, samples: usize) -> Vec<f32> {
    let mut elements = [1, 3, 1, 1, 3, 3, 1, 3, 3, 1, 3, 1, 1, 1, 3].into_iter().cycle();
    let mut keyed: Vec<f32> = Vec::with_capacity(samples);
    while keyed.len() < samples {
        let down = elements.next().unwrap_or(1) * 960;
        keyed.extend((0..down).map(|n| 0.5 * (TAU * hz * n as f64 / RATE).sin() as f32));
        keyed.extend(vec![0.0; 960]);
    }
    keyed.truncate(samples);
    keyed
}
