//! AdamW.

use super::rule::{Stepped, Update, UpdateRule};
use crate::config_error::{TrainConfigError, above_zero, share};
use serde::{Deserialize, Serialize};
use undertone_ops::{AdamWRule, AdamWStep, Moments, StepControl, adamw};

/// Keys of AdamW.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Constant added to the root of the mean square.
    pub epsilon: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.98, epsilon: 1e-8 }
    }
}

impl AdamWConfig {
    pub(super) fn validate(&self) -> Result<(), TrainConfigError> {
        share("optimizer.beta1", self.beta1)?;
        share("optimizer.beta2", self.beta2)?;
        above_zero("optimizer.epsilon", self.epsilon)
    }
}

/// AdamW (Loshchilov and Hutter, 2019): running means of each element's gradient and squared gradient.
impl UpdateRule for AdamWConfig {
    const NAME: &'static str = "adamw";
    const STATE: &'static [&'static str] = &["m", "v"];
    const IS_ELEMENTWISE: bool = true;

    fn step(&self, update: Update) -> Stepped {
        self.steps(vec![update], 1.0, None).remove(0)
    }

    fn steps(&self, updates: Vec<Update>, gradient_scale: f64, control: Option<&StepControl>) -> Vec<Stepped> {
        let step = |update: Update| {
            let rule = AdamWRule {
                learning_rate: update.learning_rate,
                beta1: self.beta1,
                beta2: self.beta2,
                epsilon: self.epsilon,
                weight_decay: update.weight_decay,
                step: update.number,
                gradient_scale,
            };
            let mut state = update.state.into_iter();
            let (mean, square) = state.next().zip(state.next()).expect("two parts");
            let moments = Moments { mean, square };
            AdamWStep { rule, parameter: update.parameter, gradient: update.gradient, moments }
        };
        let moved = adamw(updates.into_iter().map(step).collect(), control).into_iter();
        moved.map(|(parameter, Moments { mean, square })| (parameter, vec![mean, square])).collect()
    }
}
