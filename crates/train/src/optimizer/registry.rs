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

pub use super::rule::{Stepped, Update, UpdateRule};

use super::adafactor::AdafactorConfig;
use super::adamw::AdamWConfig;
use super::rule::{DynRule, Made};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use undertone_registry::typed::Typed;
use undertone_registry::{NameTaken, Registry, Unknown, options};

/// Registers an optimizer under its name. Registering the same type again changes nothing.
///
/// # Errors
/// When another optimizer has the name.
pub fn register<R: UpdateRule>() -> Result<(), NameTaken> {
    OPTIMIZERS.register(rule::<R>())
}

/// Makes a rule from its keys.
pub(super) fn make(name: &str, keys: &Map<String, Value>) -> Made {
    (OPTIMIZERS.get(name).map_err(|error| error.to_string())?.with.make)(keys)
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
    if are(AdafactorConfig::AVERAGED_STATE) {
        return "adafactor with `beta1`";
    }
    OPTIMIZERS.all().iter().find(|entry| are(entry.with.state)).map_or("an unknown optimizer", |entry| entry.name)
}

static OPTIMIZERS: Registry<Typed<Rule>> =
    Registry::new("optimizer", || vec![rule::<AdamWConfig>(), rule::<AdafactorConfig>()]);

/// How an optimizer's rule is made, and the names of its state tensors.
#[derive(Clone)]
struct Rule {
    state: &'static [&'static str],
    make: fn(&Map<String, Value>) -> Made,
}

fn rule<R: UpdateRule>() -> Typed<Rule> {
    let make = |keys: &Map<String, Value>| {
        let rule: R = options::read(keys).map_err(|error| error.to_string())?;
        rule.validate()?;
        Ok(Box::new(rule) as Box<dyn DynRule>)
    };
    Typed::new::<R>(R::NAME, Rule { state: R::STATE, make })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GradientSum, Optimizer, OptimizerConfig};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};
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
            (serde_json::json!({"kept": "long"}), "optimizer.kept", "invalid type: found string"),
            (serde_json::json!({"kept": 1.5}), "optimizer.kept", "it must be below 1"),
            (serde_json::json!({"keep": 0.5}), "optimizer.keep", "there is no such key; the keys here are kept"),
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
