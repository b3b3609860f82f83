//! Low-rank updates of a linear map, gated per sample.

use crate::casts::kept_input;
use crate::host::{self, HostOp, apply, floats, fused, like, numbers, tensor};
use crate::linear::linear_as;
use crate::precision::lowered;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use undertone_kernels::lora as kernels;
use undertone_kernels::numbers::Numbers;

/// Returns `((x · aᵀ) ⊙ gates) · bᵀ`: the updates of many adapters of a linear map, each weighted by its sample's gate.
///
/// On the CPU a sample costs only the columns whose gate is not zero, in both passes. Only gates that need a gradient
/// cost the products of all columns, in the backward pass. So an adapter with gate zero has no influence on a sample,
/// not even by a NaN.
///
/// # Shapes
/// - `x`: `[batch, .., in]`; `a`: `[ΣR, in]`; `b`: `[out, ΣR]`
/// - `gates`: `[batch, ΣR]`, each adapter's gate repeated over its rank and multiplied by its scale
/// - output: `[batch, .., out]`
pub fn lora_bank<const D: usize>(x: Tensor<D>, a: Tensor<2>, b: Tensor<2>, gates: Tensor<2>) -> Tensor<D> {
    let dtype = x.dtype();
    host::restored(product(lowered(x), lowered(a), lowered(b), lowered(gates)), dtype)
}

fn product<const D: usize>(x: Tensor<D>, a: Tensor<2>, b: Tensor<2>, gates: Tensor<2>) -> Tensor<D> {
    if !fused(&x.device()) {
        return composed(x, a, b, gates);
    }
    let dtype = x.dtype();
    let [a, b, gates] = [a, b, gates].map(host::f32);
    host::restored(apply(LoraBank, [host::f32(x).into(), a.into(), b.into(), gates.into()]), dtype)
}

fn composed<const D: usize>(x: Tensor<D>, a: Tensor<2>, b: Tensor<2>, gates: Tensor<2>) -> Tensor<D> {
    let mut shape = x.dims();
    let (batch, d_in) = (shape[0], shape[D - 1]);
    let rows = shape[1..D - 1].iter().product::<usize>();
    let dtype = x.dtype();
    let low = linear_as(x.reshape([batch, rows, d_in]), a, None, dtype) * gates.unsqueeze_dim(1);
    shape[D - 1] = b.dims()[0];
    linear_as(low, b, None, dtype).reshape(shape)
}

#[derive(Clone, Debug)]
struct LoraBank;

/// Input and low-rank part if gradients need them, and the remaining tensors.
#[derive(Clone, Debug)]
struct SavedBank {
    x: Option<FlexTensor>,
    low: Option<FlexTensor>,
    a: FlexTensor,
    b: FlexTensor,
    gates: FlexTensor,
    x_shape: Vec<usize>,
}

fn kernel<'a>(x_shape: &[usize], a: &'a FlexTensor, b: &'a FlexTensor, gates: &'a FlexTensor) -> kernels::Bank<'a> {
    let (d_in, d_out) = (a.layout().shape()[1], b.layout().shape()[0]);
    let time = x_shape[1..x_shape.len() - 1].iter().product();
    kernels::Bank { a: floats(a), b: floats(b), gates: floats(gates), time, d_in, d_out }
}

fn wanted([x, a, b, gates]: [bool; 4]) -> kernels::Wanted {
    kernels::Wanted { x, a, b, gates }
}

impl HostOp<4> for LoraBank {
    type Saved = SavedBank;

    fn forward(&self, [x, a, b, gates]: [FlexTensor; 4], wants: [bool; 4]) -> (FlexTensor, SavedBank) {
        let x_shape = x.layout().shape().to_vec();
        let kernel = kernel(&x_shape, &a, &b, &gates);
        let (y, low) = kernel.forward(floats(&x));
        let mut shape = x_shape.clone();
        *shape.last_mut().expect("a linear map's input has an axis") = kernel.d_out;
        let (wanted, length) = (wanted(wants), low.len());
        let saved = SavedBank {
            x: wanted.needs_x().then(|| kept_input(x)),
            low: wanted.needs_low().then(|| tensor(low, [length])),
            a,
            b,
            gates,
            x_shape,
        };
        (tensor(y, shape), saved)
    }

