//! Low-rank updates of a linear map, gated sample by sample.

use crate::linear;
use burn::tensor::Tensor;

/// `((x · aᵀ) ⊙ gates) · bᵀ`: the updates of many adapters of a linear map, each counted by its sample's gate.
///
/// # Shapes
/// - `x`: `[batch, .., in]`; `a`: `[ΣR, in]`; `b`: `[out, ΣR]`
/// - `gates`: `[batch, ΣR]`, each adapter's gate repeated over its rank and multiplied by its scale
/// - output: `[batch, .., out]`
pub fn lora_bank<const D: usize>(x: Tensor<D>, a: Tensor<2>, b: Tensor<2>, gates: Tensor<2>) -> Tensor<D> {
    let mut shape = x.dims();
    let (batch, d_in) = (shape[0], shape[D - 1]);
    let rows = shape[1..D - 1].iter().product::<usize>();
    let low = linear(x.reshape([batch, rows, d_in]), a, None) * gates.unsqueeze_dim(1);
    shape[D - 1] = b.dims()[0];
    linear(low, b, None).reshape(shape)
}
