//! Adafactor.

use super::rule::{Stepped, Update, UpdateRule, under_control};
use crate::config_error::{TrainConfigError, above_zero, check, share};
use serde::{Deserialize, Serialize};
use undertone_ops::{AdafactorRule, FactoredMoments, StepControl};

/// Keys of Adafactor, named as in the paper where it has a name. The learning rate is the schedule's, never the paper's
/// relative step size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdafactorConfig {
    /// Decay of the running mean of updates. Without it there is no mean, which saves its memory.
    pub beta1: Option<f64>,
    /// Exponent of the decay of squared gradients: `beta2 = 1 - step^decay_rate`.
    pub decay_rate: f64,
    /// Constant added to every squared gradient.
    pub epsilon1: f64,
    /// Minimum root mean square of a parameter for `scale_parameter`.
    pub epsilon2: f64,
    /// Maximum root mean square of a parameter's update, in units of the learning rate.
    pub clip_threshold: f64,
    /// Whether a parameter's learning rate is multiplied by its root mean square. Then `lr` is relative, and 1e-2 is
    /// usual.
    pub scale_parameter: bool,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        Self {
            beta1: None,
            decay_rate: -0.8,
            epsilon1: 1e-30,
            epsilon2: 1e-3,
            clip_threshold: 1.0,
            scale_parameter: false,
        }
    }
}

impl AdafactorConfig {
    pub(super) fn validate(&self) -> Result<(), TrainConfigError> {
        self.beta1.map_or(Ok(()), |beta1| share("optimizer.beta1", beta1))?;
        above_zero("optimizer.epsilon1", self.epsilon1)?;
        above_zero("optimizer.epsilon2", self.epsilon2)?;
        above_zero("optimizer.clip_threshold", self.clip_threshold)?;
        let decay = self.decay_rate;
        check(decay.is_finite() && decay < 0.0, "optimizer.decay_rate", &decay, "must be below 0")?;
        let read = self.scale_parameter || self.epsilon2 == Self::default().epsilon2;
        check(read, "optimizer.epsilon2", &self.epsilon2, "it is for `scale_parameter: true`: leave it out")
    }
}

impl AdafactorConfig {
    /// State with a mean of the updates, by `beta1`.
    pub(super) const AVERAGED_STATE: &'static [&'static str] = &["row", "column", "change"];

    fn scaled_step(&self, update: Update, gradient_scale: f64) -> Stepped {
        let rule = AdafactorRule {
            learning_rate: update.learning_rate,
            beta1: self.beta1.unwrap_or(0.0),
            decay_rate: self.decay_rate,
            epsilon: self.epsilon1,
            clip_threshold: self.clip_threshold,
            scale: self.scale_parameter.then_some(self.epsilon2),
            weight_decay: update.weight_decay,
            step: update.number,
            gradient_scale,
        };
        let mut state = update.state.into_iter();
        let (rows, columns) = state.next().zip(state.next()).expect("two parts or three");
        let moments = FactoredMoments { rows, columns, changes: state.next() };
        let (parameter, moments) = rule.apply(matrices(&update.shape), update.parameter, update.gradient, moments);
        let state = [moments.rows, moments.columns].into_iter().chain(moments.changes);
        (parameter, state.collect())
    }
}

/// Adafactor (Shazeer and Stern, 2018), like `transformers.Adafactor` with `relative_step=False`: running means of the
/// squared gradients of each row and each column over the last two axes, and of each element for a vector.
///
/// Weight decay is as in AdamW: in units of the learning rate, on matrices alone. With `scale_parameter` it is in units
/// of the scaled rate.
///
/// Not elementwise: the state of a matrix covers whole rows and columns.
impl UpdateRule for AdafactorConfig {
    const NAME: &'static str = "adafactor";
    const STATE: &'static [&'static str] = &["row", "column"];

    fn state(&self) -> &'static [&'static str] {
        if self.beta1.is_some() { Self::AVERAGED_STATE } else { Self::STATE }
    }

    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        let [batch, rows, columns] = matrices(shape);
        let changes = self.beta1.map(|_| batch * rows * columns);
        [batch * rows, batch * columns].into_iter().chain(changes).collect()
    }

    fn step(&self, update: Update) -> Stepped {
        self.scaled_step(update, 1.0)
    }

    fn steps(&self, updates: Vec<Update>, gradient_scale: f64, control: Option<&StepControl>) -> Vec<Stepped> {
        let step = |update| match control {
            Some(control) => under_control(control, update, |update| self.step(update)),
            // The kernel applies the scale in its own pass.
            None => self.scaled_step(update, gradient_scale),
        };
        updates.into_iter().map(step).collect()
    }
}

