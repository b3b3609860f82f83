//! One-dimensional convolution over time, channels last.
//!
//! With channels last and the input padded, the `kernel` rows under one output are contiguous: the matrix of all
//! windows is the input itself with overlapping rows, so a convolution is one matrix product and nothing is unrolled.

use crate::linear::backward_bias;
use crate::matrix::{Matrix, Threads, add_product};
use crate::transpose::transposed;
use crate::vector::{assume_written, written};
use rayon::prelude::*;

/// Shape of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv1d {
    /// Number of sequences.
    pub batch: usize,
    /// Input positions per sequence.
    pub time: usize,
    /// Input channels.
    pub channels_in: usize,
    /// Output channels.
    pub channels_out: usize,
    /// Kernel size in positions.
    pub kernel: usize,
    /// Distance of outputs in positions.
    pub stride: usize,
    /// Number of zeros before and after a sequence.
    pub padding: usize,
}

impl Conv1d {
    /// Number of output positions per sequence.
    ///
    /// # Panics
    /// If the padded sequence is shorter than the kernel.
    pub fn time_out(&self) -> usize {
        assert!(self.padded() >= self.kernel, "{} positions are fewer than a kernel of {}", self.padded(), self.kernel);
        (self.padded() - self.kernel) / self.stride + 1
    }

    /// Convolves `x`, `[batch, time, channels_in]`, to `[batch, time_out, channels_out]`. `weight` is `[channels_out,
    /// channels_in, kernel]`, `bias` `[channels_out]`.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    #[allow(unsafe_code)]
    pub fn forward(&self, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
        assert_eq!(bias.len(), self.channels_out, "the bias is [channels_out]");
        let (weight, x) = (self.by_tap(weight), self.pad(x));
        let weight = Matrix::new(&weight, self.channels_out, self.window()).transposed();
        let length = self.time_out() * self.channels_out;
        // SAFETY: every sequence's rows are written with the bias before the product is added to them.
        unsafe {
            written(self.batch * length, |out| {
                // For a batch of one, the product itself is parallel.
                out.par_chunks_mut(length).zip(x.par_chunks(self.padded() * self.channels_in)).for_each(|(out, x)| {
                    for row in out.chunks_exact_mut(self.channels_out) {
                        row.write_copy_of_slice(bias);
                    }
                    let out = assume_written(out);
                    add_product(out, self.channels_out, self.windows(x), weight, 1.0, Threads::All);
                });
            })
        }
    }

    /// Returns the gradient of `x` from that of the output.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub fn backward_x(&self, dy: &[f32], weight: &[f32]) -> Vec<f32> {
        let weight = self.by_tap(weight);
        let (time_out, c_in, c_out) = (self.time_out(), self.channels_in, self.channels_out);
        assert_eq!(dy.len(), self.batch * time_out * c_out, "the gradient is shaped as the output");
        let mut dx = vec![0.0; self.batch * self.time * c_in];
        dx.par_chunks_mut(self.time * c_in).zip(dy.par_chunks(time_out * c_out)).for_each(|(dx, dy)| {
            let mut padded = vec![0.0; self.padded() * c_in];
            for tap in 0..self.kernel {
                // Windows overlap between taps, not within one.
                let rows = &mut padded[tap * c_in..];
                let weight = Matrix::strided(&weight[tap * c_in..], c_out, c_in, self.window());
                let dy = Matrix::new(dy, time_out, c_out);
                add_product(rows, self.stride * c_in, dy, weight, 1.0, Threads::All);
            }
            dx.copy_from_slice(&padded[self.padding * c_in..][..self.time * c_in]);
        });
        dx
    }

    /// Returns the gradients of weight and bias.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub fn backward_parameters(&self, dy: &[f32], x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let x = self.pad(x);
        let (time_out, c_out, window) = (self.time_out(), self.channels_out, self.window());
        assert_eq!(dy.len(), self.batch * time_out * c_out, "the gradient is shaped as the output");
        let mut by_tap = vec![0.0; c_out * window];
        for (x, dy) in x.chunks(self.padded() * self.channels_in).zip(dy.chunks(time_out * c_out)) {
            let dy = Matrix::new(dy, time_out, c_out).transposed();
            add_product(&mut by_tap, window, dy, self.windows(x), 1.0, Threads::All);
        }
        (self.by_channel(&by_tap), backward_bias(dy, c_out))
    }

    fn padded(&self) -> usize {
        self.time + 2 * self.padding
    }

    /// Number of elements under one output.
    fn window(&self) -> usize {
        self.kernel * self.channels_in
    }

    fn windows<'x>(&self, padded: &'x [f32]) -> Matrix<'x> {
        Matrix::strided(padded, self.time_out(), self.window(), self.stride * self.channels_in)
    }

    fn pad(&self, x: &[f32]) -> Vec<f32> {
        let (length, c_in) = (self.time * self.channels_in, self.channels_in);
        assert_eq!(x.len(), self.batch * length, "the input is [batch, time, channels_in]");
        let mut out = vec![0.0; self.batch * self.padded() * c_in];
        for (out, x) in out.chunks_mut(self.padded() * c_in).zip(x.chunks(length)) {
            out[self.padding * c_in..][..length].copy_from_slice(x);
        }
        out
    }

    /// Reorders `[channels_out, channels_in, kernel]` to `[channels_out, kernel, channels_in]`, the order of a window.
    fn by_tap(&self, weight: &[f32]) -> Vec<f32> {
        assert_eq!(
            weight.len(),
            self.channels_out * self.window(),
            "the weight is [channels_out, channels_in, kernel]"
        );
        exchange(weight, self.channels_in, self.kernel)
    }

    fn by_channel(&self, weight: &[f32]) -> Vec<f32> {
        exchange(weight, self.kernel, self.channels_in)
    }
}

