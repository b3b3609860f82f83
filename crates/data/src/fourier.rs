//! Fourier transforms of real signals; their tables are computed once per thread.

use std::cell::RefCell;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftPlanner};

thread_local! {
    static PLANNER: RefCell<RealFftPlanner<f32>> = RefCell::new(RealFftPlanner::new());
    static COMPLEX: RefCell<FftPlanner<f32>> = RefCell::new(FftPlanner::new());
}

fn forward(length: usize) -> Arc<dyn RealToComplex<f32>> {
    PLANNER.with_borrow_mut(|planner| planner.plan_fft_forward(length))
}

fn inverse(length: usize) -> Arc<dyn ComplexToReal<f32>> {
    PLANNER.with_borrow_mut(|planner| planner.plan_fft_inverse(length))
}

/// Returns the signal of `length` samples with this spectrum of `length / 2 + 1` bins, without the factor 1/length.
pub fn signal(spectrum: &mut [Complex<f32>], length: usize) -> Vec<f32> {
    // The first and last bin of a real signal's spectrum are real. With that and the right sizes, the transform cannot
    // fail.
    if let [first, .., last] = spectrum {
        (first.im, last.im) = (0.0, 0.0);
    }
    let inverse = inverse(length);
    let mut signal = inverse.make_output_vec();
    let done = inverse.process(spectrum, &mut signal);
    debug_assert!(done.is_ok(), "{done:?}");
    signal
}

/// Returns the spectrum of a signal padded with silence to `length` samples.
pub fn spectrum(signal: &[f32], length: usize) -> Vec<Complex<f32>> {
    let forward = forward(length);
    let mut input = signal.to_vec();
    input.resize(length, 0.0);
    let mut spectrum = forward.make_output_vec();
    let done = forward.process(&mut input, &mut spectrum);
    debug_assert!(done.is_ok(), "{done:?}");
    spectrum
}

/// Returns the analytic signal: its real part is the signal, its imaginary part the signal shifted by a quarter of a
/// turn at every frequency.
pub fn analytic(signal: &[f32]) -> Vec<Complex<f32>> {
    let length = signal.len().next_power_of_two().max(2);
    let mut spectrum = spectrum(signal, length);
    let scale = 1.0 / length as f32;
    let last = spectrum.len() - 1;
    for (n, bin) in spectrum.iter_mut().enumerate() {
        // Negative frequencies are removed and positive ones doubled; the first and last bin have no counterpart.
        *bin *= if n == 0 || n == last { scale } else { 2.0 * scale };
    }
    spectrum.resize(length, Complex::default());
    complex_inverse(length).process(&mut spectrum);
    spectrum.truncate(signal.len());
    spectrum
}

/// Padding between the end of a signal and its beginning where its whole spectrum is multiplied, in samples. A response
/// of up to this length, 256 ms at 16 kHz, does not wrap around to the beginning.
const MARGIN: usize = 4096;
/// Whole signals are padded to a multiple of this, so that the lengths of their transforms have small factors.
const MULTIPLE: usize = 1280;
/// Number of frequencies, from 0 to half the sample rate, at which a gain is computed; between them it is interpolated
/// linearly. They are 2 Hz apart at 16 kHz.
const GRID: usize = 4000;

/// Returns the transform length for a whole signal of `length` samples.
pub fn padded(length: usize) -> usize {
    (length + MARGIN).next_multiple_of(MULTIPLE)
}

/// Multiplies every bin of a spectrum by `gain`, a function of its frequency from 0 to 1, where 1 is half the sample
/// rate.
pub fn weigh(spectrum: &mut [Complex<f32>], gain: impl Fn(f64) -> f64) {
    let grid: Vec<f32> = (0..=GRID + 1).map(|n| gain(n as f64 / GRID as f64) as f32).collect();
    let step = GRID as f32 / spectrum.len().saturating_sub(1).max(1) as f32;
    for (n, bin) in spectrum.iter_mut().enumerate() {
        let at = n as f32 * step;
        let (below, share) = (at as usize, at.fract());
        *bin *= grid[below] * (1.0 - share) + grid[below + 1] * share;
    }
}

