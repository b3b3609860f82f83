//! Signal processing of a radio path: fading, drift, static and noise.
//!
//! Amplitudes are relative to the wanted carrier's without fading, which is 1; its power is therefore 1/2.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::{DrawnDrift, DrawnFading, DrawnStatic};
use undertone_data::fourier;

/// Samples per second.
pub const RATE: f64 = 16_000.0;

/// Number of samples between updates: pitch and fading are recomputed every millisecond, far faster than they change.
/// In between, the carrier is a rotating phasor, which costs four multiplications per sample instead of a sine.
pub const BLOCK: usize = 16;

/// Minimum frequency of a carrier, whatever its drift, in hertz.
const LOWEST_HZ: f64 = 50.0;
const HIGHEST_HZ: f64 = 7900.0;

/// Clamps a pitch to the frequencies that a carrier may have, in hertz.
pub fn carrier_hz(pitch_hz: f64) -> f64 {
    pitch_hz.clamp(LOWEST_HZ, HIGHEST_HZ)
}

/// Converts decibels to an amplitude ratio.
pub fn amplitude(db: f32) -> f64 {
    10f64.powf(f64::from(db) / 20.0)
}

/// Draws from the standard normal distribution.
pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    rng.sample(StandardNormal)
}

/// Returns the factor of the amplitude at `time` seconds: 1 without fading.
pub fn fading(qsb: Option<DrawnFading>, time: f64) -> f64 {
    qsb.map_or(1.0, |qsb| {
        let turn = TAU * (time / f64::from(qsb.period_s) + f64::from(qsb.phase));
        amplitude(-qsb.depth_db * (0.5 - 0.5 * turn.cos()) as f32)
    })
}

/// Fades a whole recording.
pub fn fade(qsb: Option<DrawnFading>, audio: &mut [f32]) {
    if qsb.is_none() {
        return;
    }
    for (block, samples) in audio.chunks_mut(BLOCK).enumerate() {
        let [from, to] = [block, block + 1].map(|block| fading(qsb, (block * BLOCK) as f64 / RATE));
        let slope = (to - from) / BLOCK as f64;
        for (n, sample) in samples.iter_mut().enumerate() {
            *sample *= (from + slope * n as f64) as f32;
        }
    }
}

/// Shifts the pitch of a whole recording, as a drifting receiver does: the analytic signal is rotated by the
/// accumulated phase of the drift. `pitch_hz` itself is clamped to the frequencies of a carrier.
pub fn wander(drift: DrawnDrift, pitch_hz: f64, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let (mut phase, mut walked) = (0.0, 0.0);
    let turning = fourier::analytic(audio);
    for (block, (out, turning)) in audio.chunks_mut(BLOCK).zip(turning.chunks(BLOCK)).enumerate() {
        walked += walk(drift, rng);
        let pitch = pitch_hz + f64::from(drift.hz_per_s) * (block * BLOCK) as f64 / RATE + walked;
        let step = TAU * (carrier_hz(pitch) - pitch_hz) / RATE;
        for (n, (out, signal)) in out.iter_mut().zip(turning).enumerate() {
            let (sine, cosine) = (phase + step * n as f64).sin_cos();
            *out = signal.re * cosine as f32 - signal.im * sine as f32;
        }
        phase = (phase + step * BLOCK as f64) % TAU;
    }
}

/// Returns the step in hertz of a random walk over one block of [`BLOCK`] samples. The variances of the steps add up:
/// after a second the standard deviation is `walk_hz`.
pub fn walk(drift: DrawnDrift, rng: &mut ChaCha8Rng) -> f64 {
    f64::from(drift.walk_hz) * (BLOCK as f64 / RATE).sqrt() * normal(rng)
}

/// Adds white noise that is `snr_db` below the carrier in `bandwidth_hz`. The whole noise, from 0 to 8 kHz, then has
/// 8000/bandwidth times that power.
pub fn add_noise(snr_db: f32, bandwidth_hz: f32, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let in_band = 0.5 / 10f64.powf(f64::from(snr_db) / 10.0);
    let deviation = (in_band * RATE / 2.0 / f64::from(bandwidth_hz)).sqrt() as f32;
    for sample in audio {
        *sample += deviation * rng.sample::<f32, _>(StandardNormal);
    }
}

/// Adds bursts of static. The time between bursts is exponentially distributed, as for independent events.
pub fn add_static(qrn: DrawnStatic, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    if qrn.rate_per_s == 0.0 {
        return;
    }
    let start = (amplitude(qrn.level_db) * 0.5f64.sqrt()) as f32;
    let decay_samples = f64::from(qrn.decay_ms) / 1000.0 * RATE;
    let decay = (-1.0 / decay_samples).exp() as f32;
    // After seven time constants a burst is 60 dB down.
    let length = (7.0 * decay_samples).ceil() as usize;
    let mut at = 0.0;
    loop {
        at += -(1.0 - rng.random::<f64>()).ln() / f64::from(qrn.rate_per_s) * RATE;
        if at >= audio.len() as f64 {
            return;
        }
        let mut level = start;
        for sample in audio[at as usize..].iter_mut().take(length) {
            *sample += level * rng.sample::<f32, _>(StandardNormal);
            level *= decay;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::random;

    #[test]
    fn static_comes_at_its_rate() {
        let mut audio = vec![0.0; 160_000 * 6];
        let qrn = DrawnStatic { rate_per_s: 3.0, level_db: 0.0, decay_ms: 0.5 };
        add_static(qrn, &mut random::stream(1, 2), &mut audio);
        // A burst that decays with time constant t has the energy of t/2 at its full power.
        let energy: f64 = audio.iter().map(|x| f64::from(x * x)).sum::<f64>() / RATE;
        let bursts = energy / (0.5 * 0.0005 / 2.0);
        assert!((120.0..240.0).contains(&bursts), "{bursts} bursts in 60 s at 3 a second");
    }
}
