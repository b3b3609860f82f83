//! Cross-entropy with the layer that computes its logits.

use super::cross_entropy::{CrossEntropyOptions, LossSum, counted, row_losses};
use super::output_layer;
use crate::host::{self, HostOp, apply, floats, fused, like, numbers, tensor};
use crate::linear::check_width;
use crate::precision::lowered;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Int, Tensor};
use std::sync::Arc;
use undertone_kernels::loss as kernels;

/// Returns the summed cross-entropy of `x · weightᵀ + bias` against class indices. Output layer and loss are one
/// operation, so that the `[rows, classes]` logits need not exist all at once.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `bias`: `[classes]`; `targets`: `[rows]`
///
/// A target that is neither ignored nor a class index gives an infinite loss on CubeCL's backends.
///
/// # Panics
/// On the CPU, for such a target; and if the last axis of `x` is not as wide as `weight` takes.
pub fn linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    check_width("linear_cross_entropy", &x.dims(), weight.dims()[1], &weight.dims());
    let device = x.device();
    // Logits and the loss stay in f32: the kernel accumulates in f32, and elsewhere the layer returns f32.
    let (x, weight, bias) = (lowered(x), lowered(weight), bias.map(lowered));
    if !fused(&device) {
        return step(x, weight, bias, targets, options);
    }
    let targets = classes(targets, options);
    let count = targets.iter().flatten().count() as f32;
    let op = LinearCrossEntropy { targets, smoothing: options.label_smoothing as f32 };
    let (x, weight) = (host::f32(x), host::held(weight));
    let sum = match bias {
        None => apply(op, [x.into(), weight.into()]),
        Some(bias) => apply(op, [x.into(), weight.into(), host::f32(bias).into()]),
    };
    LossSum { sum, count: Tensor::from_floats([count], &device) }
}

/// Returns the class of each target; `None` for one that is ignored.
///
/// # Panics
/// If a target that is not ignored is negative.
pub(super) fn classes(targets: Tensor<1, Int>, options: CrossEntropyOptions) -> Arc<[Option<usize>]> {
    let class = |target: i64| usize::try_from(target).expect("a counted target is a class");
    let counted = |target: i64| (target != options.ignore_index).then(|| class(target));
    targets.into_data().iter::<i64>().map(counted).collect()
}

/// The same on every other backend.
fn step(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    let targets = targets.inner();
    let count = counted(targets.clone(), options);
    let of_rows = |logits, rows| row_losses(logits, targets.clone().slice_dim(0, rows), options);
    LossSum { sum: output_layer::step(x, weight, bias, of_rows), count: Tensor::from_inner(count) }
}

#[derive(Clone, Debug)]
struct LinearCrossEntropy {
    targets: Arc<[Option<usize>]>,
    smoothing: f32,
}

/// Gradients of the inputs for an upstream gradient of 1.
pub(super) type Unscaled<const N: usize> = [Option<FlexTensor>; N];

impl LinearCrossEntropy {
    fn run(
        &self,
        [x, weight]: [&FlexTensor; 2],
        bias: Option<&FlexTensor>,
        [wants_x, wants_weight, wants_bias]: [bool; 3],
    ) -> (FlexTensor, Unscaled<3>) {
        let (classes, d) = (weight.layout().shape()[0], weight.layout().shape()[1]);
        let kernel = kernels::LinearCrossEntropy { targets: &self.targets, classes, label_smoothing: self.smoothing };
        let wanted = kernels::Wanted { x: wants_x, weight: wants_weight, bias: wants_bias };
        let loss = kernel.forward(floats(x), numbers(weight), bias.map(floats), d, wanted);
        let gradients =
            [loss.x.map(|g| like(g, x)), loss.weight.map(|g| like(g, weight)), loss.bias.map(|g| tensor(g, [classes]))];
        (tensor(vec![loss.sum as f32], [1]), gradients)
    }
}

/// Returns the gradients for the first number of the upstream gradient.
pub(super) fn scaled<const N: usize>(gradients: Unscaled<N>, upstream: &FlexTensor) -> Unscaled<N> {
    let factor = floats(upstream)[0];
    gradients.map(|g| g.map(|g| Flex::float_mul_scalar(g, factor.into())))
}

impl HostOp<2> for LinearCrossEntropy {
    type Saved = Unscaled<2>;

    fn forward(&self, [x, weight]: [FlexTensor; 2], wanted: [bool; 2]) -> (FlexTensor, Unscaled<2>) {
        let (sum, [dx, dw, _]) = self.run([&x, &weight], None, [wanted[0], wanted[1], false]);
        (sum, [dx, dw])
    }

