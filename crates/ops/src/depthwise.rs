//! Convolution of each channel by itself over time.

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::graph::{AnyFloat, recorded};
use crate::host::{self, HostOp, apply, floats, fused, like};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use undertone_kernels::depthwise::DepthwiseConv1d;

/// Convolves each channel by itself over time (depthwise), with half a kernel of zeros before and after a sequence. It
/// is computed in f32: it moves more than it multiplies.
///
/// # Shapes
/// - `x`, output: `[batch, time, channels]`
/// - `weight`: `[channels, 1, kernel]`
///
/// # Panics
/// If the kernel size is even.
pub fn depthwise_conv1d(x: Tensor<3>, weight: Tensor<3>) -> Tensor<3> {
    let kernel = weight.dims()[2];
    assert!(kernel % 2 == 1, "a kernel of {kernel} positions has no middle");
    let (dtype, is_fused) = (x.dtype(), fused(&x.device()));
    let (x, weight) = (host::f32(x), host::f32(weight));
    let y = if is_fused { apply(HostDepthwise, [x.into(), weight.into()]) } else { step(x, weight) };
    host::restored(y, dtype)
}

/// One step of the graph on every other backend. It keeps its inputs alone: Burn's own gradient of the weight is a
/// convolution for each channel.
fn step(x: Tensor<3>, weight: Tensor<3>) -> Tensor<3> {
    let inputs: [AnyFloat; 2] = [x.into(), weight.into()];
    let [wants_x, wants_weight] = inputs.each_ref().map(AnyFloat::is_tracked);
    let [x, weight] = inputs.clone().map(|input| input.plain().tensor::<3>());
    let y = convolved(x.clone(), weight.clone(), false);
    let backward = move |dy| {
        let (dy, [channels, _, kernel]) = (Tensor::<3>::from_dispatch(dy), weight.dims());
        let dx = wants_x.then(|| convolved(dy.clone(), weight, true).into_dispatch());
        let dw = wants_weight.then(|| {
            let sums = weight_sums(x, dy, kernel).sum_dim(0);
            sums.swap_dims(1, 2).reshape([channels, 1, kernel]).into_dispatch()
        });
        vec![dx, dw]
    };
    recorded(y, inputs, backward)
}

/// Returns the convolution; with the `reversed` kernel, the gradient of the input from that of the output.
fn convolved(x: Tensor<3>, weight: Tensor<3>, reversed: bool) -> Tensor<3> {
    let ([_, time, channels], kernel) = (x.dims(), weight.dims()[2]);
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        let (shape, conv) = (x.shape(), cube_shape(&x, kernel));
        let run = move |inputs: [_; 2]| [conv.convolve(inputs, reversed)];
        let [y] = cube::launched("depthwise", [x.into_dispatch(), weight.into_dispatch()], [shape], run);
        return Tensor::from_dispatch(y);
    }
    let padded = padded(x, kernel);
    let of_tap = |tap| weight.clone().narrow(2, tap, 1).reshape([1, 1, channels]);
    let at = |k| padded.clone().narrow(1, k, time) * of_tap(if reversed { kernel - 1 - k } else { k });
    (1..kernel).fold(at(0), |sum, k| sum + at(k))
}

/// Returns the gradient of the weight as sums over some of the rows each, `[sums, kernel, channels]`.
fn weight_sums(x: Tensor<3>, dy: Tensor<3>, kernel: usize) -> Tensor<3> {
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        let conv = cube_shape(&x, kernel);
        let run = move |inputs: [_; 2]| [conv.weight_sums(inputs)];
        let shape = [conv.slabs(), kernel, conv.channels].into();
        let [sums] = cube::launched("depthwise_weight", [x.into_dispatch(), dy.into_dispatch()], [shape], run);
        return Tensor::from_dispatch(sums);
    }
    let (padded, time) = (padded(x, kernel), dy.dims()[1]);
    let of_tap = |tap| (padded.clone().narrow(1, tap, time) * dy.clone()).sum_dim(1);
    Tensor::cat((0..kernel).map(of_tap).collect(), 1)
}

#[cfg(feature = "cube")]
fn cube_shape(x: &Tensor<3>, kernel: usize) -> cube::Depthwise {
    let [batch, time, channels] = x.dims();
    cube::Depthwise { batch, time, channels, kernel }
}

fn padded(x: Tensor<3>, kernel: usize) -> Tensor<3> {
    let [batch, _, channels] = x.dims();
    let zeros = Tensor::zeros([batch, kernel / 2, channels], (&x.device(), x.dtype()));
    if kernel == 1 { x } else { Tensor::cat(vec![zeros.clone(), x, zeros], 1) }
}

#[derive(Clone, Debug)]
struct HostDepthwise;

impl HostOp<2> for HostDepthwise {
    /// Input if the weight needs a gradient, and weight.
    type Saved = (Option<FlexTensor>, FlexTensor);

    fn forward(&self, [x, weight]: [FlexTensor; 2], [_, wants_weight]: [bool; 2]) -> (FlexTensor, Self::Saved) {
        let y = like(shape(&x, &weight).forward(floats(&x), floats(&weight)), &x);
        (y, (wants_weight.then_some(x), weight))
    }

    fn backward(self, (x, weight): Self::Saved, dy: FlexTensor, [wants_x, _]: [bool; 2]) -> [Option<FlexTensor>; 2] {
        let shape = shape(&dy, &weight);
        let dx = wants_x.then(|| like(shape.backward_x(floats(&dy), floats(&weight)), &dy));
        let dw = x.map(|x| like(shape.backward_weight(floats(&dy), floats(&x)), &weight));
        [dx, dw]
    }
}

fn shape(x: &FlexTensor, weight: &FlexTensor) -> DepthwiseConv1d {
    let (x, weight) = (x.layout().shape(), weight.layout().shape());
    DepthwiseConv1d { batch: x[0], time: x[1], channels: x[2], kernel: weight[2] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, device};
    use proptest::prelude::*;

    #[test]
    fn each_channel_has_its_own_kernel() {
        let x = Tensor::<3>::from_floats([[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]], &device());
        let weight = Tensor::<3>::from_floats([[[1.0, 10.0, 100.0]], [[0.0, 1.0, 0.0]]], &device());
        for conv in [depthwise_conv1d, step] {
            assert_close(conv(x.clone(), weight.clone()), &[210.0, 1.0, 321.0, 2.0, 32.0, 3.0], 1e-4);
        }
    }

    proptest! {
        #[test]
        fn equals_its_composition(
            (batch, time, channels, half_kernel) in (1_usize..4, 1_usize..40, 1_usize..40, 0_usize..5),
            half in any::<bool>(),
        ) {
            let inputs = Inputs::default().half(half);
            let (x, weight) = (inputs.tensor([batch, time, channels]), inputs.tensor([channels, 1, 2 * half_kernel + 1]));
            let composed = |x: Tensor<3>, weight: Tensor<3>| {
                let dtype = x.dtype();
                host::restored(step(host::f32(x), host::f32(weight)), dtype)
            };
            compare([x, weight], |[x, w]| depthwise_conv1d(x, w), |[x, w]| composed(x, w));
        }
    }
}
