//! Registry of the optimizers for `train.optimizer.name`: AdamW, Adafactor, and those that other crates register.
//!
//! ```
//! use burn::tensor::Tensor;
//! use serde::Deserialize;
//! use undertone_train::TrainConfig;
//! use undertone_train::optimizer::registry::{self, Update, UpdateRule};
//!
//! /// Lion (Chen et al., 2023): the sign of a mean of gradients, one number of state for each parameter.
//! #[derive(Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct Lion {
//!     beta1: f64,
//!     beta2: f64,
//! }
//!
//! impl Default for Lion {
//!     fn default() -> Self {
//!         Self { beta1: 0.9, beta2: 0.99 }
//!     }
//! }
//!
//! impl UpdateRule for Lion {
//!     const NAME: &'static str = "lion";
//!     const STATE: &'static [&'static str] = &["mean"];
//!
//!     fn step(&self, update: Update) -> (Tensor<1>, Vec<Tensor<1>>) {
//!         let (gradient, mean) = (update.gradient, update.state[0].clone());
//!         let mix = |beta: f64| mean.clone().mul_scalar(beta) + gradient.clone().mul_scalar(1.0 - beta);
//!         let change = mix(self.beta1).sign() + update.parameter.clone().mul_scalar(update.weight_decay);
//!         (update.parameter - change.mul_scalar(update.learning_rate), vec![mix(self.beta2)])
//!     }
//! }
//!
//! registry::register::<Lion>()?;
//! // In YAML: `train: {optimizer: {name: lion, lr: 1.0e-4, beta2: 0.98}}`.
//! let config: TrainConfig = serde_json::from_str(r#"{"optimizer": {"name": "lion", "lr": 1.0e-4, "beta2": 0.98}}"#)?;
//! config.optimizer.validate()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::algorithm::{ADAFACTOR, ADAMW, read_keys};
use super::rule::{Rule, Step};
use super::{adafactor::Adafactor, adamw::AdamW};
use burn::tensor::Tensor;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::TypeId;
use std::collections::BTreeSet;
use undertone_ops::StepControl;
use undertone_registry::{Kind, NameTaken, Registry, Unknown};

/// Update rule of one parameter. A type that implements it, and one call of [`register`], add an optimizer that YAML
/// can name. The Learner does the rest: accumulation, clipping, the schedule, groups, guards, and saving and restoring
/// state.
///
/// The type is read from the keys beside `name` in `train.optimizer` that not all optimizers have. Derive `Deserialize` with
/// `#[serde(default, deny_unknown_fields)]`, so that a key that it does not have is refused.
pub trait UpdateRule: DeserializeOwned + Send + Sync + Sized + 'static {
    /// Name in configurations.
    const NAME: &'static str;
    /// Names of the state tensors in checkpoints.
    const STATE: &'static [&'static str];
    /// Whether the update of an element depends on no other element. The state can then be sharded among ranks with
    /// `train.shard_optimizer`, and the rule receives parts of parameters as vectors.
    const IS_ELEMENTWISE: bool = false;

    /// Checks its keys.
    ///
    /// # Errors
    /// A sentence on the invalid value, which may begin with the key: "`beta1`: it must be below 1".
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Number of elements of each state tensor for a parameter of this shape. They begin at zero.
    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        vec![shape.iter().product(); Self::STATE.len()]
    }

    /// Returns the parameter after the step, `[elements]`, and its state.
    fn step(&self, update: Update) -> (Tensor<1>, Vec<Tensor<1>>);
}

/// Inputs of a parameter's step. Tensors are f32 and without autodiff.
#[derive(Clone, Debug)]
pub struct Update {
    /// Shape of the parameter.
    pub shape: Vec<usize>,
    /// Learning rate: the schedule's, times the factor of the parameter's group.
    pub learning_rate: f64,
    /// Weight decay of the group or the configuration; 0 for biases and norms.
    pub weight_decay: f64,
    /// Number of the step of this parameter, from 1.
    pub number: u64,
    /// Parameter, `[elements]`.
    pub parameter: Tensor<1>,
    /// Gradient, `[elements]`, accumulated and clipped.
    pub gradient: Tensor<1>,
    /// State tensors in the order of [`UpdateRule::STATE`].
    pub state: Vec<Tensor<1>>,
}

