//! Arithmetic of an optimizer step, in one pass over each parameter's memory.

use crate::StepControl;
#[cfg(feature = "cube")]
use crate::cube;
#[cfg(any(feature = "cube", feature = "tch"))]
use crate::device::Backing;
use crate::host::{flex, floats, from_flex, fused};
#[cfg(feature = "tch")]
use crate::libtorch;
use burn::tensor::Tensor;
use undertone_kernels::{adafactor, adamw, pool};

/// One step of AdamW (Loshchilov and Hutter, 2019) for one parameter.
#[derive(Clone, Copy, Debug)]
pub struct AdamWRule {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the square root of the mean of squared gradients.
    pub epsilon: f64,
    /// Weight decay; it is multiplied by the learning rate.
    pub weight_decay: f64,
    /// Number of this step, from 1.
    pub step: u64,
    /// Factor applied to the gradient first.
    pub gradient_scale: f64,
}

/// Running means of a parameter's gradient, each `[elements]`.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Mean of gradients.
    pub mean: Tensor<1>,
    /// Mean of squared gradients.
    pub square: Tensor<1>,
}

impl AdamWRule {
    /// Returns the parameter and its moments after the step. All tensors are `[elements]`, f32, without autodiff. On
    /// the CPU they are updated in place when nothing else holds them.
    pub fn apply(&self, parameter: Tensor<1>, gradient: Tensor<1>, moments: Moments) -> (Tensor<1>, Moments) {
        #[cfg(feature = "tch")]
        if Backing::of(&parameter.device()) == Backing::LibTorch {
            let step = AdamWStep { rule: *self, parameter, gradient, moments };
            return adamw_on_libtorch(vec![step], None).remove(0);
        }
        if !fused(&parameter.device()) {
            return self.composed(parameter, gradient, moments);
        }
        let [mut p, g, mut m, mut v] = [parameter, gradient, moments.mean, moments.square].map(flex);
        // Storage that something else holds is copied here once.
        self.kernel().update(p.storage_mut(), m.storage_mut(), v.storage_mut(), floats(&g));
        let [parameter, mean, square] = [p, m, v].map(from_flex);
        (parameter, Moments { mean, square })
    }

    fn composed(&self, parameter: Tensor<1>, gradient: Tensor<1>, moments: Moments) -> (Tensor<1>, Moments) {
        let gradient = if self.gradient_scale == 1.0 { gradient } else { gradient.mul_scalar(self.gradient_scale) };
        let mean = moments.mean.mul_scalar(self.beta1) + gradient.clone().mul_scalar(1.0 - self.beta1);
        let square = moments.square.mul_scalar(self.beta2) + gradient.square().mul_scalar(1.0 - self.beta2);
        let corrected = |x: &Tensor<1>, beta: f64| x.clone().div_scalar(1.0 - beta.powf(self.step as f64));
        let delta = corrected(&mean, self.beta1) / corrected(&square, self.beta2).sqrt().add_scalar(self.epsilon);
        let kept = parameter.mul_scalar(1.0 - self.learning_rate * self.weight_decay);
        (kept - delta.mul_scalar(self.learning_rate), Moments { mean, square })
    }

    fn kernel(&self) -> adamw::AdamW {
        adamw::AdamW {
            learning_rate: self.learning_rate as f32,
            beta1: self.beta1 as f32,
            beta2: self.beta2 as f32,
            epsilon: self.epsilon as f32,
            weight_decay: self.weight_decay as f32,
            step: self.step,
            gradient_scale: self.gradient_scale as f32,
        }
    }
}

/// One step of Adafactor (Shazeer and Stern, 2018) for one parameter, with an external learning rate, as in
/// transformers.
#[derive(Clone, Copy, Debug)]
pub struct AdafactorRule {
    /// Learning rate: the upper bound of the root mean square of a parameter's update, before `clip_threshold` and
    /// `scale`.
    pub learning_rate: f64,
    /// Decay of the running mean of updates, if one is kept.
    pub beta1: f64,
    /// Exponent of the step number in `1 - beta2 = step ^ decay_rate`; below 0.
    pub decay_rate: f64,
    /// Added to every squared gradient.
    pub epsilon: f64,
    /// Maximum root mean square of a parameter's update, in units of the learning rate.
    pub clip_threshold: f64,
    /// Lower bound of the parameter's root mean square when the learning rate is multiplied by it; `None` for no such
    /// scaling.
    pub scale: Option<f64>,
    /// Weight decay; it is multiplied by the learning rate.
    pub weight_decay: f64,
    /// Number of this step, from 1.
    pub step: u64,
    /// Factor applied to the gradient first.
    pub gradient_scale: f64,
}

