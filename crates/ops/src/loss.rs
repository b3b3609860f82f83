//! Losses, returned as a sum and a count so that a caller can average over more than one batch exactly.

use crate::host::{self, HostOp, binary, floats, fused, like, tensor, ternary};
use crate::linear;
use crate::precision::lowered;
use crate::sum;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Int, Tensor, activation::log_softmax};
use std::sync::Arc;
use undertone_kernels::loss as kernels;

/// A loss before its division: the mean over several batches is the sum of sums over the sum of counts.
#[derive(Clone, Debug)]
pub struct LossSum {
    /// The summed loss, `[1]`, f32.
    pub sum: Tensor<1>,
    /// How many positions it sums over, `[1]`, f32.
    pub count: Tensor<1>,
}

impl LossSum {
    /// The mean over this batch alone, `[1]`; 0 when nothing was counted.
    pub fn mean(self) -> Tensor<1> {
        self.sum / self.count.clamp_min(1.0)
    }
}

/// Which targets count and how sharp they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyOptions {
    /// Targets with this value are left out of sum and count.
    pub ignore_index: i64,
    /// The share ε of each target's mass that is spread evenly over all classes (Szegedy et al., 2016).
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions {
    /// Ignores -100, PyTorch's convention; no smoothing.
    fn default() -> Self {
        Self { ignore_index: -100, label_smoothing: 0.0 }
    }
}

/// Cross-entropy of logits against class indices, summed.
///
/// # Shapes
/// - `logits`: `[rows, classes]`; `targets`: `[rows]`
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> LossSum {
    let logits = if logits.dtype() == DType::F32 { logits } else { logits.cast(DType::F32) };
    let ignored = targets.clone().equal_scalar(options.ignore_index);
    let counted = ignored.clone().bool_not().int().float();
    let log_p = log_softmax(logits, 1);
    let at = targets.mask_fill(ignored, 0).unsqueeze_dim::<2>(1);
    let mut nll = log_p.clone().gather(1, at).squeeze_dim::<1>(1).neg();
    if options.label_smoothing > 0.0 {
        let uniform = log_p.mean_dim(1).squeeze_dim::<1>(1).neg();
        nll = nll.mul_scalar(1.0 - options.label_smoothing) + uniform.mul_scalar(options.label_smoothing);
    }
    LossSum { sum: sum(nll * counted.clone()), count: sum(counted) }
}

/// Cross-entropy of `x · weightᵀ + bias` against class indices, summed: the output layer and the loss in one, so that
/// `[rows, classes]` logits need not exist all at once.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `bias`: `[classes]`; `targets`: `[rows]`
///
/// # Panics
/// On the CPU, if a counted target is no class.
pub fn linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    let device = x.device();
    // Logits and the loss are f32 all the same: the kernel sums in it, and elsewhere the layer gives it back.
    let (x, weight, bias) = (lowered(x), lowered(weight), bias.map(lowered));
    if !fused(&device) {
        return cross_entropy(linear(x, weight, bias), targets, options);
    }
    let class = |target: i64| usize::try_from(target).expect("a counted target is a class");
    let counted = |target: i64| (target != options.ignore_index).then(|| class(target));
    let targets: Arc<[Option<usize>]> = targets.into_data().iter::<i64>().map(counted).collect();
    let count = targets.iter().flatten().count() as f32;
    let op = LinearCrossEntropy { targets, smoothing: options.label_smoothing as f32 };
    let (x, weight) = (host::f32(x), host::f32(weight));
    let sum = match bias {
        None => binary::<2, 2, 1>(op, x, weight),
        Some(bias) => ternary::<2, 2, 1, 1>(op, x, weight, host::f32(bias)),
    };
    LossSum { sum, count: Tensor::from_floats([count], &device) }
}

#[derive(Clone, Debug)]
struct LinearCrossEntropy {
    targets: Arc<[Option<usize>]>,
    smoothing: f32,
}

