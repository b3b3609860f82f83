//! Codecs of telephones, voice recorders and web streams, and their loss.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::mdct::TransformCodec;
use undertone_data::random::{Range, between, pick, weighted, whole};

/// Kinds of codecs, each with its weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodecKinds {
    /// 8 bits per sample with a logarithmic law, µ or A (ITU-T G.711): noise that follows the signal 38 dB below it.
    pub logarithmic: f32,
    /// Uniform quantisation with 6 to 12 bits, with or without dither: noise of constant level.
    pub linear: f32,
    /// 4 bits per sample for the difference from the previous one (IMA ADPCM): noise at attacks.
    pub adpcm: f32,
    /// MP3, Vorbis, Opus: noise around loud spectral lines, holes elsewhere, echoes before attacks.
    pub transform: f32,
}

/// The codec of one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawnCodec {
    /// µ-law.
    MuLaw,
    /// A-law.
    ALaw,
    /// Uniform quantisation.
    Linear {
        /// Bits per sample.
        bits: u32,
        /// Whether noise of triangular density, two steps wide, is added before rounding.
        dither: bool,
    },
    /// IMA ADPCM.
    Adpcm,
    /// A transform codec.
    Transform {
        /// Number of spectral lines per frame.
        lines: usize,
        /// Level of the noise below the signal of its band, in decibels.
        mask_db: f32,
    },
}

impl Default for CodecKinds {
    fn default() -> Self {
        Self { logarithmic: 1.0, linear: 1.0, adpcm: 1.0, transform: 3.0 }
    }
}

/// Range of [`DrawnCodec::Transform`], in decibels, and of [`DrawnCodec::Linear`], in bits.
const MASK_DB: Range = [4.0, 22.0];
const BITS: [u32; 2] = [6, 12];

impl CodecKinds {
    pub(super) fn weights(&self) -> [(&'static str, f32); 4] {
        [
            ("recorder.codec.kinds.logarithmic", self.logarithmic),
            ("recorder.codec.kinds.linear", self.linear),
            ("recorder.codec.kinds.adpcm", self.adpcm),
            ("recorder.codec.kinds.transform", self.transform),
        ]
    }

    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> DrawnCodec {
        match weighted(rng, self.weights().into_iter().map(|(_, weight)| weight)) {
            0 => pick(rng, &[DrawnCodec::MuLaw, DrawnCodec::ALaw]),
            1 => {
                let bits = whole(rng, BITS[0] as usize..=BITS[1] as usize) as u32;
                DrawnCodec::Linear { bits, dither: rng.random() }
            }
            2 => DrawnCodec::Adpcm,
            _ => {
                let lines = pick(rng, &[192, 256, 512, 576, 1024]);
                DrawnCodec::Transform { lines, mask_db: between(rng, MASK_DB) }
            }
        }
    }
}

impl DrawnCodec {
    /// Encodes and decodes in place; full scale is 1, and `rate` is in samples per second.
    pub(super) fn apply(self, rate: f64, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        match self {
            Self::MuLaw => by_table(&table(mu_law), audio),
            Self::ALaw => by_table(&table(a_law), audio),
            Self::Linear { bits, dither } => linear(bits, dither, rng, audio),
            Self::Adpcm => Adpcm::default().apply(audio),
            Self::Transform { lines, mask_db } => TransformCodec { lines, mask_db, rate }.apply(audio),
        }
    }
}

/// Number of magnitudes from 0 to 1 in a table of decoded values: 14 bits with the sign, for which the laws are
/// defined.
const SIZES: usize = 8192;

/// The 128 magnitudes of 7 bits by the µ law: ln(1 + 255 x)/ln 256.
fn mu_law(size: f64) -> f64 {
    let code = ((1.0 + 255.0 * size).ln() / 256f64.ln() * 127.0).round() / 127.0;
    (256f64.powf(code) - 1.0) / 255.0
}

/// The 128 magnitudes of 7 bits by the A law: linear up to 1/87.6, then logarithmic.
fn a_law(size: f64) -> f64 {
    const A: f64 = 87.6;
    let whole = 1.0 + A.ln();
    let code = if size < 1.0 / A { A * size / whole } else { (1.0 + (A * size).ln()) / whole };
    // There is no code for 0: the smallest values are half a step away from it on either side.
    let code = ((code * 127.5 - 0.5).round() + 0.5) / 127.5;
    if code < 1.0 / whole { code * whole / A } else { (code * whole - 1.0).exp() / A }
}

fn table(law: impl Fn(f64) -> f64) -> Vec<f32> {
    (0..=SIZES).map(|size| law(size as f64 / SIZES as f64) as f32).collect()
}

fn by_table(table: &[f32], audio: &mut [f32]) {
    for sample in audio {
        let size = (sample.abs().min(1.0) * SIZES as f32).round() as usize;
        *sample = table[size].copysign(*sample);
    }
}

fn linear(bits: u32, dither: bool, rng: &mut ChaCha8Rng, audio: &mut [f32]) {
    let steps = (1u32 << (bits - 1)) as f32 - 1.0;
    for sample in audio {
        let noise = if dither { rng.random::<f32>() - rng.random::<f32>() } else { 0.0 };
        *sample = (*sample * steps + noise).round() / steps;
    }
}

/// IMA ADPCM (Interactive Multimedia Association, 1992): 4 bits for the difference from the previous sample, in steps
/// that grow if it is large and shrink if it is small.
#[derive(Default)]
struct Adpcm {
    predicted: i32,
    index: i32,
}

#[rustfmt::skip]
const STEPS: [i32; 89] = [
    7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 25, 28, 31, 34, 37, 41, 45, 50, 55, 60, 66, 73, 80, 88, 97, 107, 118,
    130, 143, 157, 173, 190, 209, 230, 253, 279, 307, 337, 371, 408, 449, 494, 544, 598, 658, 724, 796, 876, 963, 1060, 1166,
    1282, 1411, 1552, 1707, 1878, 2066, 2272, 2499, 2749, 3024, 3327, 3660, 4026, 4428, 4871, 5358, 5894, 6484, 7132, 7845,
    8630, 9493, 10442, 11487, 12635, 13899, 15289, 16818, 18500, 20350, 22385, 24623, 27086, 29794, 32767,
];
/// Change of the step index by a code's three bits without the sign.
const MOVES: [i32; 8] = [-1, -1, -1, -1, 2, 4, 6, 8];

impl Adpcm {
    fn apply(&mut self, audio: &mut [f32]) {
        for sample in audio {
            *sample = self.next((sample.clamp(-1.0, 1.0) * 32_767.0) as i32) as f32 / 32_767.0;
        }
    }