/// Running means of a parameter of `[batch, rows, columns]`. A vector is one row, so each of its elements is a column
/// with its own mean.
#[derive(Clone, Debug)]
pub struct FactoredMoments {
    /// Means of the squared gradients of each row, `[batch · rows]`.
    pub rows: Tensor<1>,
    /// Means of the squared gradients of each column, `[batch · columns]`.
    pub columns: Tensor<1>,
    /// Means of the updates, `[elements]`, if they are averaged.
    pub changes: Option<Tensor<1>>,
}

impl AdafactorRule {
    /// Returns the parameter, `[batch · rows · columns]`, and its moments after the step. All tensors are f32, without
    /// autodiff. On the CPU they are updated in place when nothing else holds them.
    pub fn apply(
        &self,
        shape: [usize; 3],
        parameter: Tensor<1>,
        gradient: Tensor<1>,
        moments: FactoredMoments,
    ) -> (Tensor<1>, FactoredMoments) {
        let device = parameter.device();
        if !fused(&device) {
            return self.composed(shape, parameter, gradient, moments);
        }
        let averaged = moments.changes.is_some();
        // The kernel takes an empty slice if there is no mean of updates.
        let changes = moments.changes.unwrap_or_else(|| Tensor::zeros([0], &device));
        let [mut p, g, mut r, mut c, mut m] = [parameter, gradient, moments.rows, moments.columns, changes].map(flex);
        // As for AdamW.
        let means = adafactor::Means { rows: r.storage_mut(), columns: c.storage_mut(), changes: m.storage_mut() };
        self.kernel().update(shape, p.storage_mut(), means, floats(&g));
        let [parameter, rows, columns, changes] = [p, r, c, m].map(from_flex);
        (parameter, FactoredMoments { rows, columns, changes: averaged.then_some(changes) })
    }

    fn composed(
        &self,
        shape: [usize; 3],
        parameter: Tensor<1>,
        gradient: Tensor<1>,
        moments: FactoredMoments,
    ) -> (Tensor<1>, FactoredMoments) {
        let [batch, rows, columns] = shape;
        let gradient = gradient.mul_scalar(self.gradient_scale).reshape(shape);
        let (add, epsilon) = (self.add2(), self.epsilon);
        let follow = |mean: Tensor<1>, squares: Tensor<1>| {
            mean.mul_scalar(1.0 - add) + squares.add_scalar(epsilon).mul_scalar(add)
        };
        let squares = gradient.clone().square();
        let row_means = follow(moments.rows, squares.clone().mean_dim(2).reshape([batch * rows]));
        let column_means = follow(moments.columns, squares.mean_dim(1).reshape([batch * columns]));
        let by_row = row_means.clone().reshape([batch, rows, 1]);
        let by_row = (by_row.clone().mean_dim(1) / by_row).sqrt();
        let by_column = column_means.clone().reshape([batch, 1, columns]).sqrt().recip();
        let change = (gradient * by_row * by_column).reshape([batch * rows * columns]);
        let mut rate = Tensor::<1>::full([1], self.learning_rate, &parameter.device());
        if let Some(least) = self.scale {
            rate = rate * parameter.clone().square().mean().sqrt().clamp_min(least);
        }
        let length = change.clone().square().mean().sqrt().div_scalar(self.clip_threshold).clamp_min(1.0);
        let change = change * (rate.clone() / length);
        let (change, changes) = match moments.changes {
            Some(mean) => {
                let mean = mean.mul_scalar(self.beta1) + change.mul_scalar(1.0 - self.beta1);
                (mean.clone(), Some(mean))
            }
            None => (change, None),
        };
        let kept = rate.mul_scalar(-self.weight_decay).add_scalar(1.0);
        (parameter * kept - change, FactoredMoments { rows: row_means, columns: column_means, changes })
    }

    /// `1 - beta2` at this step. It is 1 at the first step, which discards the zeros that means start with.
    fn add2(&self) -> f64 {
        (self.step as f64).powf(self.decay_rate)
    }

