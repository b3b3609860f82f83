//! From the transmitter to the loudspeaker: carriers, fading, static, noise and the receiver's filter.
//!
//! Amplitudes are relative to the wanted carrier's, unfaded, which is 1 here; its power is therefore 1/2.

use super::info::{CwChirpInfo, CwDriftInfo, CwQrnInfo, CwQsbInfo};
use crate::fourier;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::f64::consts::{PI, TAU};

/// Samples per second.
pub(super) const RATE: f64 = 16_000.0;

/// Pitch and fading are recomputed every millisecond, far faster than they change; in between, the carrier is a
/// rotating phasor, which costs four multiplications a sample instead of a sine.
const BLOCK: usize = 16;

/// Where a carrier stays whatever its drift, in hertz.
const LOWEST_HZ: f64 = 50.0;
const HIGHEST_HZ: f64 = 7900.0;

pub(super) fn amplitude(db: f32) -> f64 {
    10f64.powf(f64::from(db) / 20.0)
}

pub(super) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    rng.sample(StandardNormal)
}

/// One station's carrier as it arrives.
pub(super) struct Carrier {
    pub pitch_hz: f64,
    pub amplitude: f64,
    pub drift: Option<CwDriftInfo>,
    pub chirp: Option<CwChirpInfo>,
    pub qsb: Option<CwQsbInfo>,
}