/// Returns the shape of a parameter as `[batch, rows, columns]`: a vector is one row, and all axes before the last two
/// become one.
fn matrices(shape: &[usize]) -> [usize; 3] {
    match shape {
        [] => [1, 1, 1],
        [columns] => [1, 1, *columns],
        [batch @ .., rows, columns] => [batch.iter().product(), *rows, *columns],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, GradientSum, Optimizer, OptimizerConfig};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor, TensorData};
    use serde::Deserialize;
    use std::collections::BTreeMap;
    use undertone_store::{HostTensor, load_parameters, parameters};

    /// Contents of the file that `fixtures/make_adafactor.py` wrote.
    #[derive(Deserialize)]
    struct Fixture {
        /// Initial values of three parameters.
        begin: BTreeMap<String, Array>,
        /// Learning rate and gradients of each step.
        steps: Vec<(f64, BTreeMap<String, Array>)>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Array {
        shape: Vec<usize>,
        data: Vec<f32>,
    }

    #[derive(Deserialize)]
    struct Case {
        adafactor: AdafactorConfig,
        weight_decay: f64,
        /// The parameters after every step.
        after: Vec<BTreeMap<String, Vec<f32>>>,
    }

    #[derive(Module, Debug)]
    struct Three {
        matrix: Param<Tensor<2>>,
        vector: Param<Tensor<1>>,
        kernel: Param<Tensor<3>>,
    }

    fn tensor<const D: usize>(array: &Array, device: &Device) -> Tensor<D> {
        Tensor::from_data(TensorData::new(array.data.clone(), array.shape.clone()), device)
    }

    fn begin(fixture: &Fixture, device: &Device) -> Three {
        let of = &fixture.begin;
        Three {
            matrix: Param::from_tensor(tensor(&of["matrix"], device)),
            vector: Param::from_tensor(tensor(&of["vector"], device)),
            kernel: Param::from_tensor(tensor(&of["kernel"], device)),
        }
    }

    /// Exactly these gradients: those of a sum of products with them.
    fn gradients(model: &Three, of: &BTreeMap<String, Array>, device: &Device) -> GradientSum {
        let loss = (model.matrix.val() * tensor(&of["matrix"], device)).sum()
            + (model.vector.val() * tensor(&of["vector"], device)).sum()
            + (model.kernel.val() * tensor(&of["kernel"], device)).sum();
        let mut sum = GradientSum::default();
        sum.add(model, loss.backward());
        sum
    }

    fn optimizer(adafactor: AdafactorConfig, weight_decay: f64) -> Optimizer {
        Optimizer::new(&OptimizerConfig {
            algorithm: Algorithm::Adafactor(adafactor),
            weight_decay,
            ..Default::default()
        })
    }

    fn fixture() -> Fixture {
        serde_json::from_str(include_str!("../../tests/fixtures/adafactor.json")).expect("the fixture")
    }

    #[test]
    fn steps_are_those_of_transformers() {
        let (fixture, device) = (fixture(), Device::default().autodiff());
        assert!(fixture.steps.len() > 10 && fixture.cases.len() > 3);
        for case in &fixture.cases {
            let mut optimizer = optimizer(case.adafactor.clone(), case.weight_decay);
            let mut model = begin(&fixture, &device);
            for (step, ((rate, of), expected)) in fixture.steps.iter().zip(&case.after).enumerate() {
                let mut gradients = gradients(&model, of, &device);
                model = optimizer.step(model, &mut gradients, *rate);
                for (name, tensor) in parameters(&model) {
                    for (i, (found, expected)) in tensor.data.iter().zip(&expected[&name]).enumerate() {
                        let tolerance = 2e-6 * (1.0 + expected.abs());
                        assert!(
                            (found - expected).abs() <= tolerance,
                            "step {step}, {name}[{i}]: {found} is not {expected} with {:?}",
                            case.adafactor
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_restored_optimizer_takes_the_same_steps_to_the_last_bit() {
        let (fixture, device) = (fixture(), Device::default().autodiff());
        for case in &fixture.cases {
            let run = |broken: bool| {
                let mut optimizer = optimizer(case.adafactor.clone(), case.weight_decay);
                let mut model = begin(&fixture, &device);
                for (step, (rate, of)) in fixture.steps.iter().enumerate() {
                    if broken && step == 5 {
                        (optimizer, model) = resumed(&optimizer, &model, case, &device);
                    }
                    let mut gradients = gradients(&model, of, &device);
                    model = optimizer.step(model, &mut gradients, *rate);
                }
                (parameters(&model), optimizer.to_tensors())
            };
            assert_eq!(run(true), run(false));
        }
    }

    /// Restores optimizer and model as from a checkpoint.
    fn resumed(optimizer: &Optimizer, model: &Three, case: &Case, device: &Device) -> (Optimizer, Three) {
        let (state, weights) = (optimizer.to_tensors(), parameters(model));
        let mut again = self::optimizer(case.adafactor.clone(), case.weight_decay);
        assert_eq!(Optimizer::maker(state.keys()).as_deref(), Some(again.title()));
        let read = |from: &BTreeMap<String, HostTensor>, name: &str| Ok(from[name].clone());
        let names = weights.keys().cloned();
        again.load(names, &device.clone().inner(), |name| read(&state, name)).expect("loaded");
        let fresh = begin(&fixture(), device);
        (again, load_parameters(fresh, |name| read(&weights, name)).expect("loaded"))
    }

    /// Cost of a matrix of Whisper-tiny's decoder: AdamW has two values per element, Adafactor one per row and column.
    #[test]
    fn its_state_is_a_row_and_a_column_where_adamws_is_two_matrices() {
        let bytes = |config: &OptimizerConfig, shape: &[usize]| config.state_bytes(shape);
        let adamw = OptimizerConfig::default();
        let with = |config| OptimizerConfig { algorithm: Algorithm::Adafactor(config), ..Default::default() };
        let adafactor = with(AdafactorConfig::default());
        assert_eq!([&adamw, &adafactor].map(|config| bytes(config, &[51_865, 384])), [159_329_284, 209_000]);
        assert_eq!([&adamw, &adafactor].map(|config| bytes(config, &[384])), [3076, 1544]);
        // A convolution of width 3 over pairs of channels: the last two axes, as in transformers.
        assert_eq!(bytes(&adafactor, &[384, 80, 3]), 4 * (384 * 80 + 384 * 3 + 1));
        let averaged = with(AdafactorConfig { beta1: Some(0.9), ..Default::default() });
        assert_eq!(bytes(&averaged, &[51_865, 384]), 209_000 + 4 * 51_865 * 384);
    }

    #[test]
    fn what_it_holds_is_what_it_says_it_holds() {
        let (fixture, device) = (fixture(), Device::default().autodiff());
        for algorithm in [Algorithm::default(), Algorithm::Adafactor(AdafactorConfig::default())] {
            let name = algorithm.name();
            let config = OptimizerConfig { algorithm, ..Default::default() };
            let mut optimizer = Optimizer::new(&config);
            let model = begin(&fixture, &device);
            let mut gradients = gradients(&model, &fixture.steps[0].1, &device);
            optimizer.step(model, &mut gradients, 0.1);
            let held: usize = optimizer.to_tensors().values().map(|tensor| 4 * tensor.data.len()).sum();
            let said: usize = fixture.begin.values().map(|array| config.state_bytes(&array.shape)).sum();
            assert_eq!(held, said, "{name}");
        }
    }
}
