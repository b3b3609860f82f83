//! Cross-entropy over a vocabulary with the divergence from a teacher's distribution (Hinton et al., 2015), fused with the
//! layers that compute the logits of both.
//!
//! As in [`loss`](crate::loss), logits exist for a chunk of rows at a time, and the gradients are those of an upstream
//! gradient of 1. The teacher gets none.

use crate::loss::{LinearCrossEntropy, Loss, OutputLayer, Wanted, row_loss};
use crate::numbers::Numbers;
use crate::simd::{exp, max_of, simd_fn, sum_by};
use rayon::prelude::*;

/// Teacher of a student with the same vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Teacher<'a> {
    /// Its last states, `[rows, d]`.
    pub x: &'a [f32],
    /// Its output layer, `[classes, d]`.
    pub weight: Numbers<'a>,
    /// Width of its states.
    pub d: usize,
    /// Temperature τ that divides the logits of both.
    pub temperature: f32,
    /// Weight of the divergence; that of the cross-entropy is 1.
    pub weight_of_divergence: f32,
}

/// Cross-entropy with the divergence from a teacher.
#[derive(Clone, Debug)]
pub struct Distilled {
    /// Sum of the cross-entropy plus the weighted divergence, and its gradients.
    pub loss: Loss,
    /// Divergence `τ² KL(teacher ‖ student)`, summed over the rows that are not ignored. Times τ², its gradients do not
    /// shrink as the temperature grows.
    pub divergence: f64,
}

/// Returns the loss of a student's logits, `x · weightᵀ`, with `x` `[rows, d]` and `weight` `[classes, d]`.
///
/// # Panics
/// If the length of a slice differs from its shape, or a target is not a class index.
pub fn distilled(
    loss: &LinearCrossEntropy,
    teacher: &Teacher,
    x: &[f32],
    weight: Numbers,
    d: usize,
    wanted: Wanted,
) -> Distilled {
    let (rows, classes) = (loss.targets.len(), loss.classes);
    assert_eq!(teacher.x.len(), rows * teacher.d, "the teacher's states are [rows, d]");
    assert_eq!(teacher.weight.len(), classes * teacher.d, "the teacher's weight is [classes, d]");
    let (mut sum, mut divergence) = (0.0, 0.0);
    let of_teacher = OutputLayer { weight: teacher.weight, bias: None, d: teacher.d, classes };
    let gradients = OutputLayer { weight, bias: None, d, classes }.in_chunks(x, rows, wanted, |logits, rows| {
        let mut taught = of_teacher.logits(&teacher.x[rows.start * teacher.d..rows.end * teacher.d]);
        for [of_row, diverges] in in_place(loss, teacher, logits, &mut taught, &loss.targets[rows]) {
            sum += of_row + f64::from(teacher.weight_of_divergence) * diverges;
            divergence += diverges;
        }
    });
    Distilled { loss: Loss { sum, ..gradients }, divergence }
}

/// Returns cross-entropy and divergence of each row, and overwrites the student's logits by the gradients. `taught` are the
/// teacher's logits.
fn in_place(
    loss: &LinearCrossEntropy,
    teacher: &Teacher,
    logits: &mut [f32],
    taught: &mut [f32],
    targets: &[Option<usize>],
) -> Vec<[f64; 2]> {
    let (classes, temperature) = (loss.classes, teacher.temperature);
    let rows = logits.par_chunks_mut(classes).zip(taught.par_chunks_mut(classes)).zip(targets);
    let of_row = |soft: &mut Vec<f32>, ((logits, taught), target): ((&mut [f32], &mut [f32]), &Option<usize>)| {
        let Some(target) = *target else {
            logits.fill(0.0);
            return [0.0; 2];
        };
        assert!(target < classes, "target {target} is none of {classes} classes");
        let divergence = divergence(soft, logits, taught, temperature.recip());
        let sum = row_loss(logits, target, loss.label_smoothing);
        // The gradient of τ² KL is τ (softmax(student / τ) - softmax(teacher / τ)).
        add_difference(logits, soft, taught, temperature * teacher.weight_of_divergence);
        [f64::from(sum), f64::from(temperature * temperature * divergence)]
    };
    rows.map_init(|| vec![0.0; classes], of_row).collect()
}

simd_fn! {
    /// Returns `KL(teacher ‖ student)` of one row, for logits times `scale`. Writes the student's probabilities to `soft`,
    /// and overwrites the teacher's logits by its probabilities.
    fn divergence<S>(soft: &mut [f32], student: &[f32], teacher: &mut [f32], scale: f32) -> f32 {
        let n = student.len();
        let (soft, teacher) = (&mut soft[..n], &mut teacher[..n]);
        let (most_student, most_teacher) = (max_of(student), max_of(teacher));
        for i in 0..n {
            let of_teacher = (teacher[i] - most_teacher) * scale;
            let e = exp::<S>(of_teacher);
            let difference = of_teacher - (student[i] - most_student) * scale;
            // A class that the teacher excludes adds nothing, whatever its probability for the student.
            soft[i] = if e > 0.0 { e * difference } else { 0.0 };
            teacher[i] = e;
        }
        let (differences, of_teacher) = (sum_by(n, |i| soft[i]), sum_by(n, |i| teacher[i]));
        for i in 0..n {
            soft[i] = exp::<S>((student[i] - most_student) * scale);
        }
        let of_student = sum_by(n, |i| soft[i]);
        let (student_factor, teacher_factor) = (of_student.recip(), of_teacher.recip());
        for i in 0..n {
            soft[i] *= student_factor;
            teacher[i] *= teacher_factor;
        }
        differences * teacher_factor + of_student.ln() - of_teacher.ln()
    }
}