    fn backward(self, saved: SavedBank, dy: FlexTensor, wants: [bool; 4]) -> [Option<FlexTensor>; 4] {
        let SavedBank { x, low, a, b, gates, x_shape } = saved;
        let x = x.as_ref().map_or(Numbers::F32(&[]), numbers);
        let low = low.as_ref().map_or(&[][..], floats);
        let found = kernel(&x_shape, &a, &b, &gates).backward(x, low, floats(&dy), wanted(wants));
        let shaped = |gradient: Option<Vec<f32>>, as_: &FlexTensor| gradient.map(|gradient| like(gradient, as_));
        let dx = found.x.map(|dx| tensor(dx, x_shape));
        [dx, shaped(found.a, &a), shaped(found.b, &b), shaped(found.gates, &gates)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device, pseudo_random};
    use burn::tensor::Device;
    use proptest::prelude::*;

    #[test]
    fn each_sample_counts_its_own_columns() {
        let x = Tensor::<3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device());
        let a = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], &device());
        let b = Tensor::<2>::from_floats([[1.0, 10.0], [2.0, 20.0], [0.0, 1.0]], &device());
        let gates = Tensor::<2>::from_floats([[0.0, 0.5], [2.0, 0.0]], &device());
        let y = lora_bank(x, a, b, gates);
        assert_eq!(y.dims(), [2, 1, 3]);
        assert_close(y, &[10.0, 20.0, 1.0, 6.0, 12.0, 0.0], 1e-6);
    }

    #[test]
    fn a_gate_of_zero_has_a_gradient() {
        let ones = |shape| Tensor::<2>::ones(shape, &device().autodiff());
        let gates = Tensor::<2>::zeros([1, 2], &device()).autodiff().require_grad();
        let gradients = lora_bank(ones([1, 3]), ones([2, 3]), ones([4, 2]), gates.clone()).sum().backward();
        assert_close(gates.grad(&gradients).expect("a gradient"), &[12.0; 2], 1e-6);
    }

    proptest! {
        #[test]
        fn equals_its_composition(
            (batch, time, d_in, d_out) in (1_usize..4, 1_usize..80, 1_usize..40, 1_usize..40),
            (columns, sparsity) in (1_usize..50, 1_usize..4),
            (half, gates_wanted) in any::<(bool, bool)>(),
        ) {
            let inputs = Inputs::default().half(half);
            let x = inputs.tensor([batch, time, d_in]);
            let (a, b) = (inputs.tensor([1, columns, d_in]), inputs.tensor([1, d_out, columns]));
            // Multiplied by ones and zeros, so that gates that vary among samples are sparse leaves.
            let open: Vec<f32> = (0..batch * columns)
                .map(|i| f32::from((i % columns / 4 + i / columns).is_multiple_of(sparsity)))
                .collect();
            let open = Tensor::<1>::from_floats(open.as_slice(), &device()).reshape([batch, 1, columns]).cast(x.dtype());
            let open = open.autodiff();
            let run = |f: fn(Tensor<3>, Tensor<2>, Tensor<2>, Tensor<2>) -> Tensor<3>| {
                let open = open.clone();
                move |[x, a, b, gates]: [Tensor<3>; 4]| {
                    let open = if gates.device().is_autodiff() { open.clone() } else { open.clone().inner() };
                    let gates = (gates * open).reshape([batch, columns]);
                    f(x, a.reshape([columns, d_in]), b.reshape([d_out, columns]), gates)
                }
            };
            if gates_wanted {
                let gates = inputs.tensor([batch, 1, columns]);
                compare([x, a, b, gates], run(lora_bank), run(composed));
            } else {
                let gates = Tensor::<1>::from_floats(pseudo_random(batch * columns, 7).as_slice(), &device());
                let gates = gates.reshape([batch, 1, columns]).cast(x.dtype()).autodiff();
                let run = |f| {
                    let (run, gates) = (run(f), gates.clone());
                    move |[x, a, b]: [Tensor<3>; 3]| {
                        let gates = if x.device().is_autodiff() { gates.clone() } else { gates.clone().inner() };
                        run([x, a, b, gates])
                    }
                };
                compare([x, a, b], run(lora_bank), run(composed));
            }
        }
    }

    #[test]
    fn an_adapter_that_is_no_number_spoils_those_who_go_through_it() {
        // A guarantee of the kernel alone.
        let device = Device::flex();
        let x = Tensor::<3>::ones([2, 1, 1], &device);
        let a = Tensor::<2>::from_floats([[1.0], [f32::NAN]], &device);
        let b = Tensor::<2>::ones([1, 2], &device);
        let gates = Tensor::<2>::from_floats([[1.0, 0.0], [1.0, 0.5]], &device);
        let y: Vec<f32> = lora_bank(x, a, b, gates).try_into_vec_as().expect("floats");
        assert!(y[0] == 1.0 && y[1].is_nan(), "{y:?}");
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let inputs = Inputs::default();
        let (x, a) = (inputs.tensor([2, 5, 9]), inputs.tensor([1, 4, 9]));
        let (b, gates) = (inputs.tensor([1, 7, 4]), inputs.tensor([1, 2, 4]));
        let run = |f: fn(Tensor<3>, Tensor<2>, Tensor<2>, Tensor<2>) -> Tensor<3>| {
            move |[x, a, b, gates]: [Tensor<3>; 4]| f(x, a.reshape([4, 9]), b.reshape([7, 4]), gates.reshape([2, 4]))
        };
        compare_not_finite([x, a, b, gates], run(lora_bank), run(composed));
    }
}
