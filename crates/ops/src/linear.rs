//! Affine maps and embedding look-ups.

use burn::tensor::{Int, Tensor, module};

/// `x · weightᵀ + bias`.
///
/// # Shapes
/// - `x`: `[.., in]`; `weight`: `[out, in]`; `bias`: `[out]`
/// - output: `[.., out]`
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let mut shape = x.dims();
    let [d_out, d_in] = weight.dims();
    let rows = shape[..D - 1].iter().product::<usize>();
    // One matrix product over all rows: a batched product would read the weight once per sample.
    let mut y = x.reshape([rows, d_in]).matmul(weight.transpose());
    if let Some(bias) = bias {
        y = y + bias.unsqueeze();
    }
    shape[D - 1] = d_out;
    y.reshape(shape)
}

/// Rows of `weight` by index.
///
/// # Shapes
/// - `weight`: `[vocabulary, d_model]`; `ids`: `[batch, time]`
/// - output: `[batch, time, d_model]`
pub fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    module::embedding(weight, ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};

    #[test]
    fn linear_uses_the_out_in_layout() {
        let x = Tensor::<3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device());
        let weight = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device());
        let bias = Tensor::<1>::from_floats([0.0, 0.0, 10.0], &device());
        let y = linear(x, weight, Some(bias));
        assert_eq!(y.dims(), [2, 1, 3]);
        assert_close(y, &[1.0, 2.0, 13.0, 3.0, 4.0, 17.0], 1e-6);
    }

    #[test]
    fn embedding_picks_rows() {
        let weight = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device());
        let ids = Tensor::<2, Int>::from_ints([[1, 0, 1]], &device());
        assert_close(embedding(weight, ids), &[3.0, 4.0, 1.0, 2.0, 3.0, 4.0], 0.0);
    }
}
