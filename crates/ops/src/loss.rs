//! Losses, returned as a sum and a count so that a caller can average over more than one batch exactly.

use crate::linear;
use burn::tensor::{DType, Int, Tensor, activation::log_softmax};

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
    LossSum { sum: (nll * counted.clone()).sum(), count: counted.sum() }
}

/// Cross-entropy of `x · weightᵀ` against class indices, summed: the output layer and the loss in one, so that a backend
/// may avoid holding `[rows, classes]` logits.
///
/// # Shapes
/// - `x`: `[rows, d_model]`; `weight`: `[classes, d_model]`; `targets`: `[rows]`
pub fn linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    targets: Tensor<1, Int>,
    options: CrossEntropyOptions,
) -> LossSum {
    cross_entropy(linear(x, weight, None), targets, options)
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
    fn a_batch_without_targets_has_mean_zero() {
        let loss = cross_entropy(
            Tensor::ones([2, 3], &device()),
            Tensor::<1, Int>::from_ints([-100, -100], &device()),
            Default::default(),
        );
        assert_close(loss.mean(), &[0.0], 0.0);
    }

    #[test]
    fn the_fused_signature_equals_its_parts() {
        let x = Tensor::<1>::from_floats(pseudo_random(12, 1).as_slice(), &device()).reshape([4, 3]);
        let weight = Tensor::<1>::from_floats(pseudo_random(15, 2).as_slice(), &device()).reshape([5, 3]);
        let targets = Tensor::<1, Int>::from_ints([1, 4, -100, 0], &device());
        let parts = cross_entropy(linear(x.clone(), weight.clone(), None), targets.clone(), Default::default());
        let whole = linear_cross_entropy(x, weight, targets, Default::default());
        assert_close(whole.sum, &[parts.sum.into_scalar::<f32>()], 1e-6);
    }
}