    fn backward(self, saved: Unscaled<2>, upstream: FlexTensor, _: [bool; 2]) -> Unscaled<2> {
        scaled(saved, &upstream)
    }
}

impl HostOp<3> for LinearCrossEntropy {
    type Saved = Unscaled<3>;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3], wanted: [bool; 3]) -> (FlexTensor, Unscaled<3>) {
        self.run([&x, &weight], Some(&bias), wanted)
    }

    fn backward(self, saved: Unscaled<3>, upstream: FlexTensor, _: [bool; 3]) -> Unscaled<3> {
        scaled(saved, &upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cross_entropy::{composed, cross_entropy};
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_held, compare_not_finite, device, held};
    use proptest::prelude::*;

    type Whole = fn(Tensor<2>, Tensor<2>, Option<Tensor<1>>, Tensor<1, Int>, CrossEntropyOptions) -> LossSum;

    proptest! {
        #[test]
        fn with_its_layer_equals_the_parts(
            (rows, classes, d) in (1_usize..20, 1_usize..60, 1_usize..20),
            (biased, smooth, half) in any::<(bool, bool, bool)>(),
        ) {
            let inputs = Inputs::default().half(half);
            let targets: Vec<i64> = (0..rows).map(|i| if i % 4 == 2 { -100 } else { (i * 7 % classes) as i64 }).collect();
            let targets = Tensor::<1, Int>::from_ints(targets.as_slice(), &device());
            let options = CrossEntropyOptions { label_smoothing: if smooth { 0.1 } else { 0.0 }, ..Default::default() };
            let [x, weight, bias] = [[rows, d], [classes, d], [1, classes]].map(|shape| inputs.tensor(shape));
            let whole = |f: Whole, x, w, b: Option<Tensor<2>>| {
                let b = b.map(|b| b.reshape([classes]));
                f(x, w, b, targets.clone(), options).sum
            };
            let parts = |x, w: Tensor<2>, b: Option<Tensor<2>>| {
                let logits = host::f32::<2>(x).matmul(host::f32(w.transpose()));
                let logits = b.map_or(logits.clone(), |b| logits + host::f32(b));
                composed(logits, targets.clone(), options).sum
            };
            for f in [linear_cross_entropy, step] {
                let [x, weight, bias] = [&x, &weight, &bias].map(Tensor::clone);
                if biased {
                    compare([x, weight, bias], |[x, w, b]| whole(f, x, w, Some(b)), |[x, w, b]| parts(x, w, Some(b)));
                } else {
                    compare([x, weight], |[x, w]| whole(f, x, w, None), |[x, w]| parts(x, w, None));
                }
            }
        }
    }

    #[test]
    fn a_layer_that_is_held_in_half_precision_counts_as_its_numbers() {
        let targets = Tensor::<1, Int>::from_ints([1, -100, 0, 7, 59, 2], &device());
        let options = CrossEntropyOptions { label_smoothing: 0.1, ..Default::default() };
        for weights in held([60, 12]) {
            for f in [linear_cross_entropy, step] {
                let x = Inputs::default().tensor([6, 12]);
                compare_held(x, weights.clone(), |x, weight| f(x, weight, None, targets.clone(), options).sum);
            }
        }
    }

    #[test]
    fn counts_on_the_host_as_on_a_device() {
        let targets = Tensor::<1, Int>::from_ints([1, -100, 0], &device());
        let (x, weight) = (Tensor::ones([3, 2], &device()), Tensor::ones([2, 2], &device()));
        let loss = linear_cross_entropy(x, weight, None, targets, Default::default());
        assert_close(loss.count, &[2.0], 0.0);
        assert_close(loss.sum, &[2.0 * 2.0_f32.ln()], 1e-6);
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        let (rows, classes, d) = (5, 40, 3);
        let targets = Tensor::<1, Int>::from_ints([1, 2, 7, 0, 39], &device());
        for label_smoothing in [0.0, 0.1] {
            let options = CrossEntropyOptions { label_smoothing, ..Default::default() };
            let inputs = Inputs::default();
            let inputs = [[rows, d], [classes, d], [1, classes]].map(|shape| inputs.tensor(shape));
            compare_not_finite(
                inputs,
                |[x, w, b]| linear_cross_entropy(x, w, Some(b.reshape([classes])), targets.clone(), options).sum,
                |[x, w, b]| cross_entropy(x.matmul(w.transpose()) + b, targets.clone(), options).sum,
            );
        }
    }
}
