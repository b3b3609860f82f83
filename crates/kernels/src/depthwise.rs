//! Convolution of each channel by itself over time (depthwise), channels last.

use crate::simd::{Isa, simd_fn};
use crate::vector::{Uninit, written};
use rayon::prelude::*;

/// Shape of a depthwise convolution of as many outputs as inputs: half a kernel of zeros is before and after a sequence.
#[derive(Clone, Copy, Debug)]
pub struct DepthwiseConv1d {
    /// Number of sequences.
    pub batch: usize,
    /// Positions per sequence.
    pub time: usize,
    /// Channels.
    pub channels: usize,
    /// Kernel size in positions; odd.
    pub kernel: usize,
}

/// Number of channels that are summed at the same time: four registers of AVX2.
const LANES: usize = 32;

impl DepthwiseConv1d {
    /// Convolves `x`, `[batch, time, channels]`, to the same shape. `weight` is `[channels, kernel]`.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub fn forward(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        self.apply(x, &self.by_tap(weight))
    }

    /// Returns the gradient of `x` from that of the output: its convolution by the reversed kernel.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub fn backward_x(&self, dy: &[f32], weight: &[f32]) -> Vec<f32> {
        let taps: Vec<f32> = self.by_tap(weight).chunks(self.channels.max(1)).rev().flatten().copied().collect();
        self.apply(dy, &taps)
    }

    /// Returns the gradient of the weight.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub fn backward_weight(&self, dy: &[f32], x: &[f32]) -> Vec<f32> {
        self.check(x);
        self.check(dy);
        let (channels, length) = (self.channels, self.time * self.channels);
        let mut taps = vec![0.0; self.kernel * channels];
        taps.par_chunks_mut(channels.max(1)).enumerate().for_each(|(tap, sums)| {
            for (x, dy) in x.chunks_exact(length.max(1)).zip(dy.chunks_exact(length.max(1))) {
                let (skipped, ahead) = (self.half().saturating_sub(tap), tap.saturating_sub(self.half()));
                if skipped.max(ahead) < self.time {
                    add_products(&x[ahead * channels..], &dy[skipped * channels..], sums);
                }
            }
        });
        (0..channels).flat_map(|c| taps[c..].iter().step_by(channels).copied()).collect()
    }

    #[allow(unsafe_code)]
    fn apply(&self, x: &[f32], taps: &[f32]) -> Vec<f32> {
        self.check(x);
        let (shape, length) = (*self, self.time * self.channels);
        // SAFETY: `convolve` writes each row completely.
        unsafe {
            written(x.len(), |y| {
                y.par_chunks_mut(self.channels.max(1)).enumerate().for_each(|(row, y)| {
                    let (sequence, at) = (row / self.time, row % self.time);
                    convolve(&shape, &x[sequence * length..][..length], taps, at, y);
                });
            })
        }
    }

    /// Reorders `[channels, kernel]` to `[kernel, channels]`.
    fn by_tap(&self, weight: &[f32]) -> Vec<f32> {
        assert_eq!(weight.len(), self.channels * self.kernel, "the weight is [channels, kernel]");
        (0..self.kernel).flat_map(|tap| weight[tap..].iter().step_by(self.kernel).copied()).collect()
    }

    fn half(&self) -> usize {
        self.kernel / 2
    }

    fn check(&self, x: &[f32]) {
        assert!(self.kernel % 2 == 1, "a kernel of {} positions has no middle", self.kernel);
        assert_eq!(x.len(), self.batch * self.time * self.channels, "the input is [batch, time, channels]");
    }
}

simd_fn! {
    /// Computes the outputs of all channels at position `at` of one sequence.
    fn convolve<S>(shape: &DepthwiseConv1d, x: &[f32], taps: &[f32], at: usize, y: &mut [Uninit]) {
        let (channels, half) = (shape.channels, shape.half());
        let (first, end) = (half.saturating_sub(at), shape.kernel.min(shape.time + half - at));
        let x = &x[(at + first - half) * channels..];
        let taps = &taps[first * channels..end * channels];
        let whole = channels / LANES * LANES;
        (0..whole).step_by(LANES).for_each(|from| strip::<S, LANES>(x, taps, channels, from, y));
        (whole..channels).for_each(|from| strip::<S, 1>(x, taps, channels, from, y));
    }
}