    fn kernel(&self) -> adafactor::Adafactor {
        adafactor::Adafactor {
            learning_rate: self.learning_rate as f32,
            beta1: self.beta1 as f32,
            beta2: (1.0 - self.add2()) as f32,
            add2: self.add2() as f32,
            epsilon: self.epsilon as f32,
            clip_threshold: self.clip_threshold as f32,
            scale: self.scale.map(|least| least as f32),
            weight_decay: self.weight_decay as f32,
            gradient_scale: self.gradient_scale as f32,
        }
    }
}

/// One step of AdamW for one parameter: rule, parameter, gradient and moments, as for [`AdamWRule::apply`].
#[derive(Clone, Debug)]
pub struct AdamWStep {
    /// Rule of the update. All steps of a call share decays, epsilon and the gradient scale.
    pub rule: AdamWRule,
    /// Parameter.
    pub parameter: Tensor<1>,
    /// Gradient of the parameter.
    pub gradient: Tensor<1>,
    /// Moments of the parameter.
    pub moments: Moments,
}

/// Takes the optimizer steps of many parameters, by few kernels on accelerators. Returns each parameter and its moments
/// after the step. With `control`, gradients are multiplied by the control's factor instead of by their rule's scale,
/// and parameters are updated only if the control takes the step.
pub fn adamw(steps: Vec<AdamWStep>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Moments)> {
    #[cfg(feature = "cube")]
    if steps.first().is_some_and(|step| Backing::of(&step.parameter.device()).is_cube()) {
        return adamw_on_cube(steps, control);
    }
    #[cfg(feature = "tch")]
    if steps.first().is_some_and(|step| Backing::of(&step.parameter.device()) == Backing::LibTorch) {
        return adamw_on_libtorch(steps, control);
    }
    let controlled = |AdamWStep { rule, parameter, gradient, moments }: AdamWStep| match control {
        None => rule.apply(parameter, gradient, moments),
        Some(control) => {
            let (old, gradient) = ((parameter.clone(), moments.clone()), gradient * control.factor());
            let rule = AdamWRule { gradient_scale: 1.0, ..rule };
            let (parameter, Moments { mean, square }) = rule.apply(parameter, gradient, moments);
            let mean = control.choose(old.1.mean, mean);
            (control.choose(old.0, parameter), Moments { mean, square: control.choose(old.1.square, square) })
        }
    };
    pool::within(|| steps.into_iter().map(controlled).collect())
}

#[cfg(feature = "cube")]
fn adamw_on_cube(steps: Vec<AdamWStep>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Moments)> {
    let first = steps[0].rule;
    let common = cube::AdamW {
        beta1: first.beta1 as f32,
        beta2: first.beta2 as f32,
        epsilon: first.epsilon as f32,
        gradient_scale: first.gradient_scale as f32,
    };
    let correction = |beta: f64, step: u64| (1.0 - beta.powf(step as f64)).recip() as f32;
    let rates = |AdamWRule { learning_rate, weight_decay, beta1, beta2, step, .. }: AdamWRule| {
        let kept = (1.0 - learning_rate * weight_decay) as f32;
        [learning_rate as f32, kept, correction(beta1, step), correction(beta2, step)]
    };
    let rates: Vec<cube::Rates> = steps.iter().map(|step| rates(step.rule)).collect();
    let shapes = steps.iter().flat_map(|step| [(); 3].map(|()| step.parameter.shape())).collect();
    let tensors =
        steps.into_iter().flat_map(|step| [step.parameter, step.moments.mean, step.moments.square, step.gradient]);
    let control = control.map(StepControl::numbers);
    let controlled = control.is_some();
    let inputs = tensors.chain(control).map(Tensor::into_dispatch).collect();
    let moved = cube::launched_all("adamw", inputs, shapes, move |mut inputs| {
        let control = if controlled { inputs.pop() } else { None };
        common.step(inputs, &rates, control)
    });
    let mut moved = moved.into_iter().map(Tensor::from_dispatch);
    let mut next = || moved.next();
    std::iter::from_fn(|| Some((next()?, Moments { mean: next()?, square: next()? }))).collect()
}

