//! Cross-entropy of logits.

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::graph::differentiated;
use crate::host::{self, runs_ahead};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::sum;
use burn::tensor::{Int, Tensor, activation::log_softmax};

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
pub(super) fn composed(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> LossSum {
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
pub(super) fn counted(targets: Tensor<1, Int>, options: CrossEntropyOptions) -> Tensor<1> {
    sum(targets.not_equal_scalar(options.ignore_index).float())
}

/// Loss of each row, `[rows]`, and gradient of the logits, `[rows, classes]`, for the sum of all losses.
pub(super) struct RowLosses {
    pub(super) losses: Tensor<1>,
    pub(super) gradient: Tensor<2>,
}

/// Returns the losses of f32 logits, off the CPU and without autodiff.
pub(super) fn row_losses(logits: Tensor<2>, targets: Tensor<1, Int>, options: CrossEntropyOptions) -> RowLosses {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, pseudo_random};

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
}
