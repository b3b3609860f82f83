//! Cross-entropy over a vocabulary, fused with the layer that computes its logits.
//!
//! Logits are computed for a chunk of rows at a time and overwritten by their own gradients, so `[rows, classes]` never
//! exists as a whole. The gradients are therefore computed in the forward pass, for an upstream gradient of 1, and
//! scaled in the backward pass.

use crate::linear;
use crate::matrix::{Matrix, Threads, add_product};
use crate::norm::column_sums;
use crate::numbers::Numbers;
use crate::simd::{exp, max_of, simd_fn, sum_by};
use rayon::prelude::*;
use std::ops::Range;

/// Targets, classes and label smoothing.
#[derive(Clone, Copy, Debug)]
pub struct LinearCrossEntropy<'a> {
    /// Target class of each row; `None` for an ignored row.
    pub targets: &'a [Option<usize>],
    /// Number of classes.
    pub classes: usize,
    /// Label smoothing: the share of each target that is spread evenly over all classes.
    pub label_smoothing: f32,
}

/// Gradients to compute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Gradient of the input.
    pub x: bool,
    /// Gradient of the weight.
    pub weight: bool,
    /// Gradient of the bias.
    pub bias: bool,
}

/// Summed loss and its gradients.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// Sum over the rows that are not ignored.
    pub sum: f64,
    /// `[rows, d]`.
    pub x: Option<Vec<f32>>,
    /// `[classes, d]`.
    pub weight: Option<Vec<f32>>,
    /// `[classes]`.
    pub bias: Option<Vec<f32>>,
}

/// Number of logits that exist at a time: 256 rows of Whisper's vocabulary are 53 MB. Small vocabularies get longer
/// chunks, tests short ones.
pub(crate) const CHUNK: usize = if cfg!(test) { 3 * 64 } else { 256 * 51_865 };

impl LinearCrossEntropy<'_> {
    /// Returns the loss of `x · weightᵀ + bias`, with `x` `[rows, d]`, `weight` `[classes, d]`, `bias` `[classes]`.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape, or a target is not a class index.
    pub fn forward(&self, x: &[f32], weight: Numbers, bias: Option<&[f32]>, d: usize, wanted: Wanted) -> Loss {
        let layer = OutputLayer { weight, bias, d, classes: self.classes };
        let mut sum = 0.0;
        let gradients = layer.in_chunks(x, self.targets.len(), wanted, |logits, rows| {
            sum += self.gradients_in_place(logits, &self.targets[rows]);
        });
        Loss { sum, ..gradients }
    }

    /// Returns the summed loss of these rows and overwrites their logits by the gradients.
    fn gradients_in_place(&self, logits: &mut [f32], targets: &[Option<usize>]) -> f64 {
        let each: Vec<f64> = logits
            .par_chunks_mut(self.classes)
            .zip(targets)
            .map(|(logits, target)| match target {
                Some(target) => {
                    assert!(*target < self.classes, "target {target} is none of {} classes", self.classes);
                    f64::from(row_loss(logits, *target, self.label_smoothing))
                }
                None => {
                    logits.fill(0.0);
                    0.0
                }
            })
            .collect();
        each.iter().sum()
    }
}

/// The layer that computes logits, `x · weightᵀ + bias`.
pub(crate) struct OutputLayer<'a> {
    /// `[classes, d]`.
    pub(crate) weight: Numbers<'a>,
    /// `[classes]`.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) d: usize,
    pub(crate) classes: usize,
}