#[cfg(feature = "tch")]
fn adamw_on_libtorch(steps: Vec<AdamWStep>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Moments)> {
    let control = control.map(|control| (control.factor(), control.taken()));
    let mut common: Option<libtorch::AdamWStep> = None;
    let moved = steps.into_iter().map(|AdamWStep { rule, parameter, gradient, moments }| {
        let rule = rule.kernel();
        // Most parameters share one rule: its numbers are computed once.
        let step = match common.take() {
            Some(step) if step.rule == rule => step,
            _ => libtorch::AdamWStep::new(rule, &parameter.device(), control.clone()),
        };
        let [parameter, mean, square] = step.apply([parameter, gradient, moments.mean, moments.square]);
        common = Some(step);
        (parameter, Moments { mean, square })
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, pseudo_random};
    use burn::optim::{AdamWConfig, Optimizer};
    use proptest::prelude::*;

    fn tensor(seed: u64) -> Tensor<1> {
        Tensor::from_floats(pseudo_random(37, seed).as_slice(), &device())
    }

    fn values(x: &Tensor<1>) -> Vec<f32> {
        x.clone().try_into_vec_as().expect("floats")
    }

    proptest! {
        #[test]
        fn both_bodies_take_burns_steps(weight_decay in 0.0_f64..0.5, learning_rate in 1e-4_f64..0.1, scale in 0.1_f64..2.0) {
            let burns = AdamWConfig::new().with_weight_decay(weight_decay as f32).with_epsilon(1e-8).build();
            let (mut expected, mut state) = (tensor(1), None);
            let zeros = || Tensor::<1>::zeros([37], &device());
            let start = (tensor(1), Moments { mean: zeros(), square: zeros() });
            let (mut kernel, mut composed) = (start.clone(), start);
            for step in 1..=4 {
                let gradient = tensor(10 + step);
                let scaled = gradient.clone().mul_scalar(scale);
                (expected, state) = burns.step(learning_rate, expected, scaled, state);
                let rule = AdamWRule {
                    learning_rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay, step, gradient_scale: scale,
                };
                kernel = rule.apply(kernel.0, gradient.clone(), kernel.1);
                composed = rule.composed(composed.0, gradient, composed.1);
            }
            // Burn corrects for the first steps in f32: 1 - 0.999 has four digits there.
            assert_close(kernel.0, &values(&expected), 1e-4);
            assert_close(composed.0, &values(&expected), 1e-4);
            let moments = state.expect("a state").momentum;
            assert_close(kernel.1.mean, &values(&moments.moment_1), 1e-6);
            assert_close(kernel.1.square, &values(&moments.moment_2), 1e-6);
        }
    }

    proptest! {
        #[test]
        fn both_bodies_of_adafactor_agree(
            batch in 1_usize..3, rows in 1_usize..20, columns in 1_usize..20, averaged: bool, scaled: bool,
        ) {
            let n = batch * rows * columns;
            let random = |seed| Tensor::<1>::from_floats(pseudo_random(n, seed).as_slice(), &device());
            let zeros = |n| Tensor::<1>::zeros([n], &device());
            let changes = averaged.then(|| zeros(n));
            let moments = FactoredMoments { rows: zeros(batch * rows), columns: zeros(batch * columns), changes };
            let mut kernel = (random(1), moments);
            let mut composed = kernel.clone();
            for step in 1..=4 {
                let rule = AdafactorRule {
                    learning_rate: 0.1,
                    beta1: 0.9,
                    decay_rate: -0.8,
                    epsilon: 1e-30,
                    clip_threshold: 0.9,
                    scale: scaled.then_some(1e-3),
                    weight_decay: 0.1,
                    step,
                    gradient_scale: 0.7,
                };
                kernel = rule.apply([batch, rows, columns], kernel.0, random(10 + step), kernel.1);
                composed = rule.composed([batch, rows, columns], composed.0, random(10 + step), composed.1);
            }
            assert_close(kernel.0, &values(&composed.0), 1e-5);
            assert_close(kernel.1.rows, &values(&composed.1.rows), 1e-5);
            assert_close(kernel.1.columns, &values(&composed.1.columns), 1e-5);
            prop_assert_eq!(kernel.1.changes.is_some(), averaged);
            if let Some((a, b)) = kernel.1.changes.zip(composed.1.changes) {
                assert_close(a, &values(&b), 1e-5);
            }
        }
    }

    #[test]
    fn a_parameter_that_something_else_holds_is_left_alone() {
        let held = tensor(1);
        let before = values(&held);
        let zeros = || Tensor::<1>::zeros([37], &device());
        let rule = AdamWRule {
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            step: 1,
            gradient_scale: 1.0,
        };
        let (moved, _) = rule.apply(held.clone(), tensor(2), Moments { mean: zeros(), square: zeros() });
        assert_eq!(values(&held), before);
        assert_ne!(values(&moved), before);
    }
}
