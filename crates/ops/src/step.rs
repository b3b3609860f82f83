//! Results of a training step, kept on the device.

use crate::read::{Reading, read_behind};
use crate::step_rules::StepRules;
#[cfg(feature = "cube")]
use crate::{cube, device::Backing};
use burn::tensor::{Bool, Tensor};

/// Decision on a training step, made on the device: whether parameters are updated, and the factor of the gradients. A
/// step is taken only if loss and gradient norm are finite and the loss is at most the maximum. Optimizers and averages
/// read the decision on the device; the host reads it later.
#[derive(Clone, Debug)]
pub struct StepControl {
    /// The gradients' factor, 1 if the step is taken, the gradient norm, the loss, and each of its terms.
    numbers: Tensor<1>,
}

/// Numbers of a [`StepControl`] on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct StepNumbers {
    /// Whether the step was taken and parameters were updated.
    pub taken: bool,
    /// Gradient norm before clipping.
    pub norm: f64,
    /// Loss: the weighted sum of the terms.
    pub loss: f64,
    /// Value of each term.
    pub terms: Vec<f64>,
}

const TERMS: usize = 4;

impl StepControl {
    /// Decides from the terms of the loss, `[1]` each, their weights, and the squared gradient norm, `[1]`. All tensors
    /// are without autodiff.
    pub fn new(terms: Vec<Tensor<1>>, weights: &[f64], squares: Tensor<1>, rules: StepRules) -> Self {
        #[cfg(feature = "cube")]
        if Backing::of(&squares.device()).is_cube() {
            let control = cube::StepControl::new(weights, rules);
            let shape = [terms.len() + TERMS].into();
            let inputs = std::iter::once(squares).chain(terms).map(Tensor::into_dispatch).collect();
            let made = cube::launched_all("step_control", inputs, vec![shape], move |inputs| control.decide(inputs));
            let numbers = made.into_iter().next().expect("one tensor");
            return Self { numbers: Tensor::from_dispatch(numbers) };
        }
        let weighted = terms.iter().zip(weights).map(|(term, weight)| term.clone().mul_scalar(*weight));
        let loss = weighted.reduce(|sum, term| sum + term).unwrap_or_else(|| squares.zeros_like());
        let norm = squares.sqrt().mul_scalar(rules.gradient_scale);
        let factor = match rules.clip_norm {
            clip if clip > 0.0 => norm.clone().recip().mul_scalar(clip).clamp_max(1.0),
            _ => norm.ones_like(),
        };
        let finite = |x: &Tensor<1>| x.clone().abs().lower_elem(f32::MAX);
        let low = loss.clone().lower_equal_elem(rules.highest_loss.min(f64::from(f32::MAX)));
        let taken = finite(&loss).bool_and(finite(&norm)).bool_and(low).float();
        let first = [factor.mul_scalar(rules.gradient_scale), taken, norm, loss];
        Self { numbers: Tensor::cat(first.into_iter().chain(terms).collect(), 0) }
    }

    /// Begins to copy the numbers to the host.
    pub fn read_behind(&self) -> StepReading {
        StepReading(read_behind(self.numbers.clone()))
    }

    /// Returns the factor of the gradients, `[1]`.
    pub fn factor(&self) -> Tensor<1> {
        self.numbers.clone().narrow(0, 0, 1)
    }

    /// Whether parameters are updated, `[1]`.
    pub(crate) fn taken(&self) -> Tensor<1, Bool> {
        self.numbers.clone().narrow(0, 1, 1).greater_elem(0.5)
    }

    #[cfg(feature = "cube")]
    pub(crate) fn numbers(&self) -> Tensor<1> {
        self.numbers.clone()
    }

    /// Returns `new` if the step is taken, else `old`, also if the other one is not finite.
    pub fn choose(&self, old: Tensor<1>, new: Tensor<1>) -> Tensor<1> {
        let taken = self.taken().expand(new.dims());
        old.mask_where(taken, new)
    }
}

/// [`StepNumbers`] on their way to the host.
#[derive(Debug)]
pub struct StepReading(Reading);

impl StepReading {
    /// Returns the numbers. Call it after giving the device further work, so that the device does not idle.
    ///
    /// # Panics
    /// If the device has failed.
    pub fn finish(self) -> StepNumbers {
        StepNumbers::new(&self.0.finish())
    }

    /// As [`finish`](Self::finish), but without further work for the device. Counts in [`waits`](crate::waits).
    pub fn finish_now(self) -> StepNumbers {
        StepNumbers::new(&self.0.finish_now())
    }
}

impl StepNumbers {
    fn new(numbers: &[f32]) -> Self {
        let number = |i: usize| f64::from(numbers[i]);
        Self {
            taken: numbers[1] > 0.5,
            norm: number(2),
            loss: number(3),
            terms: numbers[TERMS..].iter().map(|term| f64::from(*term)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    fn decided(terms: &[f32], squares: f32, rules: StepRules) -> (f32, StepNumbers) {
        let tensor = |x: f32| Tensor::<1>::from_floats([x], &device());
        let weights: Vec<f64> = (0..terms.len()).map(|i| 1.0 / (i + 1) as f64).collect();
        let terms = terms.iter().map(|term| tensor(*term)).collect();
        let control = StepControl::new(terms, &weights, tensor(squares), rules);
        (control.factor().into_scalar(), control.read_behind().finish())
    }

    const RULES: StepRules = StepRules { gradient_scale: 0.5, clip_norm: 2.0, highest_loss: f64::INFINITY };

    #[test]
    fn gradients_are_shortened_to_the_length_that_was_asked_for() {
        let (factor, numbers) = decided(&[3.0, 4.0], 64.0, RULES);
        assert_eq!(numbers, StepNumbers { taken: true, norm: 4.0, loss: 5.0, terms: vec![3.0, 4.0] });
        assert_eq!(factor, 0.25);
        assert_eq!(decided(&[3.0], 4.0, RULES).0, 0.5, "short ones are left");
        assert_eq!(decided(&[3.0], 0.0, RULES).0, 0.5, "and such without a length");
        assert_eq!(decided(&[3.0], 64.0, StepRules { clip_norm: 0.0, ..RULES }).0, 0.5);
    }

    #[test]
    fn a_step_is_taken_only_with_numbers_that_are_finite_and_low_enough() {
        let taken = |terms: &[f32], squares, rules| decided(terms, squares, rules).1.taken;
        assert!(taken(&[3.0, -4.0], 1.0, RULES));
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!taken(&[broken, 1.0], 1.0, RULES) && !taken(&[1.0, broken], 1.0, RULES), "{broken}");
        }
        assert!(!taken(&[1.0], f32::NAN, RULES) && !taken(&[1.0], f32::INFINITY, RULES));
        let limited = StepRules { highest_loss: 2.0, ..RULES };
        assert!(taken(&[2.0], 1.0, limited) && !taken(&[2.5], 1.0, limited));
    }

    #[test]
    fn what_is_not_taken_changes_nothing() {
        let tensor = |x: f32| Tensor::<1>::from_floats([x, 1.0], &device());
        let control = |loss: f32| {
            let one = |x: f32| Tensor::<1>::from_floats([x], &device());
            StepControl::new(vec![one(loss)], &[1.0], one(1.0), RULES)
        };
        let chosen = |loss| control(loss).choose(tensor(5.0), tensor(f32::NAN)).into_data().iter::<f32>().next();
        assert_eq!(chosen(f32::NAN), Some(5.0));
        assert!(chosen(1.0).is_some_and(f32::is_nan));
    }
}