/// Computes the outputs of the `N` channels that begin at `from`.
#[inline(always)]
fn strip<S: Isa, const N: usize>(x: &[f32], taps: &[f32], channels: usize, from: usize, y: &mut [Uninit]) {
    let mut sums = [0.0_f32; N];
    for (x, tap) in x.chunks_exact(channels).zip(taps.chunks_exact(channels)) {
        let (x, tap) = (&x[from..from + N], &tap[from..from + N]);
        for lane in 0..N {
            sums[lane] = S::fma(x[lane], tap[lane], sums[lane]);
        }
    }
    y[from..from + N].write_copy_of_slice(&sums);
}

simd_fn! {
    /// Adds to `sums`, `[channels]`, the products of `a` and `b`, `[rows, channels]` each, as far as both go.
    fn add_products<S>(a: &[f32], b: &[f32], sums: &mut [f32]) {
        let channels = sums.len();
        for (a, b) in a.chunks_exact(channels).zip(b.chunks_exact(channels)) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum = S::fma(*a, *b, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
    use proptest::prelude::*;

    fn by_definition(shape: &DepthwiseConv1d, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let DepthwiseConv1d { batch, time, channels, kernel } = *shape;
        let mut out = Vec::new();
        for (sequence, t, c) in
            (0..batch * time * channels).map(|i| (i / channels / time, i / channels % time, i % channels))
        {
            let met =
                (0..kernel).filter_map(|tap| Some((tap, (t + tap).checked_sub(kernel / 2).filter(|at| *at < time)?)));
            out.push(met.map(|(tap, at)| weight[c * kernel + tap] * x[(sequence * time + at) * channels + c]).sum());
        }
        out
    }

    proptest! {
        #[test]
        fn equals_its_definition_and_its_gradients_are_the_derivatives(
            (batch, time, channels, half) in (1_usize..3, 1_usize..9, 1_usize..5, 0_usize..5),
        ) {
            let shape = DepthwiseConv1d { batch, time, channels, kernel: 2 * half + 1 };
            let (x, weight) = (random(batch * time * channels, 1), random(channels * shape.kernel, 2));
            let (wide_x, wide_weight) = (wide(&x), wide(&weight));
            assert_close(&shape.forward(&x, &weight), &by_definition(&shape, &wide_x, &wide_weight), 1e-5);

            let dy = random(x.len(), 3);
            let loss = |y: Vec<f64>| y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
            let expected = numeric_gradient(&wide_x, |x| loss(by_definition(&shape, x, &wide_weight)));
            assert_close(&shape.backward_x(&dy, &weight), &expected, 1e-5);
            let expected = numeric_gradient(&wide_weight, |w| loss(by_definition(&shape, &wide_x, w)));
            assert_close(&shape.backward_weight(&dy, &x), &expected, 1e-5);
        }
    }

    #[test]
    fn wide_rows_are_convolved_as_narrow_ones() {
        let shape = DepthwiseConv1d { batch: 2, time: 40, channels: 2 * LANES + 3, kernel: 31 };
        let (x, weight) = (random(2 * 40 * shape.channels, 1), random(shape.channels * 31, 2));
        assert_close(&shape.forward(&x, &weight), &by_definition(&shape, &wide(&x), &wide(&weight)), 1e-5);
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let shape = DepthwiseConv1d { batch: 3, time: 101, channels: 33, kernel: 15 };
        let (x, weight, dy) = (random(3 * 101 * 33, 1), random(33 * 15, 2), random(3 * 101 * 33, 3));
        let (one, three) =
            on_threads(|| (shape.forward(&x, &weight), shape.backward_x(&dy, &weight), shape.backward_weight(&dy, &x)));
        assert_eq!(one, three);
    }
}
