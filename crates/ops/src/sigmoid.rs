//! Element-wise operations with a sigmoid: SiLU and the gated linear unit.

use crate::graph::differentiated;
use crate::host;
use burn::tensor::{Tensor, activation::sigmoid};

/// SiLU, `x · σ(x)`, also known as Swish. Only `x` is kept for the backward pass.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let dtype = x.dtype();
    let y = differentiated(host::f32(x), |x| {
        let y = x.clone() * sigmoid(x.clone());
        // σ + x σ (1 - σ).
        let backward = move |dy: Tensor<D>| {
            let gate = sigmoid(x.clone());
            let rest = gate.clone().neg().add_scalar(1.0);
            dy * gate * (x * rest).add_scalar(1.0)
        };
        (y, backward)
    });
    host::restored(y, dtype)
}

/// Gated linear unit (Dauphin et al., 2017): the first half of the last axis, times the sigmoid of the second. Only `x`
/// is kept for the backward pass.
///
/// # Shapes
/// - `x`: `[batch, time, 2 · width]`
/// - output: `[batch, time, width]`
pub fn glu(x: Tensor<3>) -> Tensor<3> {
    let dtype = x.dtype();
    let y = differentiated(host::f32(x), |x| {
        let [value, gate] = halves(x.clone());
        let backward = move |dy: Tensor<3>| {
            let [value, gate] = halves(x);
            let gate = sigmoid(gate);
            let d_value = dy * gate.clone();
            let d_gate = d_value.clone() * value * gate.neg().add_scalar(1.0);
            Tensor::cat(vec![d_value, d_gate], 2)
        };
        (value * sigmoid(gate), backward)
    });
    host::restored(y, dtype)
}

fn halves(x: Tensor<3>) -> [Tensor<3>; 2] {
    let width = x.dims()[2] / 2;
    [0, width].map(|from| x.clone().narrow(2, from, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, device};

    #[test]
    fn values_are_those_of_the_definitions() {
        let x = Tensor::<3>::from_floats([[[1.0, -2.0, 0.0, 3.0]]], &device());
        assert_close(silu(x.clone()), &[0.731_058_6, -0.238_405_84, 0.0, 2.857_722_4], 1e-6);
        assert_close(glu(x), &[0.5, -1.905_148_3], 1e-6);
    }

    #[test]
    fn gradients_are_those_that_burn_derives() {
        for half in [false, true] {
            let x = Inputs::default().scaled(4.0).half(half).tensor([2, 7, 10]);
            compare([x.clone()], |[x]| silu(x), |[x]| x.clone() * sigmoid(x));
            let derived = |[x]: [Tensor<3>; 1]| {
                let [value, gate] = halves(x);
                value * sigmoid(gate)
            };
            compare([x], |[x]| glu(x), derived);
        }
    }
}