/// Filters a whole signal without delay. The gain is a function of frequency from 0 to 1, where 1 is half the sample
/// rate.
pub fn filter(audio: &mut [f32], gain: impl Fn(f64) -> f64) {
    let length = padded(audio.len());
    let mut spectrum = spectrum(audio, length);
    weigh(&mut spectrum, |frequency| gain(frequency) / length as f64);
    let filtered = signal(&mut spectrum, length);
    audio.copy_from_slice(&filtered[..audio.len()]);
}

/// Returns the signal with another number of samples over the same time, band-limited to the lower of both rates.
pub fn resample(audio: &[f32], length: usize) -> Vec<f32> {
    let mut bins = spectrum(audio, audio.len());
    bins.resize(length / 2 + 1, Complex::default());
    let scale = 1.0 / audio.len() as f32;
    let mut resampled = signal(&mut bins, length);
    resampled.iter_mut().for_each(|sample| *sample *= scale);
    resampled
}

/// Returns a complex forward transform of this length, without a factor.
pub fn complex_forward(length: usize) -> Arc<dyn Fft<f32>> {
    COMPLEX.with_borrow_mut(|planner| planner.plan_fft_forward(length))
}

/// Returns a complex inverse transform of this length, without a factor.
pub fn complex_inverse(length: usize) -> Arc<dyn Fft<f32>> {
    COMPLEX.with_borrow_mut(|planner| planner.plan_fft_inverse(length))
}

/// Convolves `audio` with `taps` by overlap-add; returns `audio.len() + taps.len() - 1` samples.
pub fn convolve(audio: &[f32], taps: &[f32]) -> Vec<f32> {
    // Blocks are about three times as long as the response: twice that length would save little and not fit the CPU
    // cache.
    let length = (4 * taps.len()).next_power_of_two().max(4096);
    let block = length - taps.len() + 1;
    let response = spectrum(taps, length);
    let mut out = vec![0.0; audio.len() + taps.len().saturating_sub(1)];
    for (nth, piece) in audio.chunks(block).enumerate() {
        let mut product = spectrum(piece, length);
        for (bin, response) in product.iter_mut().zip(&response) {
            *bin *= response / length as f32;
        }
        for (out, value) in out[nth * block..].iter_mut().zip(signal(&mut product, length)) {
            *out += value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(turns: f64, length: usize) -> Vec<f32> {
        (0..length).map(|n| (std::f64::consts::TAU * turns * n as f64 / length as f64).cos() as f32).collect()
    }

    #[test]
    fn a_gain_acts_on_its_frequency_alone() {
        let (low, high) = (tone(1000.0, 16_000), tone(3000.0, 16_000));
        let mut audio: Vec<f32> = low.iter().zip(&high).map(|(a, b)| a + b).collect();
        filter(&mut audio, |frequency| if frequency < 0.25 { 1.0 } else { 0.5 });
        let expected = low.iter().zip(&high).map(|(a, b)| a + b / 2.0);
        let worst = audio.iter().zip(expected).map(|(a, b)| (a - b).abs()).skip(2000).take(12_000).fold(0.0, f32::max);
        assert!(worst < 0.01, "{worst}");
    }

    #[test]
    fn another_rate_is_the_same_tone() {
        let there = resample(&tone(700.0, 16_000), 8000);
        assert!(there.iter().zip(tone(700.0, 8000)).all(|(a, b)| (a - b).abs() < 1e-3));
        let back = resample(&there, 16_000);
        assert!(back.iter().zip(tone(700.0, 16_000)).all(|(a, b)| (a - b).abs() < 1e-3));
        assert!(resample(&tone(5000.0, 16_000), 8000).iter().all(|sample| sample.abs() < 1e-3));
    }

    #[test]
    fn convolution_in_blocks_is_convolution() {
        let wave =
            |n: usize, a: usize| -> Vec<f32> { (0..n).map(|i| ((i * i * a) % 97) as f32 / 97.0 - 0.5).collect() };
        for (length, taps) in [(1, 1), (10, 3), (9000, 1), (9001, 1500)] {
            let (audio, taps) = (wave(length, 7), wave(taps, 13));
            let mut expected = vec![0f64; audio.len() + taps.len() - 1];
            for (i, x) in audio.iter().enumerate() {
                for (out, h) in expected[i..].iter_mut().zip(&taps) {
                    *out += f64::from(*x) * f64::from(*h);
                }
            }
            let given = convolve(&audio, &taps);
            assert_eq!(given.len(), expected.len());
            let worst = given.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(worst < 2e-4, "{length}: {worst}");
        }
    }
}