/// Registers an optimizer under its name. Registering the same type again changes nothing.
///
/// # Errors
/// When another optimizer has the name.
pub fn register<R: UpdateRule>() -> Result<(), NameTaken> {
    let make: Make = |keys| {
        let rule: R = read_keys(keys)?;
        rule.validate()?;
        Ok(Box::new(Registered(rule)))
    };
    OPTIMIZERS.register(Entry { name: R::NAME, state: R::STATE, registered: Some((TypeId::of::<R>(), make)) })
}

/// Makes a registered rule from its keys.
///
/// # Errors
/// The reason why the rule refuses them.
pub(super) fn make(name: &str, keys: &Map<String, Value>) -> Result<Box<dyn Rule>, String> {
    let entry = OPTIMIZERS.get(name).map_err(|error| error.to_string())?;
    let (_, make) = entry.registered.ok_or_else(|| format!("`{name}` was not registered"))?;
    make(keys)
}

/// Returns the registered name that equals `text`.
pub(super) fn name(text: &str) -> Result<&'static str, Unknown> {
    OPTIMIZERS.get(text).map(|entry| entry.name)
}

/// Names of all optimizers.
pub(super) fn names() -> Vec<&'static str> {
    OPTIMIZERS.all().iter().map(|entry| entry.name).collect()
}

/// Returns the name of the optimizer whose state has these parts.
pub(super) fn title(parts: &BTreeSet<&str>) -> &'static str {
    let are = |known: &[&str]| parts.len() == known.len() && known.iter().all(|part| parts.contains(part));
    if are(&Adafactor::AVERAGED_PARTS) {
        return "adafactor with `beta1`";
    }
    OPTIMIZERS.all().iter().find(|entry| are(entry.state)).map_or("an unknown optimizer", |entry| entry.name)
}

static OPTIMIZERS: Registry<Entry> = Registry::new("optimizer", || {
    vec![
        Entry { name: ADAMW, state: &AdamW::PARTS, registered: None },
        Entry { name: ADAFACTOR, state: &Adafactor::PARTS, registered: None },
    ]
});

type Make = fn(&Map<String, Value>) -> Result<Box<dyn Rule>, String>;

#[derive(Clone)]
struct Entry {
    name: &'static str,
    state: &'static [&'static str],
    /// Type and constructor of a registered rule.
    registered: Option<(TypeId, Make)>,
}

impl Kind for Entry {
    fn name(&self) -> &str {
        self.name
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.registered.zip(other.registered).is_some_and(|((one, _), (two, _))| one == two)
    }
}

/// Adapter of a registered rule. It applies the gradient scale, and keeps the old values where a control prevents the
/// update.
struct Registered<R>(R);

