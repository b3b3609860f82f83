//! Element-wise operations: GELU and dropout.

use burn::tensor::{Device, Distribution, Tensor, TensorData, activation};
use rayon::prelude::*;

/// The exact GELU, `x · Φ(x)` with Φ through the error function (not the tanh approximation): what Whisper uses.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    // Flex evaluates `erf` one element at a time, in both passes: a third of a small model's training step.
    if x.device().inner() == Device::flex() { gelu_on_host(x) } else { activation::gelu(x) }
}

/// Zeroes each element with probability `p` and scales the rest by `1 / (1 - p)`.
///
/// Acts only on a device with autodiff, that is, in training; elsewhere it is the identity.
pub fn dropout<const D: usize>(x: Tensor<D>, p: f64) -> Tensor<D> {
    if p == 0.0 || !x.device().is_autodiff() {
        return x;
    }
    let keep = x.random_like(Distribution::Bernoulli(1.0 - p));
    x * keep.mul_scalar(1.0 / (1.0 - p))
}

/// Value and derivative in one pass over host memory. With gradients, `y + (x - x.detach()) · y'` has the value `y`,
/// for the bracket is zero, and the gradient `y'`: one product in the graph instead of GELU's dozen.
fn gelu_on_host<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let device = x.device();
    let shape = x.dims();
    let (dtype, tracked) = (x.dtype(), device.is_autodiff());
    let plain = if tracked { x.clone().detach().inner() } else { x.clone() };
    let input: Vec<f32> = plain.clone().try_into_vec_as().expect("activations are floats");
    let mut value = vec![0.0_f32; input.len()];
    let tensor = |data: Vec<f32>| {
        let device = device.clone().inner();
        Tensor::<D>::from_data(TensorData::new(data, shape), &device).cast(dtype)
    };
    // Chunks that fit the cache, whatever the number of threads: the values do not depend on it.
    const CHUNK: usize = 1 << 14;
    if !tracked {
        value.par_chunks_mut(CHUNK).zip(input.par_chunks(CHUNK)).for_each(|(y, x)| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = gelu_and_slope(*x).0);
        });
        return tensor(value);
    }
    let mut slope = vec![0.0_f32; input.len()];
    value.par_chunks_mut(CHUNK).zip(slope.par_chunks_mut(CHUNK)).zip(input.par_chunks(CHUNK)).for_each(
        |((y, slope), x)| {
            for ((y, slope), x) in y.iter_mut().zip(slope).zip(x) {
                (*y, *slope) = gelu_and_slope(*x);
            }
        },
    );
    let zero = x - Tensor::from_inner(plain);
    zero * Tensor::from_inner(tensor(slope)) + Tensor::from_inner(tensor(value))
}

/// `x Φ(x)` and its derivative `Φ(x) + x φ(x)`, without branches so that compilers vectorise it.
///
/// Φ comes from the error function by Abramowitz and Stegun's 7.1.26, whose error is below 1.5e-7; `exp(-x²/2)` serves it
/// and φ alike.
#[inline(always)]
fn gelu_and_slope(x: f32) -> (f32, f32) {
    const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let e = exp_of_negative(-0.5 * x * x);
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    let erf = (1.0 - poly * e).copysign(x);
    let phi = 0.5 * (1.0 + erf);
    (x * phi, phi + x * e * FRAC_1_SQRT_2PI)
}

/// `exp(x)` for `x ≤ 0`, to 2e-7 relative; below -87, where f32 ends, it stays at `exp(-87)`.
///
/// `x = n ln 2 + r` with `|r| ≤ ln 2 / 2`: a polynomial for `exp(r)`, `n` into the exponent's bits.
#[inline(always)]
fn exp_of_negative(x: f32) -> f32 {
    // Adding and subtracting 1.5 · 2²³ rounds to the nearest integer in any vector instruction set.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    // ln 2 in two parts, the first with trailing zeros, keeps r exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.0 + r * (1.0 + r * (0.5 + r * (0.166_666_67 + r * (0.041_666_6 + r * (0.008_333_5 + r * 0.001_39)))));
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    /// Values and gradients of `f` at `x`.
    fn with_gradient(x: &[f32], f: impl Fn(Tensor<1>) -> Tensor<1>) -> (Tensor<1>, Vec<f32>) {
        let leaf = Tensor::<1>::from_floats(x, &device().autodiff()).require_grad();
        let y = f(leaf.clone());
        let weight = Tensor::<1>::from_floats(x, &device().autodiff()).cos();
        let gradient = leaf.grad(&(y.clone() * weight).sum().backward()).expect("a gradient");
        (y.inner(), gradient.try_into_vec_as().expect("floats"))
    }

    #[test]
    fn gelu_is_the_erf_form() {
        let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &device());
        // x · (1 + erf(x / √2)) / 2; the tanh form differs in the fourth digit.
        let expected = [-0.004_049_69, -0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7];
        assert_close(gelu(x), &expected, 1e-6);
    }

    #[test]
    fn gelu_and_its_gradient_equal_burns() {
        let x: Vec<f32> = (-4000..=4000).map(|i| i as f32 * 0.003).chain([-100.0, -1e-20, 1e-20, 100.0]).collect();
        let (value, gradient) = with_gradient(&x, gelu);
        let (expected, expected_gradient) = with_gradient(&x, activation::gelu);
        let expected: Vec<f32> = expected.try_into_vec_as().expect("floats");
        assert_close(value.clone(), &expected, 2e-6);
        assert_close(Tensor::<1>::from_floats(gradient.as_slice(), &device()), &expected_gradient, 2e-6);
        let plain = gelu(Tensor::<1>::from_floats(x.as_slice(), &device()));
        assert_close(plain, &value.try_into_vec_as::<f32>().expect("floats"), 0.0);
    }

    #[test]
    fn dropout_keeps_the_mean_in_training_and_is_absent_in_inference() {
        let x = Tensor::<1>::ones([20_000], &device());
        assert_close(dropout(x.clone(), 0.3).mean(), &[1.0], 0.0);
        let dropped = dropout(x.autodiff(), 0.3);
        let zeros = dropped.clone().equal_scalar(0.0).int().float().mean().into_scalar::<f32>();
        assert!((zeros - 0.3).abs() < 0.02, "{zeros} of the elements were dropped");
        assert_close(dropped.mean(), &[1.0], 0.03);
    }
}
