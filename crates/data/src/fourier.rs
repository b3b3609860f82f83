//! Fourier transforms of real signals; their tables are made once a thread.

use std::cell::RefCell;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::FftPlanner;

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

/// The signal of `length` samples that has this spectrum of `length / 2 + 1` bins, without the factor 1/length.
pub(crate) fn signal(spectrum: &mut [Complex<f32>], length: usize) -> Vec<f32> {
    // A real signal has no phase at the ends of its spectrum; with that, and the sizes right, nothing is refused.
    if let [first, .., last] = spectrum {
        (first.im, last.im) = (0.0, 0.0);
    }
    let inverse = inverse(length);
    let mut signal = inverse.make_output_vec();
    let done = inverse.process(spectrum, &mut signal);
    debug_assert!(done.is_ok(), "{done:?}");
    signal
}

/// The spectrum of a signal padded with silence to `length` samples.
pub(crate) fn spectrum(signal: &[f32], length: usize) -> Vec<Complex<f32>> {
    let forward = forward(length);
    let mut input = signal.to_vec();
    input.resize(length, 0.0);
    let mut spectrum = forward.make_output_vec();
    let done = forward.process(&mut input, &mut spectrum);
    debug_assert!(done.is_ok(), "{done:?}");
    spectrum
}

/// The analytic signal: the signal itself, and as its imaginary part the same a quarter of a turn later at every
/// frequency.
pub(crate) fn analytic(signal: &[f32]) -> Vec<Complex<f32>> {
    let length = signal.len().next_power_of_two().max(2);
    let mut spectrum = spectrum(signal, length);
    let scale = 1.0 / length as f32;
    let last = spectrum.len() - 1;
    for (n, bin) in spectrum.iter_mut().enumerate() {
        // Negative frequencies go, and positive ones stand in for them; the ends have no counterpart.
        *bin *= if n == 0 || n == last { scale } else { 2.0 * scale };
    }
    spectrum.resize(length, Complex::default());
    COMPLEX.with_borrow_mut(|planner| planner.plan_fft_inverse(length)).process(&mut spectrum);
    spectrum.truncate(signal.len());
    spectrum
}

/// Convolves `audio` with `taps`: `audio.len() + taps.len() - 1` samples, by overlap and add.
pub(crate) fn convolve(audio: &[f32], taps: &[f32]) -> Vec<f32> {
    // Blocks some three times as long as the response: twice as long again saves little and leaves the cache.
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
