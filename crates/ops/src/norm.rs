//! Layer normalisation.

use burn::tensor::{DType, Tensor};

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts it.
///
/// The statistics are computed in f32 whatever the input's type: a bf16 sum over a thousand channels has no digits left.
///
/// # Shapes
/// - `x`, output: `[.., d_model]`
/// - `weight`, `bias`: `[d_model]`
pub fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let dtype = x.dtype();
    let x = if dtype == DType::F32 { x } else { x.cast(DType::F32) };
    let centred = x.clone() - x.mean_dim(D - 1);
    let variance = centred.clone().square().mean_dim(D - 1);
    let normal = centred / variance.add_scalar(epsilon).sqrt();
    let normal = if dtype == DType::F32 { normal } else { normal.cast(dtype) };
    normal * weight.unsqueeze() + bias.unsqueeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    #[test]
    fn normalises_each_row() {
        let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 0.0, 0.0]], &device());
        let weight = Tensor::<1>::from_floats([1.0, 2.0, 1.0, 1.0], &device());
        let bias = Tensor::<1>::from_floats([0.0, 0.0, 0.0, 5.0], &device());
        // Mean 3, population variance 3.5.
        let s = 3.5_f32.sqrt();
        let expected = [-2.0 / s, -2.0 / s, 0.0, 3.0 / s + 5.0, 0.0, 0.0, 0.0, 5.0];
        assert_close(layer_norm(x, weight, bias, 1e-5), &expected, 1e-4);
    }

    #[test]
    fn half_precision_input_keeps_f32_statistics() {
        // 4096 + small steps: in bf16 sums the mean of these rows would be off by whole units.
        let rows: Vec<f32> = (0..512).map(|i| if i % 2 == 0 { 4080.0 } else { 4112.0 }).collect();
        let x = Tensor::<1>::from_floats(rows.as_slice(), &device()).reshape([1, 512]).cast(DType::BF16);
        let one = |v: f32| Tensor::<1>::full([512], v, &device()).cast(DType::BF16);
        let y = layer_norm(x, one(1.0), one(0.0), 1e-5).cast(DType::F32);
        let expected: Vec<f32> = (0..512).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
        assert_close(y, &expected, 1e-2);
    }
}
