//! Layer normalisation.

#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::host::{self, HostOp, apply, floats, fused, like, tensor};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::linear::check_width;
#[cfg(feature = "cube")]
use crate::{
    cube,
    graph::{AnyFloat, recorded},
};
use burn::backend::flex::FlexTensor;
#[cfg(feature = "cube")]
use burn::backend::{DispatchTensor, TensorMetadata};
use burn::tensor::{DType, Tensor};
use undertone_kernels::norm as kernels;

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts it.
///
/// The statistics are computed in f32 whatever the input's type: a bf16 sum over a thousand channels has no significant
/// digits left.
///
/// # Shapes
/// - `x`, output: `[.., d_model]`
/// - `weight`, `bias`: `[d_model]`
///
/// # Panics
/// If the last axis of `x` is not as wide as `weight` and `bias`.
pub fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<D> {
    for of_channels in [&weight, &bias] {
        check_width("layer_norm", &x.dims(), of_channels.dims()[0], &of_channels.dims());
    }
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        return step(x, weight, bias, epsilon);
    }
    #[cfg(feature = "tch")]
    if Backing::of(&x.device()) == Backing::LibTorch {
        let dtype = x.dtype();
        return host::restored(libtorch::layer_norm(host::f32(x), host::f32(weight), host::f32(bias), epsilon), dtype);
    }
    if !fused(&x.device()) {
        return composed(x, weight, bias, epsilon);
    }
    let dtype = x.dtype();
    let op = LayerNorm { epsilon: epsilon as f32 };
    let inputs = [host::f32(x).into(), host::f32(weight).into(), host::f32(bias).into()];
    host::restored(apply(op, inputs), dtype)
}

fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let dtype = x.dtype();
    let x = if dtype == DType::F32 { x } else { x.cast(DType::F32) };
    let centred = x.clone() - x.mean_dim(D - 1);
    let variance = centred.clone().square().mean_dim(D - 1);
    let normal = centred / variance.add_scalar(epsilon).sqrt();
    let normal = if dtype == DType::F32 { normal } else { normal.cast(dtype) };
    normal * weight.unsqueeze() + bias.unsqueeze()
}

/// One step of the graph, computed by kernels for CubeCL.
#[cfg(feature = "cube")]
fn step<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let dtype = x.dtype();
    let inputs: [AnyFloat; 3] = [host::f32(x).into(), host::f32(weight).into(), host::f32(bias).into()];
    let [_, wants_weight, wants_bias] = inputs.each_ref().map(AnyFloat::is_tracked);
    let [x, weight, bias] = inputs.clone().map(|input| input.plain().0);
    let shapes = [x.shape(), weight.shape()];
    let rows = shapes[0].num_elements() / shapes[1].num_elements().max(1);
    let norm = cube::LayerNorm { epsilon: epsilon as f32 };
    let made = [shapes[0].clone(), [rows, 2].into()];
    let run = move |inputs| norm.forward(inputs);
    let [y, statistics] = cube::launched("layer_norm", [x.clone(), weight.clone(), bias], made, run);
    let backward = move |dy: DispatchTensor| {
        let [of_x, of_weight] = shapes;
        let inputs = [x, statistics, weight, dy];
        if wants_weight || wants_bias {
            let shapes = [of_x, of_weight.clone(), of_weight];
            return cube::launched("layer_norm_backward", inputs, shapes, cube::LayerNorm::backward).map(Some).into();
        }
        let run = |inputs: [_; 4]| [cube::LayerNorm::backward_x(inputs)];
        let [dx] = cube::launched("layer_norm_backward_x", inputs, [of_x], run);
        vec![Some(dx), None, None]
    };
    host::restored(recorded(Tensor::from_dispatch(y), inputs, backward), dtype)
}

#[derive(Clone, Debug)]
struct LayerNorm {
    epsilon: f32,
}

impl HostOp<3> for LayerNorm {
    /// Input, statistics, weight.
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3], _: [bool; 3]) -> (FlexTensor, Self::Saved) {
        let (y, statistics) = kernels::forward(floats(&x), floats(&weight), floats(&bias), self.epsilon);
        let length = statistics.len();
        (like(y, &x), [x, tensor(statistics, [length]), weight])
    }

    fn backward(
        self,
        [x, statistics, weight]: Self::Saved,
        dy: FlexTensor,
        [wants_x, wants_weight, wants_bias]: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let parameters = wants_weight || wants_bias;
        let (input, statistics, scale) = (floats(&x), floats(&statistics), floats(&weight));
        let found = kernels::backward(input, statistics, scale, floats(&dy), wants_x, parameters);
        [(found.x, &x), (found.weight, &weight), (found.bias, &weight)]
            .map(|(gradient, shape)| gradient.map(|gradient| like(gradient, shape)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device};
    use proptest::prelude::*;

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
        if !device().supports_dtype(DType::BF16) {
            return;
        }
        // 4096 + small steps: in bf16 sums the mean of these rows would be off by whole units.
        let rows: Vec<f32> = (0..512).map(|i| if i % 2 == 0 { 4080.0 } else { 4112.0 }).collect();
        let x = Tensor::<1>::from_floats(rows.as_slice(), &device()).reshape([1, 512]).cast(DType::BF16);
        let one = |v: f32| Tensor::<1>::full([512], v, &device()).cast(DType::BF16);
        for norm in [layer_norm::<2>, composed::<2>] {
            let y = norm(x.clone(), one(1.0), one(0.0), 1e-5).cast(DType::F32);
            let expected: Vec<f32> = (0..512).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
            assert_close(y, &expected, 1e-2);
        }
    }

    proptest! {
        #[test]
        fn equals_its_composition(batch in 1_usize..4, time in 1_usize..5, d in 2_usize..70, half: bool) {
            let inputs = Inputs::default().half(half);
            let x = inputs.tensor([batch, time, d]);
            let (weight, bias) = (inputs.tensor([1, 1, d]), inputs.tensor([1, 1, d]));
            let flat = |x: Tensor<3>| x.reshape([d]);
            compare(
                [x, weight, bias],
                |[x, w, b]| layer_norm(x, flat(w), flat(b), 1e-5),
                |[x, w, b]| composed(x, flat(w), flat(b), 1e-5),
            );
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let inputs = Inputs::default();
        let (x, [weight, bias]) = (inputs.tensor([2, 3, 70]), [(); 2].map(|()| inputs.tensor([1, 1, 70])));
        let flat = |x: Tensor<3>| x.reshape([70]);
        compare_not_finite(
            [x, weight, bias],
            |[x, w, b]| layer_norm(x, flat(w), flat(b), 1e-5),
            |[x, w, b]| composed(x, flat(w), flat(b), 1e-5),
        );
    }
}
