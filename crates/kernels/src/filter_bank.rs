//! Banks of filters over the power spectra of frames, and the logarithm: the stages of a log-mel spectrogram.

use std::ops::Range;
use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::simd::simd_fn;

/// Number of frames in a block, stored side by side so that the steps after the transform vectorise across them.
/// Sixteen keep the buffers of frames of 400 samples (26 kB before the transform, 13 kB after) near the first-level
/// cache.
pub const LANES: usize = 16;

/// Filters over the power spectra of windowed frames that are `hop` samples apart.
pub struct FilterBank {
    window: Vec<f32>,
    hop: usize,
    filters: Vec<Filter>,
    fft: Arc<dyn Fft<f32>>,
}

/// Weights of neighbouring frequencies; those of all others are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// First frequency, in units of the sampling rate over the frame's length.
    pub start: usize,
    /// Weights of it and the following frequencies.
    pub weights: Vec<f32>,
}

/// Buffers that a thread reuses for every block.
#[derive(Default)]
pub struct Scratch {
    /// Pairs of frames, one as the real and one as the imaginary part: `[LANES / 2, frame]`.
    pairs: Vec<Complex<f32>>,
    fft: Vec<Complex<f32>>,
    /// `[frame / 2 + 1][LANES]`.
    power: Vec<[f32; LANES]>,
}

impl FilterBank {
    /// Creates a bank. Frames have the window's length.
    ///
    /// # Panics
    /// If that length is odd or zero, or a filter extends beyond half the sampling rate.
    pub fn new(window: Vec<f32>, hop: usize, filters: Vec<Filter>) -> Self {
        let frame = window.len();
        assert!(frame > 0 && frame.is_multiple_of(2), "a window of an even number of samples");
        let inside = |filter: &Filter| filter.start + filter.weights.len() <= frame / 2 + 1;
        assert!(filters.iter().all(inside), "filters between 0 and half the sampling rate");
        let fft = FftPlanner::new().plan_fft_forward(frame);
        Self { window, hop, filters, fft }
    }

    /// Number of filters.
    pub fn filters(&self) -> usize {
        self.filters.len()
    }

    /// Number of samples that [`LANES`] frames cover.
    pub fn span(&self) -> usize {
        (LANES - 1) * self.hop + self.window.len()
    }

    /// Filters [`LANES`] frames of `samples` and writes the energies of the first of them to these `columns` of `out`
    /// `[filters, frames]`. Returns the maximum.
    ///
    /// # Panics
    /// If the length of `samples` is not [`FilterBank::span`], or `out` lacks these columns, or there are more than
    /// [`LANES`].
    pub fn energies(
        &self,
        samples: &[f32],
        scratch: &mut Scratch,
        columns: Range<usize>,
        out: &mut [f32],
        frames: usize,
    ) -> f32 {
        let frame = self.window.len();
        assert_eq!(samples.len(), self.span(), "a block of frames");
        assert!(columns.len() <= LANES && columns.end <= frames, "columns of this block");
        assert_eq!(out.len(), self.filters.len() * frames, "a row for each filter");
        scratch.pairs.resize(LANES / 2 * frame, Complex::default());
        scratch.power.resize(frame / 2 + 1, [0.0; LANES]);
        scratch.fft.resize(self.fft.get_inplace_scratch_len(), Complex::default());

        load_pairs(samples, self.hop, &self.window, &mut scratch.pairs);
        self.fft.process_with_scratch(&mut scratch.pairs, &mut scratch.fft);
        split_pairs(&scratch.pairs, &mut scratch.power);
        filter(&self.filters, &scratch.power, columns, out, frames)
    }
}

simd_fn! {
    /// Loads windowed frames in pairs as real and imaginary part: `[LANES / 2, frame]`.
    fn load_pairs<I>(samples: &[f32], hop: usize, window: &[f32], pairs: &mut [Complex<f32>]) {
        for (pair, out) in pairs.chunks_exact_mut(window.len()).enumerate() {
            let samples = &samples[2 * pair * hop..][..window.len() + hop];
            let frames = samples.iter().zip(&samples[hop..]);
            for ((out, (re, im)), window) in out.iter_mut().zip(frames).zip(window) {
                *out = Complex::new(re * window, im * window);
            }
        }
    }
}

simd_fn! {
    /// Separates the spectra of two real frames `x + iy` transformed as one, and stores their powers: `[bins][LANES]`.
    ///
    /// A real signal's spectrum equals its own conjugated mirror image. So with `a = Z[k]` and `b = conj(Z[-k])` the
    /// two are `X = (a + b) / 2` and `Y = (a - b) / 2i`. Adding the amplitudes before squaring keeps a quiet frame
    /// beside a loud one exact to 1e-7 of the loud one's amplitude, which is 1e-14 of its power; the result keeps 1e-8.
    fn split_pairs<I>(pairs: &[Complex<f32>], power: &mut [[f32; LANES]]) {
        let frame = 2 * (power.len() - 1);
        assert_eq!(pairs.len(), LANES / 2 * frame);
        for (k, power) in power.iter_mut().enumerate() {
            let mirrored = if k == 0 { 0 } else { frame - k };
            for pair in 0..LANES / 2 {
                let (a, b) = (pairs[pair * frame + k], pairs[pair * frame + mirrored]);
                let (x_re, x_im, y_re, y_im) = (a.re + b.re, a.im - b.im, a.im + b.im, a.re - b.re);
                power[2 * pair] = 0.25 * (x_re * x_re + x_im * x_im);
                power[2 * pair + 1] = 0.25 * (y_re * y_re + y_im * y_im);
            }
        }
    }
}