simd_fn! {
    /// Adds `factor · (a - b)` to a row.
    fn add_difference<S>(row: &mut [f32], a: &[f32], b: &[f32], factor: f32) {
        let n = row.len();
        let (a, b) = (&a[..n], &b[..n]);
        for i in 0..n {
            row[i] = S::fma(factor, a[i] - b[i], row[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::CHUNK;
    use crate::testing::{assert_close, numeric_gradient, on_threads, random, targets, wide};
    use proptest::prelude::*;

    const ALL: Wanted = Wanted { x: true, weight: true, bias: false };

    /// Returns the cross-entropy without smoothing and `τ² KL`, in f64.
    fn by_definition(
        targets: &[Option<usize>],
        classes: usize,
        [student, teacher]: [(&[f64], &[f64], usize); 2],
        temperature: f64,
    ) -> [f64; 2] {
        let log_p = |(x, weight, d): (&[f64], &[f64], usize), row: usize, temperature: f64| {
            let logit = |c: usize| x[row * d..][..d].iter().zip(&weight[c * d..]).map(|(x, w)| x * w).sum::<f64>();
            let logits: Vec<f64> = (0..classes).map(|c| logit(c) / temperature).collect();
            let log_sum = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
            logits.into_iter().map(|l| l - log_sum).collect::<Vec<f64>>()
        };
        let mut sums = [0.0; 2];
        for (row, target) in targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            sums[0] -= log_p(student, row, 1.0)[target];
            let [p, q] = [teacher, student].map(|of| log_p(of, row, temperature));
            sums[1] += temperature.powi(2) * p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        }
        sums
    }

    proptest! {
        #[test]
        fn equals_its_definition_and_its_gradients_are_the_derivatives(
            (rows, classes, d, wider) in (1_usize..8, 2_usize..40, 1_usize..6, 1_usize..6),
            (temperature, weight_of_divergence) in (prop_oneof![Just(1.0_f32), Just(2.0)], prop_oneof![Just(0.8_f32), Just(1.0)]),
        ) {
            let targets = targets(rows, classes);
            let loss = LinearCrossEntropy { targets: &targets, classes, label_smoothing: 0.0 };
            let (x, weight) = (random(rows * d, 1), random(classes * d, 2));
            let (taught, layer) = (random(rows * wider, 3), random(classes * wider, 4));
            let teacher = Teacher { x: &taught, weight: Numbers::F32(&layer), d: wider, temperature, weight_of_divergence };
            let found = distilled(&loss, &teacher, &x, Numbers::F32(&weight), d, ALL);
            let (wide_x, wide_weight) = (wide(&x), wide(&weight));
            let (wide_taught, wide_layer) = (wide(&taught), wide(&layer));
            let sums = |x: &[f64], weight: &[f64]| {
                let both = [(x, weight, d), (&wide_taught[..], &wide_layer[..], wider)];
                by_definition(&targets, classes, both, f64::from(temperature))
            };
            let total = |[own, diverges]: [f64; 2]| own + f64::from(weight_of_divergence) * diverges;
            let expected = sums(&wide_x, &wide_weight);
            prop_assert!((found.divergence - expected[1]).abs() < 1e-4, "{} is not {}", found.divergence, expected[1]);
            prop_assert!((found.loss.sum - total(expected)).abs() < 1e-4, "{} is not {expected:?}", found.loss.sum);
            let gradient = numeric_gradient(&wide_x, |x| total(sums(x, &wide_weight)));
            assert_close(&found.loss.x.unwrap(), &gradient, 1e-5);
            let gradient = numeric_gradient(&wide_weight, |weight| total(sums(&wide_x, weight)));
            assert_close(&found.loss.weight.unwrap(), &gradient, 1e-5);
        }
    }

    #[test]
    fn a_student_that_knows_what_its_teacher_knows_learns_from_the_targets_alone() {
        let (classes, d) = (CHUNK / 3, 5);
        let targets = targets(8, classes);
        let (x, weight) = (random(8 * d, 1), random(classes * d, 2));
        let weight = Numbers::F32(&weight);
        let loss = LinearCrossEntropy { targets: &targets, classes, label_smoothing: 0.1 };
        let teacher = Teacher { x: &x, weight, d, temperature: 2.0, weight_of_divergence: 1.0 };
        let (found, other_threads) = on_threads(|| distilled(&loss, &teacher, &x, weight, d, ALL));
        assert_eq!((found.loss.sum, &found.loss.x), (other_threads.loss.sum, &other_threads.loss.x));
        assert!(found.divergence.abs() < 1e-5, "{}", found.divergence);
        let alone = loss.forward(&x, weight, None, d, ALL);
        assert_close(&found.loss.x.unwrap(), &wide(&alone.x.unwrap()), 1e-6);
        assert_close(&found.loss.weight.unwrap(), &wide(&alone.weight.unwrap()), 1e-6);
    }

    #[test]
    fn a_class_that_the_teacher_excludes_is_no_nan() {
        let mut teacher = [0.5, f32::NEG_INFINITY, -0.5];
        let mut soft = [0.0; 3];
        let found = divergence(&mut soft, &[0.1, 0.2, 0.3], &mut teacher, 0.5);
        assert!(found.is_finite() && found > 0.0, "{found}");
        assert_eq!(teacher[1], 0.0);
    }
}
