//! Power spectra of a block of frames, laid out so that what follows runs across frames.

use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::{FRAME, HOP};

/// Frames in a block. Sixteen keep its buffers (26 kB before the transform, 13 kB after) in the first-level cache.
pub(super) const LANES: usize = 16;
/// Frequencies in a spectrum, 0 to 8 kHz in steps of 40 Hz.
pub(super) const BINS: usize = FRAME / 2 + 1;

/// Audio seen as a window of `len` samples: silence after its end, mirrored beyond the window's edges.
pub(super) struct Padded<'a> {
    audio: &'a [f32],
    len: usize,
}

impl<'a> Padded<'a> {
    pub(super) fn new(audio: &'a [f32], len: usize) -> Self {
        Self { audio: &audio[..audio.len().min(len)], len }
    }

    /// Samples before the padding starts.
    pub(super) fn sounding(&self) -> usize {
        self.audio.len()
    }

    /// The sample at any index. Mirroring leaves the edge itself single, so it repeats every `2(len - 1)` samples.
    fn at(&self, index: isize) -> f32 {
        let period = 2 * self.len.saturating_sub(1).max(1);
        let index = index.rem_euclid(period as isize) as usize;
        let index = index.min(period - index);
        self.audio.get(index).copied().unwrap_or(0.0)
    }
}

/// Windowed Fourier transform of frames.
pub(super) struct Spectrum {
    window: Vec<f32>,
    fft: Arc<dyn Fft<f32>>,
}

/// Buffers that one thread uses again for every block.
pub(super) struct Scratch {
    /// Pairs of frames, one as the real and one as the imaginary part: `[LANES / 2, FRAME]`.
    pairs: Vec<Complex<f32>>,
    fft: Vec<Complex<f32>>,
    power: Vec<[f32; LANES]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { pairs: vec![Complex::default(); LANES / 2 * FRAME], fft: Vec::new(), power: vec![[0.0; LANES]; BINS] }
    }
}

impl Spectrum {
    pub(super) fn new() -> Self {
        let turn = std::f64::consts::TAU / FRAME as f64;
        Self {
            window: (0..FRAME).map(|i| (0.5 - 0.5 * (turn * i as f64).cos()) as f32).collect(),
            fft: FftPlanner::new().plan_fft_forward(FRAME),
        }
    }

    /// Power spectra of frames `first .. first + LANES`, as `[BINS][LANES]`.
    pub(super) fn power<'s>(&self, signal: &Padded<'_>, first: usize, scratch: &'s mut Scratch) -> &'s [[f32; LANES]] {
        for (pair, out) in scratch.pairs.chunks_exact_mut(FRAME).enumerate() {
            self.load_pair(signal, first + 2 * pair, out);
        }
        scratch.fft.resize(self.fft.get_inplace_scratch_len(), Complex::default());
        self.fft.process_with_scratch(&mut scratch.pairs, &mut scratch.fft);
        for (pair, z) in scratch.pairs.chunks_exact(FRAME).enumerate() {
            split_pair(z, 2 * pair, &mut scratch.power);
        }
        &scratch.power
    }

    /// Frames `frame` and `frame + 1` under the window, as real and imaginary part.
    fn load_pair(&self, signal: &Padded<'_>, frame: usize, out: &mut [Complex<f32>]) {
        const SPAN: usize = FRAME + HOP;
        let start = (frame * HOP) as isize - (FRAME / 2) as isize;
        let inside = usize::try_from(start).ok().and_then(|start| signal.audio.get(start..start + SPAN));
        let mut edge = [0.0; SPAN];
        let samples = inside.unwrap_or_else(|| {
            for (i, sample) in edge.iter_mut().enumerate() {
                *sample = signal.at(start + i as isize);
            }
            &edge
        });
        let frames = samples[..FRAME].iter().zip(&samples[HOP..]);
        for ((out, (re, im)), window) in out.iter_mut().zip(frames).zip(&self.window) {
            *out = Complex::new(re * window, im * window);
        }
    }
}

/// Separates the spectra of two real frames `x + iy` transformed as one, and keeps their powers.
///
/// A real signal's spectrum is its own mirror image conjugated, so with `a = Z[k]` and `b = conj(Z[-k])` the two are
/// `X = (a + b) / 2` and `Y = (a - b) / 2i`. Adding the amplitudes before squaring keeps a quiet frame beside a loud
/// one exact to 1e-7 of the loud one's amplitude, which is 1e-14 of its power; the result keeps 1e-8.
fn split_pair(z: &[Complex<f32>], lane: usize, power: &mut [[f32; LANES]]) {
    let mut put = |k: usize, a: Complex<f32>, b: Complex<f32>| {
        power[k][lane] = 0.25 * (a + b.conj()).norm_sqr();
        power[k][lane + 1] = 0.25 * (a - b.conj()).norm_sqr();
    };
    put(0, z[0], z[0]);
    let mirrored = z[1..BINS].iter().zip(z[BINS - 1..].iter().rev());
    for (k, (&a, &b)) in mirrored.enumerate() {
        put(k + 1, a, b);
    }
}
