//! Losses, returned as a sum and a count so that a caller can average over more than one batch exactly.

use crate::capacity::Capacity;
#[cfg(feature = "cube")]
use crate::cube;
#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::graph::{AnyFloat, differentiated, with_gradients};
use crate::host::{self, HostOp, binary, floats, fused, like, runs_ahead, tensor, ternary, weights};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::linear::column_sums;
use crate::precision::lowered;
use crate::{matmul, sum};
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::{AutodiffBackend, Dispatch, Flex};
use burn::tensor::{DType, Int, Tensor, activation::log_softmax};
use std::sync::Arc;
use undertone_kernels::loss as kernels;

/// Sum and count of a loss: the mean over several batches is the sum of sums over the sum of counts.
#[derive(Clone, Debug)]
pub struct LossSum {
    /// Summed loss, `[1]`, f32.
    pub sum: Tensor<1>,
    /// Number of positions summed, `[1]`, f32.
    pub count: Tensor<1>,
}

impl LossSum {
    /// Returns the mean over this batch alone, `[1]`; 0 if the count is 0.
    pub fn mean(self) -> Tensor<1> {
        self.sum / self.count.clamp_min(1.0)
    }
}

/// Ignored targets and label smoothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyOptions {
    /// Targets with this value are excluded from sum and count.
    pub ignore_index: i64,
    /// Label smoothing ε: the share of each target's probability that is spread evenly over all classes (Szegedy et
    /// al., 2016).
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions {
    /// Ignores -100, PyTorch's convention; no smoothing.
    fn default() -> Self {
        Self { ignore_index: -100, label_smoothing: 0.0 }
    }
}

/// Returns the summed cross-entropy of logits against class indices.
///
/// # Shapes
/// - `logits`: `[rows, classes]`; `targets`: `[rows]`
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> LossSum {
    let logits = host::f32(logits);
    if runs_ahead(&logits.device()) {
        let (targets, count) = (targets.clone().inner(), counted(targets, options));
        let sum = differentiated(logits, |logits| {
            let RowLosses { losses, gradient } = row_losses(logits, targets, options);
            (sum(losses), move |dy: Tensor<1>| gradient * dy.unsqueeze())
        });
        return LossSum { sum, count };
    }
    composed(logits, targets, options)
}

