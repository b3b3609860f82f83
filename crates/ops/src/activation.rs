//! Element-wise operations: GELU and dropout.

use burn::tensor::{Distribution, Tensor, activation};

/// The exact GELU, `x · Φ(x)` with Φ through the error function (not the tanh approximation): what Whisper uses.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation::gelu(x)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    #[test]
    fn gelu_is_the_erf_form() {
        let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &device());
        // x · (1 + erf(x / √2)) / 2; the tanh form differs in the fourth digit.
        let expected = [-0.004_049_69, -0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7];
        assert_close(gelu(x), &expected, 1e-6);
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
