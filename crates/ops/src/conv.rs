//! The convolution of Whisper's front end.

use crate::host::{self, HostOp, apply, floats, fused, like, tensor};
use crate::linear::linear_as;
use crate::precision::lowered;
#[cfg(feature = "cube")]
use crate::{
    cube,
    device::Backing,
    graph::{AnyFloat, recorded},
    linear::column_sums,
    matmul,
};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use undertone_kernels::conv::Conv1d;

/// One-dimensional convolution over time. Channels are the last axis, as in the encoder that follows.
///
/// # Shapes
/// - `x`: `[batch, time, channels_in]`
/// - `weight`: `[channels_out, channels_in, kernel]`; `bias`: `[channels_out]`
/// - output: `[batch, (time + 2 · padding - kernel) / stride + 1, channels_out]`
pub fn conv1d(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<3> {
    let dtype = x.dtype();
    let y = product(lowered(x), lowered(weight), lowered(bias), stride, padding);
    host::restored(y, dtype)
}

fn product(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<3> {
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        return step(x, weight, bias, stride, padding);
    }
    if !fused(&x.device()) {
        return composed(x, weight, bias, stride, padding);
    }
    let dtype = x.dtype();
    let ([batch, time, channels_in], [channels_out, _, kernel]) = (x.dims(), weight.dims());
    let op = HostConv1d(Conv1d { batch, time, channels_in, channels_out, kernel, stride, padding });
    let inputs = [host::f32(x).into(), host::f32(weight).into(), host::f32(bias).into()];
    host::restored(apply(op, inputs), dtype)
}

/// One step of the graph: a kernel for CubeCL writes the inputs of each output position side by side (im2col), and
/// again in the backward pass instead of keeping them. The rest is matrix products.
#[cfg(feature = "cube")]
fn step(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<3> {
    let ([batch, time, channels], [channels_out, _, kernel]) = (x.dims(), weight.dims());
    let time_out = (time + 2 * padding - kernel) / stride + 1;
    let (rows, width, dtype) = (batch * time_out, kernel * channels, x.dtype());
    let unfold = cube::Unfold { batch, time, time_out, channels, kernel, stride, padding };
    let inputs: [AnyFloat; 3] = [x.into(), weight.into(), bias.into()];
    let [wants_x, wants_weight, wants_bias] = inputs.each_ref().map(AnyFloat::is_tracked);
    let [x, weight, bias] = inputs.clone().map(AnyFloat::plain);
    let (x, bias) = (x.tensor::<3>(), bias.tensor::<1>());
    let weight = weight.tensor::<3>().swap_dims(1, 2).reshape([channels_out, width]);
    let columns = move |x: Tensor<3>| {
        let run = move |[x]: [_; 1]| [unfold.forward(x)];
        let [columns] = cube::launched("unfold", [host::f32(x).into_dispatch()], [[rows, width].into()], run);
        host::restored(Tensor::<2>::from_dispatch(columns), dtype)
    };
    let y = matmul(columns(x.clone()), weight.clone().transpose()).reshape([batch, time_out, channels_out]);
    let y = y + bias.unsqueeze();
    let backward = move |dy| {
        let dy = Tensor::<3>::from_dispatch(dy).reshape([rows, channels_out]);
        let dw = wants_weight.then(|| {
            let dw = matmul(dy.clone().transpose(), columns(x));
            dw.reshape([channels_out, kernel, channels]).swap_dims(1, 2).into_dispatch()
        });
        let dx = wants_x.then(|| {
            let d_columns = host::f32(matmul(dy.clone(), weight));
            let run = move |[columns]: [_; 1]| [unfold.backward(columns)];
            let shape = [batch, time, channels].into();
            let [dx] = cube::launched("fold", [d_columns.into_dispatch()], [shape], run);
            host::restored(Tensor::<3>::from_dispatch(dx), dtype).into_dispatch()
        });
        vec![dx, dw, wants_bias.then(|| column_sums(dy, dtype).into_dispatch())]
    };
    recorded(y, inputs, backward)
}

fn composed(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, stride: usize, padding: usize) -> Tensor<3> {
    let ([batch, time, channels_in], [channels_out, _, kernel]) = (x.dims(), weight.dims());
    let time_out = (time + 2 * padding - kernel) / stride + 1;
    // Time as rows of `stride` steps: the inputs of one kernel position lie in consecutive rows.
    let rows = time_out + (kernel - 1) / stride;
    let zeros = |time: usize| Tensor::zeros([batch, time, channels_in], (&x.device(), x.dtype()));
    let kept = time.min(rows * stride - padding);
    let (before, after) = (zeros(padding), zeros(rows * stride - padding - kept));
    let padded = Tensor::cat(vec![before, x.narrow(1, 0, kept), after], 1).reshape([batch, rows, stride * channels_in]);
    let met = |place: usize| {
        let rows = padded.clone().narrow(1, place / stride, time_out);
        rows.narrow(2, place % stride * channels_in, channels_in)
    };
    // Side by side, the convolution is one matrix product in either pass.
    let columns = Tensor::cat((0..kernel).map(met).collect(), 2);
    let weight = weight.swap_dims(1, 2).reshape([channels_out, kernel * channels_in]);
    let dtype = columns.dtype();
    linear_as(columns, weight, Some(bias), dtype)
}

#[derive(Clone, Debug)]
struct HostConv1d(Conv1d);

impl HostOp<3> for HostConv1d {
    /// Input if the weight needs a gradient, and weight.
    type Saved = (Option<FlexTensor>, FlexTensor);

    fn forward(
        &self,
        [x, weight, bias]: [FlexTensor; 3],
        [_, wants_weight, wants_bias]: [bool; 3],
    ) -> (FlexTensor, Self::Saved) {
        let shape = self.0;
        let y = shape.forward(floats(&x), floats(&weight), floats(&bias));
        let y = tensor(y, [shape.batch, shape.time_out(), shape.channels_out]);
        (y, ((wants_weight || wants_bias).then_some(x), weight))
    }

    fn backward(self, (x, weight): Self::Saved, dy: FlexTensor, [wants_x, ..]: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let shape = self.0;
        let dx = wants_x.then(|| {
            let dx = shape.backward_x(floats(&dy), floats(&weight));
            tensor(dx, [shape.batch, shape.time, shape.channels_in])
        });
        let parameters = x.map(|x| shape.backward_parameters(floats(&dy), floats(&x)));
        let (dw, db) = parameters.unzip();
        [dx, dw.map(|dw| like(dw, &weight)), db.map(|db| tensor(db, [shape.channels_out]))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device};
    use proptest::prelude::*;

    #[test]
    fn slides_the_kernel_over_the_padded_input() {
        let x = Tensor::<3>::from_floats([[[1.0], [2.0], [3.0], [4.0]]], &device());
        let weight = Tensor::<3>::from_floats([[[1.0, 10.0, 100.0]]], &device());
        let bias = Tensor::<1>::from_floats([0.5], &device());
        for conv1d in [conv1d, composed] {
            assert_close(conv1d(x.clone(), weight.clone(), bias.clone(), 1, 1), &[210.5, 321.5, 432.5, 43.5], 1e-5);
            assert_close(conv1d(x.clone(), weight.clone(), bias.clone(), 2, 1), &[210.5, 432.5], 1e-5);
        }
    }

    proptest! {
        #[test]
        fn equals_its_composition(
            (batch, time, c_in, c_out) in (1_usize..4, 3_usize..40, 1_usize..9, 1_usize..9),
            (stride, half) in (1_usize..3, any::<bool>()),
        ) {
            let inputs = Inputs::default().half(half);
            let x = inputs.tensor([batch, time, c_in]);
            let (weight, bias) = (inputs.tensor([c_out, c_in, 3]), inputs.tensor([1, 1, c_out]));
            let run = |f: fn(Tensor<3>, Tensor<3>, Tensor<1>, usize, usize) -> Tensor<3>| {
                move |[x, w, b]: [Tensor<3>; 3]| f(x, w, b.reshape([c_out]), stride, 1)
            };
            compare([x, weight, bias], run(conv1d), run(composed));
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let inputs = Inputs::default();
        let [x, weight, bias] = [[2, 20, 5], [4, 5, 3], [1, 1, 4]].map(|shape| inputs.tensor(shape));
        let run = |f: fn(Tensor<3>, Tensor<3>, Tensor<1>, usize, usize) -> Tensor<3>| {
            move |[x, w, b]: [Tensor<3>; 3]| f(x, w, b.reshape([4]), 2, 1)
        };
        compare_not_finite([x, weight, bias], run(conv1d), run(composed));
    }
}