/// The same, composed of operations whose gradients Burn derives.
fn composed(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> LossSum {
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

/// Number of targets that are not ignored, `[1]`.
fn counted(targets: Tensor<1, Int>, options: CrossEntropyOptions) -> Tensor<1> {
    sum(targets.not_equal_scalar(options.ignore_index).float())
}

/// Loss of each row, `[rows]`, and gradient of the logits, `[rows, classes]`, for the sum of all losses.
struct RowLosses {
    losses: Tensor<1>,
    gradient: Tensor<2>,
}

/// Returns the losses of f32 logits, off the CPU and without autodiff.
fn row_losses(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> RowLosses {
    #[cfg(feature = "cube")]
    if Backing::of(&logits.device()).is_cube() {
        let loss = cube::ClassLoss { ignored: options.ignore_index as i32, smoothing: options.label_smoothing as f32 };
        let targets = targets.cast(burn::tensor::IntDType::I32);
        let [rows, classes] = logits.dims();
        let shapes = [[rows].into(), [rows, classes].into()];
        let inputs = [logits.into_dispatch(), targets.into_dispatch()];
        let [losses, gradient] = cube::launched("class_loss", inputs, shapes, move |inputs| loss.rows(inputs));
        return RowLosses { losses: Tensor::from_dispatch(losses), gradient: Tensor::from_dispatch(gradient) };
    }
    #[cfg(feature = "tch")]
    if Backing::of(&logits.device()) == Backing::LibTorch {
        let (losses, gradient) = libtorch::row_losses(logits, targets, options.ignore_index, options.label_smoothing);
        return RowLosses { losses, gradient };
    }
    let ([rows, classes], device, smoothing) = (logits.dims(), logits.device(), options.label_smoothing);
    let ignored = targets.clone().equal_scalar(options.ignore_index);
    let at = targets.mask_fill(ignored.clone(), 0).unsqueeze_dim::<2>(1);
    let log_p = log_softmax(logits, 1);
    let of_target = log_p.clone().gather(1, at.clone()).squeeze_dim::<1>(1);
    let mean = log_p.clone().mean_dim(1).squeeze_dim::<1>(1);
    let mut losses = of_target.mul_scalar(smoothing - 1.0);
    // Not 0 times the mean: if a class has the logit -∞, the mean is not finite.
    if smoothing > 0.0 {
        losses = losses - mean.mul_scalar(smoothing);
    }
    let class = Tensor::<1, Int>::arange(0..classes as i64, &device).unsqueeze::<2>();
    let is_target = class.expand([rows, classes]).equal(at.expand([rows, classes]));
    let wanted = is_target.float().mul_scalar(1.0 - smoothing).add_scalar(smoothing / classes as f64);
    let gradient = log_p.exp() - wanted;
    let counted = ignored.clone().bool_not().float();
    RowLosses {
        losses: losses * counted.clone(),
        // Not by multiplication: ignored rows may contain values that are not finite.
        gradient: gradient.mask_fill(ignored.unsqueeze_dim::<2>(1).expand([rows, classes]), 0.0),
    }
}

/// Returns the summed cross-entropy of `x · weightᵀ + bias` against class indices. Output layer and loss are one
/// operation, so that the `[rows, classes]` logits need not exist all at once.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `bias`: `[classes]`; `targets`: `[rows]`
///
/// # Panics
/// On the CPU, if a target that is not ignored is not a class index.
pub fn linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    let device = x.device();
    // Logits and the loss stay in f32: the kernel accumulates in f32, and elsewhere the layer returns f32.
    let (x, weight, bias) = (lowered(x), lowered(weight), bias.map(lowered));
    if !fused(&device) {
        return step(x, weight, bias, targets, options);
    }
    let class = |target: i64| usize::try_from(target).expect("a counted target is a class");
    let counted = |target: i64| (target != options.ignore_index).then(|| class(target));
    let targets: Arc<[Option<usize>]> = targets.into_data().iter::<i64>().map(counted).collect();
    let count = targets.iter().flatten().count() as f32;
    let op = LinearCrossEntropy { targets, smoothing: options.label_smoothing as f32 };
    let (x, weight) = (host::f32(x), host::held(weight));
    let sum = match bias {
        None => binary::<2, 2, 1>(op, x, weight),
        Some(bias) => ternary::<2, 2, 1, 1>(op, x, weight, host::f32(bias)),
    };
    LossSum { sum, count: Tensor::from_floats([count], &device) }
}

/// Number of logits that exist at a time on other backends: 256 MiB in f32, or less if a tensor cannot be as large. In
/// tests it is small enough that there is more than one piece.
const LOGITS: usize = if cfg!(test) { 1 << 7 } else { 1 << 26 };

/// One step of the graph on every other backend, which processes the rows in pieces. As on the CPU, gradients are
/// computed in the forward pass, for an upstream gradient of 1.
fn step(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    let dtype = x.dtype();
    // A weight may be held in half precision. Nothing is kept of it for the backward pass.
    let weight = host::restored(weight, dtype);
    let inputs: Vec<AnyFloat> = [x.into(), weight.into()].into_iter().chain(bias.map(AnyFloat::from)).collect();
    let with_autodiff = inputs.iter().any(AnyFloat::has_autodiff);
    let wanted = [0, 1, 2].map(|i| inputs.get(i).is_some_and(AnyFloat::is_tracked));
    let plain = |i: usize| inputs.get(i).cloned().map(AnyFloat::plain);
    let layer = OutputLayer {
        weight: plain(1).expect("a weight").tensor(),
        bias: plain(2).map(AnyFloat::tensor),
        options,
        wanted,
    };
    let targets = targets.inner();
    let count = counted(targets.clone(), options);
    let (sum, gradients) = layer.losses(plain(0).expect("an input").tensor(), targets);
    if !with_autodiff {
        return LossSum { sum, count };
    }
    let backward = move |dy| {
        let dy = Tensor::<1>::from_dispatch(dy);
        let Gradients { x, weight, bias } = gradients;
        let matrix = |g: Tensor<2>| host::restored(g * dy.clone().unsqueeze(), dtype).into_dispatch();
        let bias = bias.map(|g| host::restored(g * dy.clone(), dtype).into_dispatch());
        vec![x.map(matrix), weight.map(matrix), bias]
    };
    let sum = with_gradients(Dispatch::from_inner(sum.into_dispatch()), inputs, backward);
    LossSum { sum: Tensor::from_dispatch(sum), count: Tensor::from_inner(count) }
}

/// Output layer, without autodiff, and flags for which of input, weight and bias need a gradient.
struct OutputLayer {
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    wanted: [bool; 3],
    options: CrossEntropyOptions,
}

/// Gradients in f32, for an upstream gradient of 1.
#[derive(Default)]
struct Gradients {
    x: Option<Tensor<2>>,
    weight: Option<Tensor<2>>,
    bias: Option<Tensor<1>>,
}

impl OutputLayer {
    /// Returns the sum of all losses, `[1]`, and its gradients.
    fn losses(&self, x: Tensor<2>, targets: Tensor<1, Int>) -> (Tensor<1>, Gradients) {
        let (rows, classes) = (x.dims()[0], self.weight.dims()[0]);
        let logits = Capacity::of(&x.device()).numbers(LOGITS);
        let piece = (logits / classes.max(1)).clamp(1, rows.max(1));
        let (mut losses, mut dx, mut gradients) = (Vec::new(), Vec::new(), Gradients::default());
        for start in (0..rows.max(1)).step_by(piece) {
            let some = start..(start + piece).min(rows);
            let x = x.clone().slice_dim(0, some.clone());
            let (loss, found) = self.piece(x, targets.clone().slice_dim(0, some));
            losses.push(loss);
            dx.extend(found.x);
            gradients.weight = added(gradients.weight, found.weight);
            gradients.bias = added(gradients.bias, found.bias);
        }
        gradients.x = (!dx.is_empty()).then(|| Tensor::cat(dx, 0));
        (sum(Tensor::cat(losses, 0)), gradients)
    }

    /// Returns the losses of some rows, and their gradients.
    fn piece(&self, x: Tensor<2>, targets: Tensor<1, Int>) -> (Tensor<1>, Gradients) {
        let [wants_x, wants_weight, wants_bias] = self.wanted;
        let dtype = x.dtype();
        let mut logits = host::f32(matmul(x.clone(), self.weight.clone().transpose()));
        if let Some(bias) = &self.bias {
            logits = logits + host::f32(bias.clone()).unsqueeze();
        }
        let RowLosses { losses, gradient } = row_losses(logits, targets, self.options);
        let bias = wants_bias.then(|| column_sums(gradient.clone()));
        // Before the loss is scaled, most of these numbers are below the range of f16 and their sums above it: they
        // stay in f32.
        let wide = dtype == DType::F16;
        let [x, to] = [x, self.weight.clone()].map(|factor| if wide { host::f32(factor) } else { factor });
        let gradient = if wide { gradient } else { host::restored(gradient, dtype) };
        let weight = wants_weight.then(|| host::f32(matmul(gradient.clone().transpose(), x)));
        let x = wants_x.then(|| host::f32(matmul(gradient, to)));
        (losses, Gradients { x, weight, bias })
    }
}

fn added<const D: usize>(sum: Option<Tensor<D>>, x: Option<Tensor<D>>) -> Option<Tensor<D>> {
    match (sum, x) {
        (Some(sum), Some(x)) => Some(sum + x),
        (sum, x) => sum.or(x),
    }
}

#[derive(Clone, Debug)]
struct LinearCrossEntropy {
    targets: Arc<[Option<usize>]>,
    smoothing: f32,
}

/// Gradients of the inputs for an upstream gradient of 1.
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
        let loss = kernel.forward(floats(x), weights(weight), bias.map(floats), d, wanted);
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
    use crate::testing::{
        Inputs, assert_close, compare, compare_held, compare_not_finite, device, held, pseudo_random,
    };
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
    fn a_class_that_cannot_be_changes_nothing() {
        let logits = Tensor::<2>::from_floats([[1.0, f32::NEG_INFINITY, 0.5, 0.25]], &device());
        let logits = logits.autodiff().require_grad();
        let target = Tensor::<1, Int>::from_ints([2], &device()).autodiff();
        let loss = cross_entropy(logits.clone(), target, Default::default()).sum;
        let without = cross_entropy(
            Tensor::<2>::from_floats([[1.0, 0.5, 0.25]], &device()),
            Tensor::<1, Int>::from_ints([1], &device()),
            Default::default(),
        );
        let expected: f32 = without.sum.into_scalar();
        assert_close(loss.clone().inner(), &[expected], 1e-6);
        let gradient = logits.grad(&loss.backward()).expect("a gradient").try_into_vec_as::<f32>().expect("floats");
        assert!(gradient.iter().all(|g| g.is_finite()) && gradient[1] == 0.0, "{gradient:?}");
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
