//! Cross-entropy with the divergence from a teacher, and the layers that compute the logits of both.

use super::cross_entropy::{CrossEntropyOptions, LossSum, RowLosses, counted, row_losses};
use super::linear_cross_entropy::{Unscaled, classes, scaled};
use super::output_layer;
use crate::graph::AnyFloat;
use crate::host::{self, HostOp, apply, floats, fused, like, numbers, tensor};
use crate::precision::lowered;
use crate::product::matmul_as;
use crate::sum;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Device, Int, Tensor, activation::log_softmax};
use std::ops::Range;
use std::sync::Arc;
use undertone_kernels::distillation::{Teacher, distilled};
use undertone_kernels::loss::{LinearCrossEntropy, Wanted};

/// Predictions of a teacher for a batch, as the logits `states · weightᵀ` of the student's classes. It gets no gradient.
#[derive(Clone, Debug)]
pub struct Taught {
    /// Last states of the teacher, `[rows, its d_model]`.
    pub states: Tensor<2>,
    /// Its output layer, `[classes, its d_model]`.
    pub weight: Tensor<2>,
    /// Temperature τ that divides the logits of both.
    pub temperature: f64,
    /// Weight of the divergence; that of the cross-entropy is 1.
    pub weight_of_divergence: f64,
}

/// Loss of a student.
#[derive(Clone, Debug)]
pub struct Distillation {
    /// Cross-entropy. Its gradient is that of cross-entropy and weighted divergence together.
    pub cross_entropy: LossSum,
    /// Divergence `τ² KL(teacher ‖ student)`, summed over the counted rows, `[1]`, f32. It has no gradient of its own: that
    /// is in the cross-entropy, so that both need one pass through the student's output layer.
    pub divergence: Tensor<1>,
}