impl OutputLayer<'_> {
    /// Returns the gradients of a loss of which `in_place` overwrites logits, `[rows, classes]`, by their gradients. It is
    /// called for a few rows at a time, in order.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    pub(crate) fn in_chunks(
        &self,
        x: &[f32],
        rows: usize,
        wanted: Wanted,
        mut in_place: impl FnMut(&mut [f32], Range<usize>),
    ) -> Loss {
        let Self { weight, bias, d, classes } = *self;
        assert_eq!(x.len(), rows * d, "the input is [rows, d]");
        assert_eq!(weight.len(), classes * d, "the weight is [classes, d]");
        assert!(bias.is_none_or(|bias| bias.len() == classes), "the bias is [classes]");
        let mut loss = Loss {
            sum: 0.0,
            x: wanted.x.then(|| Vec::with_capacity(x.len())),
            weight: None,
            bias: wanted.bias.then(|| vec![0.0; classes]),
        };
        let chunk = (CHUNK / classes.max(1)).max(1);
        for start in (0..rows).step_by(chunk) {
            let end = (start + chunk).min(rows);
            let x = &x[start * d..end * d];
            let mut logits = self.logits(x);
            in_place(&mut logits, start..end);
            if let Some(dx) = &mut loss.x {
                dx.extend(linear::backward_x(&logits, weight, d, classes));
            }
            if let Some(dw) = &mut loss.weight {
                let (gradients, x) = (Matrix::new(&logits, end - start, classes), Matrix::new(x, end - start, d));
                add_product(dw, d, gradients.transposed(), x, 1.0, Threads::All);
            } else if wanted.weight {
                loss.weight = Some(linear::backward_weight(&logits, Numbers::F32(x), d, classes));
            }
            if let Some(db) = &mut loss.bias {
                let sums = column_sums(&logits, classes);
                db.iter_mut().zip(sums).for_each(|(db, sum)| *db += sum);
            }
        }
        if wanted.weight && loss.weight.is_none() {
            loss.weight = Some(vec![0.0; weight.len()]);
        }
        loss
    }

    /// Returns the logits of some rows, `[rows, classes]`.
    pub(crate) fn logits(&self, x: &[f32]) -> Vec<f32> {
        linear::forward(x, self.weight, self.bias, self.d, self.classes)
    }
}