/// Reorders `[.., rows, columns]` to `[.., columns, rows]`.
fn exchange(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    x.chunks(rows * columns).flat_map(|x| transposed(x, rows, columns, columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, wide};
    use proptest::prelude::*;

    fn by_definition(shape: &Conv1d, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let mut out = Vec::new();
        for sequence in x.chunks(shape.time * shape.channels_in) {
            for t in 0..shape.time_out() {
                for o in 0..shape.channels_out {
                    let mut sum = bias[o];
                    for tap in 0..shape.kernel {
                        let Some(at) = (t * shape.stride + tap).checked_sub(shape.padding) else { continue };
                        for c in (0..shape.channels_in).filter(|_| at < shape.time) {
                            let w = weight[(o * shape.channels_in + c) * shape.kernel + tap];
                            sum += w * sequence[at * shape.channels_in + c];
                        }
                    }
                    out.push(sum);
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn equals_its_definition_and_its_gradients_are_the_derivatives(
            (batch, time, c_in, c_out) in (1_usize..3, 3_usize..9, 1_usize..5, 1_usize..5),
            (kernel, stride, padding) in (1_usize..4, 1_usize..3, 0_usize..2),
        ) {
            let shape = Conv1d { batch, time, channels_in: c_in, channels_out: c_out, kernel, stride, padding };
            let (x, weight, bias) = (random(batch * time * c_in, 1), random(c_out * c_in * kernel, 2), random(c_out, 3));
            let (wide_x, wide_weight, wide_bias) = (wide(&x), wide(&weight), wide(&bias));
            let expected = by_definition(&shape, &wide_x, &wide_weight, &wide_bias);
            assert_close(&shape.forward(&x, &weight, &bias), &expected, 1e-5);

            let dy = random(expected.len(), 4);
            let loss = |y: Vec<f64>| y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
            let expected = numeric_gradient(&wide_x, |x| loss(by_definition(&shape, x, &wide_weight, &wide_bias)));
            assert_close(&shape.backward_x(&dy, &weight), &expected, 1e-5);
            let (d_weight, d_bias) = shape.backward_parameters(&dy, &x);
            let expected = numeric_gradient(&wide_weight, |w| loss(by_definition(&shape, &wide_x, w, &wide_bias)));
            assert_close(&d_weight, &expected, 1e-5);
            let expected = numeric_gradient(&wide_bias, |b| loss(by_definition(&shape, &wide_x, &wide_weight, b)));
            assert_close(&d_bias, &expected, 1e-5);
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let shape = Conv1d { batch: 3, time: 301, channels_in: 20, channels_out: 33, kernel: 3, stride: 2, padding: 1 };
        let (x, weight, bias) = (random(3 * 301 * 20, 1), random(33 * 20 * 3, 2), random(33, 3));
        let dy = random(3 * shape.time_out() * 33, 4);
        let (one, three) = on_threads(|| {
            let gradients = (shape.backward_x(&dy, &weight), shape.backward_parameters(&dy, &x));
            (shape.forward(&x, &weight, &bias), gradients)
        });
        assert_eq!(one, three);
    }
}