/// Returns the loss of a student with the logits `x · weightᵀ` (Hinton et al., 2015): the cross-entropy against class indices
/// and the divergence from a teacher. Of the `[rows, classes]` logits only a part exists at a time.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `targets`: `[rows]`
///
/// # Panics
/// On the CPU, if a target that is neither ignored nor a class index; anywhere, if the teacher's shapes do not fit.
pub fn linear_distillation(
    x: Tensor<2>,
    weight: Tensor<2>,
    taught: Taught,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> Distillation {
    let device = x.device();
    let (x, weight) = (lowered(x), lowered(weight));
    let [states, layer] = [taught.states, taught.weight].map(|of_teacher| lowered(plain(of_teacher)));
    let taught = Taught { states, weight: layer, ..taught };
    if !fused(&device) {
        return step(x, weight, taught, targets, options);
    }
    let targets = classes(targets, options);
    let count = Tensor::from_floats([targets.iter().flatten().count() as f32], &device);
    let Taught { states, weight: layer, temperature, weight_of_divergence } = taught;
    let op = LinearDistillation { targets, options, temperature, weight_of_divergence };
    let [x, states] = [x, beside(states, &device)].map(host::f32);
    let [weight, layer] = [weight, beside(layer, &device)].map(host::held);
    let sums: Tensor<1> = apply(op, [x, weight, states, layer].map(AnyFloat::from));
    let divergence = sums.clone().slice_dim(0, 1..2).detach();
    let sum = sums.slice_dim(0, 0..1) - divergence.clone().mul_scalar(weight_of_divergence);
    Distillation { cross_entropy: LossSum { sum, count }, divergence }
}

/// Returns a tensor without autodiff.
fn plain(x: Tensor<2>) -> Tensor<2> {
    AnyFloat::from(x).plain().tensor()
}

/// Returns a tensor without autodiff as one that stands beside tensors of `device`.
fn beside(x: Tensor<2>, device: &Device) -> Tensor<2> {
    if device.is_autodiff() { Tensor::from_inner(x) } else { x }
}

#[derive(Clone, Debug)]
struct LinearDistillation {
    targets: Arc<[Option<usize>]>,
    options: CrossEntropyOptions,
    temperature: f64,
    weight_of_divergence: f64,
}

/// Inputs: the student's states and output layer, and those of the teacher. Output: the sum of cross-entropy and weighted
/// divergence, and the divergence, `[2]`; only the first one has a gradient.
impl HostOp<4> for LinearDistillation {
    type Saved = Unscaled<2>;

    fn forward(&self, [x, weight, states, layer]: [FlexTensor; 4], wanted: [bool; 4]) -> (FlexTensor, Unscaled<2>) {
        let ([classes, d], [_, of_teacher]) = (sizes(&weight), sizes(&layer));
        let label_smoothing = self.options.label_smoothing as f32;
        let loss = LinearCrossEntropy { targets: &self.targets, classes, label_smoothing };
        let teacher = Teacher {
            x: floats(&states),
            weight: numbers(&layer),
            d: of_teacher,
            temperature: self.temperature as f32,
            weight_of_divergence: self.weight_of_divergence as f32,
        };
        let wanted = Wanted { x: wanted[0], weight: wanted[1], bias: false };
        let found = distilled(&loss, &teacher, floats(&x), numbers(&weight), d, wanted);
        let gradients = [found.loss.x.map(|g| like(g, &x)), found.loss.weight.map(|g| like(g, &weight))];
        (tensor(vec![found.loss.sum as f32, found.divergence as f32], [2]), gradients)
    }

    fn backward(self, saved: Unscaled<2>, upstream: FlexTensor, _: [bool; 4]) -> Unscaled<4> {
        let [x, weight] = scaled(saved, &upstream);
        [x, weight, None, None]
    }
}

fn sizes(weight: &FlexTensor) -> [usize; 2] {
    let shape = weight.layout().shape();
    [shape[0], shape[1]]
}

/// The same on every other backend. The teacher is without autodiff.
fn step(
    x: Tensor<2>,
    weight: Tensor<2>,
    taught: Taught,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> Distillation {
    let targets = targets.inner();
    let count = counted(targets.clone(), options);
    let mut divergences = Vec::new();
    let Taught { states, weight: layer, temperature, weight_of_divergence } = taught;
    let layer = host::restored(layer, states.dtype()).transpose();
    let of_rows = |logits: Tensor<2>, rows: Range<usize>| {
        let targets = targets.clone().slice_dim(0, rows.clone());
        let of_teacher = matmul_as(states.clone().slice_dim(0, rows), layer.clone(), DType::F32);
        let diverging = divergence(logits.clone(), of_teacher, targets.clone(), options, temperature);
        let own = row_losses(logits, targets, options);
        divergences.push(diverging.losses.clone());
        RowLosses {
            losses: own.losses + diverging.losses.mul_scalar(weight_of_divergence),
            gradient: own.gradient + diverging.gradient.mul_scalar(weight_of_divergence),
        }
    };
    let total = output_layer::step(x, weight, None, of_rows);
    let device = total.device();
    let divergence = sum(Tensor::cat(divergences, 0));
    let divergence = if device.is_autodiff() { Tensor::from_inner(divergence) } else { divergence };
    let count = if device.is_autodiff() { Tensor::from_inner(count) } else { count };
    let sum = total - divergence.clone().mul_scalar(weight_of_divergence);
    Distillation { cross_entropy: LossSum { sum, count }, divergence }
}

/// Returns `τ² KL(teacher ‖ student)` of each counted row, and its gradient for the student's logits.
fn divergence(
    student: Tensor<2>,
    teacher: Tensor<2>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
    temperature: f64,
) -> RowLosses {
    let (shape, device) = (student.dims(), student.device());
    let [student, teacher] = [student, teacher].map(|logits| log_softmax(logits.div_scalar(temperature), 1));
    let p = teacher.clone().exp();
    // A class that the teacher excludes adds nothing: not 0 times infinity.
    let excluded = p.clone().equal_scalar(0.0);
    let each = (p.clone() * (teacher - student.clone())).mask_fill(excluded, 0.0);
    let losses = each.sum_dim(1).squeeze_dim::<1>(1).mul_scalar(temperature * temperature);
    let gradient = (student.exp() - p).mul_scalar(temperature);
    let ignored = targets.equal_scalar(options.ignore_index);
    let of_classes = ignored.clone().unsqueeze_dim::<2>(1).expand(shape);
    RowLosses {
        losses: losses.mask_where(ignored, Tensor::zeros([shape[0]], &device)),
        gradient: gradient.mask_fill(of_classes, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cross_entropy::composed;
    use super::*;
    use crate::testing::{Inputs, compare, device, held};
    use proptest::prelude::*;

    type Loss = fn(Tensor<2>, Tensor<2>, Taught, Tensor<1, Int>, CrossEntropyOptions) -> Distillation;

    const TEMPERATURE: f64 = 2.0;
    const WEIGHT: f64 = 0.8;

    /// Cross-entropy and divergence by Burn's own operations, whose gradients Burn derives.
    fn parts(
        x: Tensor<2>,
        weight: Tensor<2>,
        taught: &Taught,
        targets: Tensor<1, Int>,
        options: CrossEntropyOptions,
    ) -> Tensor<1> {
        let logits = host::f32::<2>(x).matmul(host::f32(weight.transpose()));
        let counted = targets.clone().not_equal_scalar(options.ignore_index).float();
        let own = composed(logits.clone(), targets, options).sum;
        let of_teacher = host::f32::<2>(taught.states.clone()).matmul(host::f32(taught.weight.clone().transpose()));
        let on = logits.device();
        let of_teacher = if on.is_autodiff() { Tensor::from_inner(of_teacher) } else { of_teacher };
        let [q, p] = [logits, of_teacher].map(|logits| log_softmax(logits.div_scalar(TEMPERATURE), 1));
        let rows = (p.clone().exp() * (p - q)).sum_dim(1).squeeze_dim::<1>(1);
        own + (rows * counted).sum().mul_scalar(WEIGHT * TEMPERATURE * TEMPERATURE)
    }

    fn taught(states: Tensor<2>, weight: Tensor<2>) -> Taught {
        Taught { states, weight, temperature: TEMPERATURE, weight_of_divergence: WEIGHT }
    }

    fn total(found: Distillation) -> Tensor<1> {
        found.cross_entropy.sum + found.divergence.mul_scalar(WEIGHT)
    }

    proptest! {
        #[test]
        fn equals_its_parts(
            (rows, classes, d, wider) in (1_usize..20, 2_usize..60, 1_usize..20, 1_usize..20),
            (smooth, half) in any::<(bool, bool)>(),
        ) {
            let inputs = Inputs::default().half(half);
            let targets: Vec<i64> = (0..rows).map(|i| if i % 4 == 2 { -100 } else { (i * 7 % classes) as i64 }).collect();
            let targets = Tensor::<1, Int>::from_ints(targets.as_slice(), &device());
            let options = CrossEntropyOptions { label_smoothing: if smooth { 0.1 } else { 0.0 }, ..Default::default() };
            let [x, weight, states, layer] =
                [[rows, d], [classes, d], [rows, wider], [classes, wider]].map(|shape| inputs.tensor(shape));
            let taught = taught(states.inner(), layer.inner());
            for f in [linear_distillation as Loss, step] {
                compare(
                    [x.clone(), weight.clone()],
                    |[x, w]| total(f(x, w, taught.clone(), targets.clone(), options)),
                    |[x, w]| parts(x, w, &taught, targets.clone(), options),
                );
            }
        }
    }

    #[test]
    fn a_teacher_that_is_held_in_half_precision_counts_as_its_numbers() {
        let targets = Tensor::<1, Int>::from_ints([1, -100, 0, 7, 59, 2], &device());
        let [x, weight, states] = [[6, 12], [60, 12], [6, 8]].map(|shape| Inputs::default().tensor(shape).inner());
        for [half, full] in held([60, 8]) {
            for f in [linear_distillation as Loss, step] {
                let [a, b] = [&half, &full].map(|layer| {
                    let taught = taught(states.clone(), layer.clone());
                    let found = f(x.clone(), weight.clone(), taught, targets.clone(), Default::default());
                    total(found).into_scalar::<f32>()
                });
                assert!((a - b).abs() < 1e-4 * b.abs(), "{a} and {b}");
            }
        }
    }
}