/// Gradients of inputs for an upstream gradient of 1.
type Unscaled<const N: usize> = [Option<FlexTensor>; N];

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
        let loss = kernel.forward(floats(x), floats(weight), bias.map(floats), d, wanted);
        let gradients =
            [loss.x.map(|g| like(g, x)), loss.weight.map(|g| like(g, weight)), loss.bias.map(|g| tensor(g, [classes]))];
        (tensor(vec![loss.sum as f32], [1]), gradients)
    }

    fn scaled<const N: usize>(gradients: Unscaled<N>, upstream: &FlexTensor) -> Unscaled<N> {
        let factor = floats(upstream)[0];
        gradients.map(|g| g.map(|g| Flex::float_mul_scalar(g, factor.into())))
    }
}

impl HostOp<2> for LinearCrossEntropy {
    type Saved = Unscaled<2>;

    fn forward(&self, [x, weight]: [FlexTensor; 2], wanted: [bool; 2]) -> (FlexTensor, Unscaled<2>) {
        let (sum, [dx, dw, _]) = self.run([&x, &weight], None, [wanted[0], wanted[1], false]);
        (sum, [dx, dw])
    }

    fn backward(self, saved: Unscaled<2>, upstream: FlexTensor, _: [bool; 2]) -> Unscaled<2> {
        Self::scaled(saved, &upstream)
    }
}

impl HostOp<3> for LinearCrossEntropy {
    type Saved = Unscaled<3>;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3], wanted: [bool; 3]) -> (FlexTensor, Unscaled<3>) {
        self.run([&x, &weight], Some(&bias), wanted)
    }

    fn backward(self, saved: Unscaled<3>, upstream: FlexTensor, _: [bool; 3]) -> Unscaled<3> {
        Self::scaled(saved, &upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device, pseudo_random};
    use proptest::prelude::*;

    fn reference(logits: &[f32], classes: usize, targets: &[i64], smoothing: f64) -> (f64, usize) {
        let mut sum = 0.0;
        let mut count = 0;
        for (row, &target) in logits.chunks(classes).zip(targets) {
            if target == -100 {
                continue;
            }
            let log_z = row.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
            let nll = |c: usize| log_z - f64::from(row[c]);
            let uniform = (0..classes).map(nll).sum::<f64>() / classes as f64;
            sum += (1.0 - smoothing) * nll(target as usize) + smoothing * uniform;
            count += 1;
        }
        (sum, count)
    }

    #[test]
    fn sums_over_counted_targets_only() {
        let targets = [2_i64, -100, 0, 4];
        let logits = pseudo_random(4 * 5, 7);
        for label_smoothing in [0.0, 0.1] {
            let (sum, count) = reference(&logits, 5, &targets, label_smoothing);
            let loss = cross_entropy(
                Tensor::<1>::from_floats(logits.as_slice(), &device()).reshape([4, 5]),
                Tensor::<1, Int>::from_ints(targets, &device()),
                CrossEntropyOptions { label_smoothing, ..Default::default() },
            );
            assert_close(loss.sum, &[sum as f32], 1e-5);
            assert_close(loss.count, &[count as f32], 0.0);
        }
    }

    #[test]
    fn a_batch_without_targets_has_mean_zero() {
        let loss = cross_entropy(
            Tensor::ones([2, 3], &device()),
            Tensor::<1, Int>::from_ints([-100, -100], &device()),
            Default::default(),
        );
        assert_close(loss.mean(), &[0.0], 0.0);
    }

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
            let whole = |x, w, b: Option<Tensor<2>>| {
                let b = b.map(|b| b.reshape([classes]));
                linear_cross_entropy(x, w, b, targets.clone(), options).sum
            };
            let parts = |x, w: Tensor<2>, b: Option<Tensor<2>>| {
                let logits = host::f32::<2>(x).matmul(host::f32(w.transpose()));
                let logits = b.map_or(logits.clone(), |b| logits + host::f32(b));
                cross_entropy(logits, targets.clone(), options).sum
            };
            if biased {
                compare([x, weight, bias], |[x, w, b]| whole(x, w, Some(b)), |[x, w, b]| parts(x, w, Some(b)));
            } else {
                compare([x, weight], |[x, w]| whole(x, w, None), |[x, w]| parts(x, w, None));
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