simd_fn! {
    /// Writes the filtered energies to these columns of `out` `[filters, frames]`; returns their maximum.
    fn filter<I>(
        filters: &[Filter],
        power: &[[f32; LANES]],
        columns: Range<usize>,
        out: &mut [f32],
        frames: usize,
    ) -> f32 {
        let mut largest = [0.0f32; LANES];
        for (filter, row) in filters.iter().zip(out.chunks_exact_mut(frames.max(1))) {
            let mut energy = [0.0f32; LANES];
            for (weight, power) in filter.weights.iter().zip(&power[filter.start..]) {
                for (energy, power) in energy.iter_mut().zip(power) {
                    *energy += weight * power;
                }
            }
            for (largest, energy) in largest.iter_mut().zip(energy) {
                *largest = larger(*largest, energy);
            }
            row[columns.clone()].copy_from_slice(&energy[..columns.len()]);
        }
        largest[..columns.len()].iter().copied().fold(0.0, larger)
    }
}

simd_fn! {
    /// Computes `(log10(max(x, floor)) + offset) · scale` of each value in place, for a normal `floor > 0`, to about
    /// one unit in the last place of the logarithm.
    pub fn log10_above<I>(floor: f32, offset: f32, scale: f32, values: &mut [f32]) {
        for value in values {
            *value = (log10(larger(*value, floor)) + offset) * scale;
        }
    }
}

/// Returns the larger of two finite numbers; unlike `f32::max` it is one instruction, because it does not handle NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Vectorisable `log10`: the library's is a call per value, and this is straight-line arithmetic. It writes `x = 2^e ·
/// m` with `m` in `[√½, √2)`, and computes `ln m` by the polynomial of the Cephes library.
#[inline(always)]
fn log10(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let exponent = (x.to_bits().wrapping_sub(SQRT_HALF) as i32) >> 23;
    let z = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32)) - 1.0;

    let mut p = 7.037_683_6e-2;
    for c in [
        -1.151_461e-1, 1.167_699_9e-1, -1.242_014_1e-1, 1.424_932_3e-1, -1.666_805_8e-1, 2.000_071_5e-1,
        -2.499_999_4e-1, 3.333_333e-1,
    ] {
        p = p * z + c;
    }
    let ln_m = z - 0.5 * z * z + z * z * z * p;
    ln_m * std::f32::consts::LOG10_E + exponent as f32 * std::f32::consts::LOG10_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;
    use std::f64::consts::TAU;

    const FRAME: usize = 40;
    const HOP: usize = 16;

    fn bank() -> FilterBank {
        let window = (0..FRAME).map(|i| 0.5 - 0.5 * (TAU * i as f64 / FRAME as f64).cos() as f32).collect();
        let filter = |start: usize, weights: &[f32]| Filter { start, weights: weights.into() };
        FilterBank::new(window, HOP, vec![filter(0, &[1.0]), filter(3, &[0.5, 1.0, 0.25]), filter(20, &[2.0])])
    }

    /// Energy by the definition of the transform, in double precision.
    fn energy(bank: &FilterBank, filter: &Filter, frame: &[f32]) -> f64 {
        let power = |k: usize| {
            let turn = |n: usize| TAU * (k * n % FRAME) as f64 / FRAME as f64;
            let sample = |n: usize| f64::from(bank.window[n]) * f64::from(frame[n]);
            let re: f64 = (0..FRAME).map(|n| sample(n) * turn(n).cos()).sum();
            let im: f64 = (0..FRAME).map(|n| sample(n) * turn(n).sin()).sum();
            re * re + im * im
        };
        filter.weights.iter().enumerate().map(|(i, weight)| f64::from(*weight) * power(filter.start + i)).sum()
    }

    #[test]
    fn energies_are_those_of_the_definition() {
        let bank = bank();
        let samples = random(bank.span(), 1);
        let mut out = vec![f32::NAN; bank.filters() * LANES];
        let largest = bank.energies(&samples, &mut Scratch::default(), 0..LANES, &mut out, LANES);
        for (filter, row) in bank.filters.iter().zip(out.chunks_exact(LANES)) {
            for (t, value) in row.iter().enumerate() {
                let exact = energy(&bank, filter, &samples[t * HOP..][..FRAME]);
                assert!((f64::from(*value) - exact).abs() < 1e-5 * exact + 1e-6, "{t}: {value} {exact}");
            }
        }
        assert_eq!(largest, out.iter().copied().fold(0.0, f32::max));
    }

    #[test]
    fn only_the_columns_asked_for_are_written_and_judged() {
        let bank = bank();
        let mut samples = random(bank.span(), 2);
        samples[6 * HOP + FRAME..].fill(1e3);
        let (mut out, mut scratch) = (vec![-1.0; bank.filters() * 9], Scratch::default());
        let largest = bank.energies(&samples, &mut scratch, 2..7, &mut out, 9);
        for row in out.chunks_exact(9) {
            assert!(
                row[..2].iter().chain(&row[7..]).all(|value| *value == -1.0) && row[2..7].iter().all(|v| *v >= 0.0)
            );
        }
        assert_eq!(largest, out.iter().copied().fold(0.0, f32::max));
        assert!(largest < 1e4);
    }

    #[test]
    fn the_logarithm_is_exact_to_float_precision() {
        for i in 0..200_000 {
            let x = 10f64.powf(-10.0 + 16.0 * f64::from(i) / 200_000.0) as f32;
            let exact = (f64::from(x).log10() + 4.0) / 4.0;
            let mut value = [x];
            log10_above(1e-10, 4.0, 0.25, &mut value);
            assert!((f64::from(value[0]) - exact).abs() < 4e-7, "{x}");
        }
        let mut below = [0.0, 1e-12, 1e-3];
        log10_above(1e-2, 0.0, 1.0, &mut below);
        assert!(below.iter().all(|value| (value + 2.0).abs() < 1e-6));
    }
}