simd_fn! {
    /// Returns the loss of one row, `ln Σ exp(l) - (1 - ε) l[target] - ε mean(l)`; its gradient is `softmax(l) - target
    /// distribution`.
    pub(crate) fn row_loss<S>(logits: &mut [f32], target: usize, smoothing: f32) -> f32 {
        let n = logits.len();
        let most = max_of(logits);
        let mean = if smoothing > 0.0 { sum_by(n, |i| logits[i] - most) / n as f32 } else { 0.0 };
        let aimed = logits[target] - most;
        for logit in logits.iter_mut() {
            *logit = exp::<S>(*logit - most);
        }
        let total = sum_by(n, |i| logits[i]);
        let (factor, spread) = (total.recip(), smoothing / n as f32);
        for logit in logits.iter_mut() {
            *logit = S::fma(*logit, factor, -spread);
        }
        logits[target] -= 1.0 - smoothing;
        total.ln() - (1.0 - smoothing) * aimed - smoothing * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, targets, wide};
    use half::bf16;
    use proptest::prelude::*;

    fn by_definition(loss: &LinearCrossEntropy, x: &[f64], weight: &[f64], bias: &[f64], d: usize) -> f64 {
        let smoothing = f64::from(loss.label_smoothing);
        let row = |x: &[f64], target: usize| {
            let logit = |c: usize| bias[c] + x.iter().zip(&weight[c * d..]).map(|(x, w)| x * w).sum::<f64>();
            let log_sum = (0..loss.classes).map(|c| logit(c).exp()).sum::<f64>().ln();
            let mean = (0..loss.classes).map(logit).sum::<f64>() / loss.classes as f64;
            log_sum - (1.0 - smoothing) * logit(target) - smoothing * mean
        };
        x.chunks(d).zip(loss.targets).filter_map(|(x, target)| target.map(|t| row(x, t))).sum()
    }

    const ALL: Wanted = Wanted { x: true, weight: true, bias: true };

    proptest! {
        #[test]
        fn equals_its_definition_and_its_gradients_are_the_derivatives(
            (rows, classes, d) in (1_usize..8, 1_usize..50, 1_usize..6),
            label_smoothing in prop_oneof![Just(0.0_f32), Just(0.1)],
        ) {
            let targets = targets(rows, classes);
            let loss = LinearCrossEntropy { targets: &targets, classes, label_smoothing };
            let (x, weight, bias) = (random(rows * d, 1), random(classes * d, 2), random(classes, 3));
            let (wide_x, wide_weight, wide_bias) = (wide(&x), wide(&weight), wide(&bias));
            let found = loss.forward(&x, Numbers::F32(&weight), Some(&bias), d, ALL);
            let expected = by_definition(&loss, &wide_x, &wide_weight, &wide_bias, d);
            prop_assert!((found.sum - expected).abs() < 1e-4, "{} is not {expected}", found.sum);
            let gradient = numeric_gradient(&wide_x, |x| by_definition(&loss, x, &wide_weight, &wide_bias, d));
            assert_close(&found.x.unwrap(), &gradient, 1e-5);
            let gradient = numeric_gradient(&wide_weight, |w| by_definition(&loss, &wide_x, w, &wide_bias, d));
            assert_close(&found.weight.unwrap(), &gradient, 1e-5);
            let gradient = numeric_gradient(&wide_bias, |b| by_definition(&loss, &wide_x, &wide_weight, b, d));
            assert_close(&found.bias.unwrap(), &gradient, 1e-5);
        }
    }

    #[test]
    fn many_chunks_sum_to_the_whole() {
        // Three chunks of rows, the last one short.
        let (classes, d) = (CHUNK / 3, 5);
        let targets = targets(8, classes);
        let (x, weight) = (random(8 * d, 1), random(classes * d, 2));
        let run = |targets: &[Option<usize>], x: &[f32]| {
            let loss = LinearCrossEntropy { targets, classes, label_smoothing: 0.1 };
            loss.forward(x, Numbers::F32(&weight), None, d, ALL)
        };
        let (whole, other_threads) = on_threads(|| run(&targets, &x));
        assert_eq!((whole.sum, &whole.x, &whole.weight), (other_threads.sum, &other_threads.x, &other_threads.weight));
        let rows: Vec<Loss> = (0..8).map(|i| run(&targets[i..=i], &x[i * d..][..d])).collect();
        assert!((whole.sum - rows.iter().map(|l| l.sum).sum::<f64>()).abs() < 1e-4);
        let expected: Vec<f64> = rows.iter().flat_map(|l| wide(l.x.as_ref().unwrap())).collect();
        assert_close(&whole.x.unwrap(), &expected, 1e-6);
        let sum = |i: usize| rows.iter().map(|l| f64::from(l.weight.as_ref().unwrap()[i])).sum::<f64>();
        assert_close(&whole.weight.unwrap(), &(0..classes * d).map(sum).collect::<Vec<_>>(), 1e-6);
    }

    #[test]
    fn rows_without_a_target_cost_nothing_and_frozen_inputs_get_no_gradient() {
        let loss = LinearCrossEntropy { targets: &[None, None], classes: 3, label_smoothing: 0.0 };
        let found = loss.forward(&[1.0; 4], Numbers::F32(&[1.0; 6]), None, 2, Wanted { x: true, ..Default::default() });
        assert_eq!((found.sum, found.x, found.weight), (0.0, Some(vec![0.0; 4]), None));
    }

    #[test]
    fn a_weight_in_half_precision_gives_the_bits_of_its_numbers_in_f32() {
        let (rows, classes, d) = (8, CHUNK / 3, 5);
        let (targets, x) = (targets(rows, classes), random(rows * d, 1));
        let half: Vec<bf16> = random(classes * d, 2).into_iter().map(bf16::from_f32).collect();
        let full: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        let loss = LinearCrossEntropy { targets: &targets, classes, label_smoothing: 0.1 };
        let [a, b] = [Numbers::Bf16(&half), Numbers::F32(&full)].map(|weight| loss.forward(&x, weight, None, d, ALL));
        assert_eq!((a.sum, a.x, a.weight), (b.sum, b.x, b.weight));
    }
}
