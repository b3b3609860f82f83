//! Optimizer step of AdamW, and the squared norm that gradient clipping needs.

use rayon::prelude::*;

use crate::simd::{simd_fn, sum_by};

/// Elements per piece of work.
const CHUNK: usize = 1 << 14;

/// Number of elements that are summed in f32 before the sum continues in f64.
const SUM: usize = 1 << 12;

/// One step of AdamW (Loshchilov and Hutter, 2019) with burn-optim's arithmetic: decay by `learning_rate ·
/// weight_decay`, bias correction of both moments, `epsilon` added to the corrected root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator, so that it is not 0.
    pub epsilon: f32,
    /// Weight decay, in units of the learning rate.
    pub weight_decay: f32,
    /// Number of this step: 1 at the first.
    pub step: u64,
    /// Factor of the gradient, for clipping by norm and accumulation: 1 for neither.
    pub gradient_scale: f32,
}

impl AdamW {
    /// Updates `parameter` and its moments in one pass over memory. The moments are zero before the first step. All
    /// slices have one length.
    ///
    /// # Panics
    /// If the lengths differ, or `step` is 0.
    pub fn update(&self, parameter: &mut [f32], moment1: &mut [f32], moment2: &mut [f32], gradient: &[f32]) {
        let n = parameter.len();
        assert!([moment1.len(), moment2.len(), gradient.len()] == [n; 3], "moments and a gradient for each parameter");
        assert!(self.step > 0, "steps count from 1");
        let factors = Factors::new(self);
        let chunks = parameter.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        let moments = moment1.par_chunks_mut(CHUNK).zip(moment2.par_chunks_mut(CHUNK));
        chunks.zip(moments).for_each(|((parameter, gradient), (moment1, moment2))| {
            update_chunk(factors, parameter, moment1, moment2, gradient);
        });
    }
}

/// Returns `Σ x²`, the squared gradient norm for a gradient; infinite if a square exceeds the range of f32.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    // Collected first: rayon's own sum would add in an order that depends on the threads.
    let sums: Vec<f32> = x.par_chunks(SUM).map(squared_norm).collect();
    sums.into_iter().map(f64::from).sum()
}

/// Factors of a step, the same for all elements.
#[derive(Clone, Copy)]
struct Factors {
    gradient: f32,
    keep1: f32,
    add1: f32,
    keep2: f32,
    add2: f32,
    /// Factor of the parameter, by weight decay.
    decay: f32,
    /// Learning rate divided by the first moment's bias correction.
    rate: f32,
    /// Reciprocal of the second moment's bias correction.
    correction2: f32,
    epsilon: f32,
}

impl Factors {
    /// Computed in f64: `1 - 0.999ⁿ` would lose half of f32's digits at the first steps.
    fn new(adamw: &AdamW) -> Self {
        let [rate, decay, beta1, beta2] =
            [adamw.learning_rate, adamw.weight_decay, adamw.beta1, adamw.beta2].map(f64::from);
        let correction = |beta: f64| 1.0 - beta.powf(adamw.step as f64);
        Self {
            gradient: adamw.gradient_scale,
            keep1: adamw.beta1,
            add1: (1.0 - beta1) as f32,
            keep2: adamw.beta2,
            add2: (1.0 - beta2) as f32,
            decay: (1.0 - rate * decay) as f32,
            rate: (rate / correction(beta1)) as f32,
            correction2: (1.0 / correction(beta2)) as f32,
            epsilon: adamw.epsilon,
        }
    }
}

simd_fn! {
    fn update_chunk<S>(
        factors: Factors,
        parameter: &mut [f32],
        moment1: &mut [f32],
        moment2: &mut [f32],
        gradient: &[f32],
    ) {
        let f = factors;
        for (((p, m), v), g) in parameter.iter_mut().zip(moment1).zip(moment2).zip(gradient) {
            let g = g * f.gradient;
            *m = S::fma(*m, f.keep1, g * f.add1);
            *v = S::fma(*v, f.keep2, g * g * f.add2);
            *p = S::fma(*p, f.decay, -f.rate * *m / ((*v * f.correction2).sqrt() + f.epsilon));
        }
    }
}