impl<R: UpdateRule> Rule for Registered<R> {
    fn parts(&self) -> &'static [&'static str] {
        R::STATE
    }

    fn lengths(&self, shape: &[usize]) -> Vec<usize> {
        self.0.lengths(shape)
    }

    fn is_elementwise(&self) -> bool {
        R::IS_ELEMENTWISE
    }

    fn steps(&self, steps: Vec<Step>, control: Option<&StepControl>) -> Vec<(Tensor<1>, Vec<Tensor<1>>)> {
        let stepped = steps.into_iter().map(|step| {
            let Step { shape, learning_rate, weight_decay, gradient_scale, number, parameter, gradient, state } = step;
            let Some(control) = control else {
                let gradient = gradient.mul_scalar(gradient_scale);
                return self.0.step(Update { shape, learning_rate, weight_decay, number, parameter, gradient, state });
            };
            let gradient = gradient * control.factor();
            let (old, old_state) = (parameter.clone(), state.clone());
            let (new, new_state) =
                self.0.step(Update { shape, learning_rate, weight_decay, number, parameter, gradient, state });
            let state = old_state.into_iter().zip(new_state).map(|(old, new)| control.choose(old, new));
            (control.choose(old, new), state.collect())
        });
        stepped.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GradientSum, Optimizer, OptimizerConfig};
    use burn::module::{Module, Param};
    use burn::tensor::Device;
    use undertone_ops::{StepControl, StepRules};

    /// Gradient descent with momentum.
    #[derive(serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Momentum {
        kept: f64,
    }

    impl Default for Momentum {
        fn default() -> Self {
            Self { kept: 0.5 }
        }
    }

    impl UpdateRule for Momentum {
        const NAME: &'static str = "momentum";
        const STATE: &'static [&'static str] = &["velocity"];

        fn validate(&self) -> Result<(), String> {
            if self.kept < 1.0 { Ok(()) } else { Err("`kept`: it must be below 1".into()) }
        }

        fn step(&self, update: Update) -> (Tensor<1>, Vec<Tensor<1>>) {
            let velocity = update.state[0].clone().mul_scalar(self.kept) + update.gradient;
            (update.parameter - velocity.clone().mul_scalar(update.learning_rate), vec![velocity])
        }
    }

    #[derive(Module, Debug)]
    struct Point {
        place: Param<Tensor<1>>,
    }

    fn config(own: serde_json::Value) -> OptimizerConfig {
        register::<Momentum>().expect("registered");
        let mut keys = serde_json::json!({"name": "momentum", "clip_norm": 0.0});
        keys.as_object_mut().expect("keys").extend(own.as_object().expect("keys").clone());
        serde_json::from_value(keys).expect("a configuration")
    }

    /// Positions, after each of three steps, of a point that starts at 4 and minimizes half its square at rate 0.5.
    fn moved(config: &OptimizerConfig, control: impl Fn(&Device) -> Option<StepControl>) -> (Vec<f32>, Optimizer) {
        let device = Device::default().autodiff();
        let mut point = Point { place: Param::from_tensor(Tensor::from_floats([4.0], &device)) };
        let mut optimizer = Optimizer::new(config);
        let control = control(&device.clone().inner());
        let mut places = Vec::new();
        for _ in 0..3 {
            let loss = point.place.val().square().sum().mul_scalar(0.5);
            let mut gradients = GradientSum::default();
            gradients.add(&point, loss.backward());
            point = optimizer.controlled_step(point, &mut gradients, 0.5, control.as_ref());
            places.push(point.place.val().into_scalar::<f32>());
        }
        (places, optimizer)
    }

    #[test]
    fn a_registered_rule_moves_parameters_and_keeps_its_state() {
        let (places, optimizer) = moved(&config(serde_json::json!({})), |_| None);
        // Velocities 4, 4, 2: 4 - 2 = 2; 0.5 · 4 + 2 = 4, 2 - 2 = 0; 0.5 · 4 + 0 = 2, 0 - 1 = -1.
        assert_eq!(places, [2.0, 0.0, -1.0]);
        let state = optimizer.to_tensors();
        assert_eq!((state["place.velocity"].data.clone(), state["place.step"].data.clone()), (vec![2.0], vec![3.0]));
        assert_eq!(Optimizer::maker(state.keys()), Some("momentum".to_owned()));
        assert_eq!(moved(&config(serde_json::json!({"kept": 0})), |_| None).0, [2.0, 1.0, 0.5]);
    }

    #[test]
    fn what_the_accelerator_decides_holds_for_it() {
        let control = |highest_loss: f64| {
            move |device: &Device| {
                let number = |x: f32| Tensor::<1>::from_floats([x], device);
                let rules = StepRules { gradient_scale: 0.5, clip_norm: 0.0, highest_loss };
                Some(StepControl::new(vec![number(3.0)], &[1.0], number(4.0), rules))
            }
        };
        let half = config(serde_json::json!({"kept": 0}));
        assert_eq!(moved(&half, control(9.0)).0, [3.0, 2.25, 1.6875], "gradients are halved");
        assert_eq!(moved(&half, control(1.0)).0, [4.0; 3], "no step is taken");
    }

    #[test]
    fn keys_that_it_does_not_know_are_refused() {
        for (keys, culprit, rule) in [
            (serde_json::json!({"kept": "long"}), "optimizer.kept", "invalid type: string"),
            (serde_json::json!({"kept": 1.5}), "optimizer.kept", "it must be below 1"),
            (serde_json::json!({"keep": 0.5}), "optimizer.keep", "unknown field `keep`, expected `kept`"),
        ] {
            let refused = config(keys).validate().expect_err("refused");
            assert!(refused.key == culprit && refused.rule.starts_with(rule), "{refused}");
        }
        let kept = config(serde_json::json!({"kept": 0.25}));
        assert_eq!(serde_json::to_value(&kept).expect("JSON")["kept"], 0.25);
        let unknown = serde_json::from_value::<OptimizerConfig>(serde_json::json!({"name": "lyon"}));
        assert!(unknown.expect_err("refused").to_string().contains("`adamw`, `adafactor`"));
    }
}