impl Carrier {
    /// Adds the carrier, keyed by `envelope`, to `audio`. `elements` tells the chirp when the key went down.
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
            let step = TAU * pitch.clamp(LOWEST_HZ, HIGHEST_HZ) / RATE;
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

fn fading(qsb: Option<CwQsbInfo>, time: f64) -> f64 {
    qsb.map_or(1.0, |qsb| {
        let turn = TAU * (time / f64::from(qsb.period_s) + f64::from(qsb.phase));
        amplitude(-qsb.depth_db * (0.5 - 0.5 * turn.cos()) as f32)
    })
}

/// Fades what is there already.
pub(super) fn fade(qsb: Option<CwQsbInfo>, audio: &mut [f32]) {
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

/// Moves the pitch of what is there already, as a receiver does that wanders: the analytic signal is turned by the phase
/// that the drift adds up to. `pitch_hz` itself stays where a carrier's may be.
pub(super) fn wander(drift: CwDriftInfo, pitch_hz: f64, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let (mut phase, mut walked) = (0.0, 0.0);
    let turning = fourier::analytic(audio);
    for (block, (out, turning)) in audio.chunks_mut(BLOCK).zip(turning.chunks(BLOCK)).enumerate() {
        walked += walk(drift, rng);
        let pitch = pitch_hz + f64::from(drift.hz_per_s) * (block * BLOCK) as f64 / RATE + walked;
        let step = TAU * (pitch.clamp(LOWEST_HZ, HIGHEST_HZ) - pitch_hz) / RATE;
        for (n, (out, signal)) in out.iter_mut().zip(turning).enumerate() {
            let (sine, cosine) = (phase + step * n as f64).sin_cos();
            *out = signal.re * cosine as f32 - signal.im * sine as f32;
        }
        phase = (phase + step * BLOCK as f64) % TAU;
    }
}

/// One block's step of a random walk. Steps add up in power: after a second of them the deviation is `walk_hz`.
fn walk(drift: CwDriftInfo, rng: &mut ChaCha8Rng) -> f64 {
    f64::from(drift.walk_hz) * (BLOCK as f64 / RATE).sqrt() * normal(rng)
}

/// Adds white noise that is `snr_db` below the carrier in `bandwidth_hz`. All of it, from 0 to 8 kHz, is then
/// 8000/bandwidth times as strong.
pub(super) fn add_noise(snr_db: f32, bandwidth_hz: f32, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let in_band = 0.5 / 10f64.powf(f64::from(snr_db) / 10.0);
    let deviation = (in_band * RATE / 2.0 / f64::from(bandwidth_hz)).sqrt() as f32;
    for sample in audio {
        *sample += deviation * rng.sample::<f32, _>(StandardNormal);
    }
}

/// Adds bursts of static. The time from one to the next is exponential, as it is between independent events.
pub(super) fn add_static(qrn: CwQrnInfo, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
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

/// Four equal resonators in a row: close to a Gaussian filter, so it does not ring however narrow it is.
pub(super) struct Filter {
    /// Gain of each resonator's zeros, at 0 Hz and half the sample rate.
    zeros: f32,
    /// Feedback of the last sample and the one before.
    feedback: [f32; 2],
    /// Delay at the centre, in samples.
    pub delay: usize,
}

impl Filter {
    const RESONATORS: usize = 4;

    pub fn new(centre_hz: f64, width_hz: f64) -> Self {
        // n equal resonators in a row are sqrt(2^(1/n) - 1) as wide as one of them: 0.435 for four.
        let each_hz = width_hz / (2f64.powf(1.0 / Self::RESONATORS as f64) - 1.0).sqrt();
        let half = (PI * each_hz / RATE).tan();
        let radius = (1.0 - half) / (1.0 + half);
        Self {
            zeros: ((1.0 - radius) / 2.0) as f32,
            feedback: [((TAU * centre_hz / RATE).cos() * (1.0 + radius)) as f32, -radius as f32],
            delay: (Self::RESONATORS as f64 / half).round() as usize,
        }
    }

    pub fn apply(&self, audio: &mut [f32]) {
        let Self { zeros, feedback: [last, before], .. } = *self;
        let mut state = [[0f32; 2]; Self::RESONATORS];
        for sample in audio {
            for [first, second] in &mut state {
                let input = zeros * *sample;
                *sample = input + *first;
                *first = last * *sample + *second;
                *second = before * *sample - input;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::random, *};

    fn response(filter: &Filter, hz: f64) -> f64 {
        let mut audio: Vec<f32> = (0..16_000).map(|n| (TAU * hz * n as f64 / RATE).sin() as f32).collect();
        filter.apply(&mut audio);
        let tail = &audio[8000..];
        10.0 * (tail.iter().map(|x| f64::from(x * x)).sum::<f64>() / tail.len() as f64 * 2.0).log10()
    }

    #[test]
    fn the_filter_is_as_wide_as_it_says() {
        for width in [100.0, 500.0] {
            let filter = Filter::new(700.0, width);
            assert!(response(&filter, 700.0).abs() < 0.05);
            // Band edges of a resonator are symmetric on a logarithmic scale: their product is the centre squared.
            let upper = (width + (width * width + 4.0 * 700.0 * 700.0f64).sqrt()) / 2.0;
            assert!((response(&filter, upper) + 3.0).abs() < 0.3, "{width}: {}", response(&filter, upper));
            assert!((response(&filter, upper - width) + 3.0).abs() < 0.3);
        }
    }

    #[test]
    fn the_filter_delays_by_what_it_says() {
        let filter = Filter::new(700.0, 300.0);
        let keyed =
            |n: usize| if (4000..4640).contains(&n) { (TAU * 700.0 * n as f64 / RATE).sin() as f32 } else { 0.0 };
        let mut audio: Vec<f32> = (0..9000).map(keyed).collect();
        filter.apply(&mut audio);
        let power: f64 = audio.iter().map(|x| f64::from(x * x)).sum();
        let middle: f64 = audio.iter().enumerate().map(|(n, x)| n as f64 * f64::from(x * x)).sum::<f64>() / power;
        let delay = middle - 4319.5;
        assert!((delay - filter.delay as f64).abs() < 3.0, "{delay} and not {}", filter.delay);
    }

    #[test]
    fn static_comes_at_its_rate() {
        let mut audio = vec![0.0; 160_000 * 6];
        let qrn = CwQrnInfo { rate_per_s: 3.0, level_db: 0.0, decay_ms: 0.5 };
        add_static(qrn, &mut random::stream(1, 2), &mut audio);
        // A burst that decays with time constant t has the energy of t/2 at its full power.
        let energy: f64 = audio.iter().map(|x| f64::from(x * x)).sum::<f64>() / RATE;
        let bursts = energy / (0.5 * 0.0005 / 2.0);
        assert!((120.0..240.0).contains(&bursts), "{bursts} bursts in 60 s at 3 a second");
    }
}