simd_fn! {
    fn squared_norm<S>(x: &[f32]) -> f32 {
        sum_by(x.len(), |i| x[i] * x[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, on_threads, random, wide};
    use proptest::prelude::*;

    const ADAMW: AdamW = AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.98,
        epsilon: 1e-6,
        weight_decay: 0.1,
        step: 1,
        gradient_scale: 0.7,
    };

    /// burn-optim's `AdamW::step`, in f64.
    fn exact(a: &AdamW, p: &mut [f64], m: &mut [f64], v: &mut [f64], gradient: &[f32]) {
        let [rate, decay, beta1, beta2, epsilon] =
            [a.learning_rate, a.weight_decay, a.beta1, a.beta2, a.epsilon].map(f64::from);
        let time = i32::try_from(a.step).expect("few steps");
        for (i, g) in gradient.iter().enumerate() {
            let g = f64::from(*g) * f64::from(a.gradient_scale);
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let corrected1 = m[i] / (1.0 - beta1.powi(time));
            let corrected2 = v[i] / (1.0 - beta2.powi(time));
            p[i] = p[i] * (1.0 - rate * decay) - rate * corrected1 / (corrected2.sqrt() + epsilon);
        }
    }

    /// Parameters and moments after `steps` of random gradients.
    fn trained(n: usize, steps: u64) -> [Vec<f32>; 3] {
        let (mut p, mut m, mut v) = (random(n, 1), vec![0.0; n], vec![0.0; n]);
        for step in 1..=steps {
            AdamW { step, ..ADAMW }.update(&mut p, &mut m, &mut v, &random(n, 100 + step));
        }
        [p, m, v]
    }

    #[test]
    fn steps_follow_burns() {
        let n = 1003;
        let (mut p, mut m, mut v) = (wide(&random(n, 1)), vec![0.0; n], vec![0.0; n]);
        for step in 1..=20 {
            exact(&AdamW { step, ..ADAMW }, &mut p, &mut m, &mut v, &random(n, 100 + step));
        }
        let [parameter, moment1, moment2] = trained(n, 20);
        assert_close(&parameter, &p, 1e-6);
        assert_close(&moment1, &m, 1e-6);
        assert_close(&moment2, &v, 1e-6);
    }

    #[test]
    fn the_first_step_is_the_learning_rate_towards_the_gradients_sign() {
        let mut p = [1.0, 1.0, 1.0];
        AdamW { weight_decay: 0.0, ..ADAMW }.update(&mut p, &mut [0.0; 3], &mut [0.0; 3], &[3.0, -20.0, 0.0]);
        assert_close(&p, &[0.99, 1.01, 1.0], 1e-6);
    }

    #[test]
    fn nothing_is_a_step_too() {
        ADAMW.update(&mut [], &mut [], &mut [], &[]);
        assert_eq!(sum_of_squares(&[]), 0.0);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let x = random(5 * CHUNK + 7, 3);
        let (one, three) = on_threads(|| (trained(x.len(), 2), sum_of_squares(&x)));
        assert_eq!(one, three);
    }

    #[test]
    #[should_panic(expected = "moments and a gradient for each parameter")]
    fn a_gradient_of_another_length_is_refused() {
        ADAMW.update(&mut [0.0; 2], &mut [0.0; 2], &mut [0.0; 2], &[0.0; 3]);
    }

    proptest! {
        #[test]
        fn squares_are_summed_exactly_enough(n in 0_usize..20_000, seed: u64) {
            let x = random(n, seed);
            let exact: f64 = wide(&x).iter().map(|x| x * x).sum();
            prop_assert!((sum_of_squares(&x) - exact).abs() <= 1e-6 * exact);
        }
    }
}
