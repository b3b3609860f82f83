//! Scaling of the learning rate with the batch size.

use crate::config_error::TrainConfigError;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use undertone_registry::choice;

/// Scaling of learning rates where an optimizer step does not have `base_batch` samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
#[schemars(rename = "LrScalingConfig", deny_unknown_fields, transform = choice::by_name)]
pub enum LrScalingConfig {
    /// No scaling.
    #[default]
    None,
    /// In proportion to the batch size (Goyal et al., 2017), as for SGD.
    Linear {
        /// Samples in an optimizer step, over all its batches, for which `lr` is right.
        base_batch: usize,
    },
    /// With the square root of the batch size (Malladi et al., 2022), for adaptive optimizers.
    Sqrt {
        /// Samples in an optimizer step, over all its batches, for which `lr` is right.
        base_batch: usize,
    },
}

choice!(LrScalingConfig, "type");

/// Rule by which a learning rate follows the batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LrScaling {
    /// No scaling.
    #[default]
    None,
    /// In proportion to the batch size (Goyal et al., 2017), as for SGD.
    Linear,
    /// With the square root of the batch size (Malladi et al., 2022), for adaptive optimizers.
    Sqrt,
}

impl LrScalingConfig {
    /// Returns the rule, and the number of samples for which the learning rate is right.
    pub fn rule(self) -> Option<(LrScaling, usize)> {
        match self {
            Self::None => None,
            Self::Linear { base_batch } => Some((LrScaling::Linear, base_batch)),
            Self::Sqrt { base_batch } => Some((LrScaling::Sqrt, base_batch)),
        }
    }

    pub(super) fn validate(self) -> Result<(), TrainConfigError> {
        match self.rule() {
            Some((_, 0)) => Err(TrainConfigError::new("optimizer.lr_scaling.base_batch", &0, "must be at least 1")),
            _ => Ok(()),
        }
    }
}

impl FromStr for LrScaling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "linear" => Ok(Self::Linear),
            "sqrt" => Ok(Self::Sqrt),
            _ => Err(format!("there is no rule `{text}`: choose none, linear or sqrt")),
        }
    }
}

impl LrScaling {
    /// Returns the factor on a learning rate that is right for steps of `base` samples, for steps of `samples`.
    pub fn factor(self, samples: f64, base: usize) -> f64 {
        let ratio = samples / base as f64;
        match self {
            Self::None => 1.0,
            Self::Linear => ratio,
            Self::Sqrt => ratio.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_scaling_are_known_by_name() {
        assert_eq!("sqrt".parse(), Ok(LrScaling::Sqrt));
        assert!("cubic".parse::<LrScaling>().expect_err("no rule").contains("cubic"));
    }
}