    fn next(&mut self, sample: i32) -> i32 {
        let step = STEPS[self.index as usize];
        let difference = sample - self.predicted;
        let code = (4 * difference.abs() / step).min(7);
        // The decoder's sum: step/8, plus a half, a quarter and an eighth of 2 steps for the bits that are set.
        let size = (2 * code + 1) * step / 8;
        let next = self.predicted + if difference < 0 { -size } else { size };
        self.predicted = next.clamp(-32_768, 32_767);
        self.index = (self.index + MOVES[code as usize]).clamp(0, 88);
        self.predicted
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use undertone_data::{level, random};

    /// Noise relative to a tone of this amplitude, in decibels.
    fn noise_db(codec: DrawnCodec, amplitude: f64) -> f64 {
        let clean: Vec<f32> =
            (0..16_000).map(|n| (amplitude * (TAU * 701.0 * f64::from(n) / 16_000.0).sin()) as f32).collect();
        let mut audio = clean.clone();
        codec.apply(16_000.0, &mut random::stream(1, 1), &mut audio);
        let noise: Vec<f32> = audio.iter().zip(&clean).map(|(a, b)| a - b).collect();
        10.0 * (level::energy(&noise) / level::energy(&clean)).log10()
    }

    #[test]
    fn logarithmic_laws_keep_their_distance_at_every_level() {
        for codec in [DrawnCodec::MuLaw, DrawnCodec::ALaw] {
            for amplitude in [0.9, 0.1] {
                assert!(
                    (-41.0..-33.0).contains(&noise_db(codec, amplitude)),
                    "{codec:?} {}",
                    noise_db(codec, amplitude)
                );
            }
        }
    }

    #[test]
    fn whole_steps_have_noise_of_one_level() {
        // A sine at full scale lies 6.02 n + 1.76 dB over the noise of n bits; dither triples the noise.
        let plain = DrawnCodec::Linear { bits: 8, dither: false };
        assert!((noise_db(plain, 1.0) + 49.9).abs() < 0.5, "{}", noise_db(plain, 1.0));
        assert!((noise_db(plain, 0.1) + 29.9).abs() < 1.0);
        let dithered = DrawnCodec::Linear { bits: 8, dither: true };
        assert!((noise_db(dithered, 0.5) + 39.1).abs() < 0.5, "{}", noise_db(dithered, 0.5));
    }

    #[test]
    fn adpcm_follows_a_tone() {
        assert!((-40.0..-15.0).contains(&noise_db(DrawnCodec::Adpcm, 0.5)), "{}", noise_db(DrawnCodec::Adpcm, 0.5));
        let mut codec = Adpcm::default();
        // 100 with a step of 7: the code is 7, the sum 7/8 + 7 + 3.5 + 1.75, and the step moves on by 8.
        assert_eq!((codec.next(100), codec.index), (13, 8));
    }
}
