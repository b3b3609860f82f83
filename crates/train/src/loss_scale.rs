//! Loss scaling, which keeps small gradients from vanishing in f16.

use crate::config_error::{TrainConfigError, check};
use serde::{Deserialize, Serialize};

/// Loss scaling for products in f16 (Micikevicius et al., 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossScaleConfig {
    /// Scale of the first step.
    pub initial_scale: f64,
    /// Number of steps in a row without an overflow after which the scale doubles. It halves with each overflow.
    pub growth_interval: u64,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        Self { initial_scale: 65536.0, growth_interval: 2000 }
    }
}

/// State of loss scaling; part of a run's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor on the loss.
    pub scale: f64,
    /// Steps without an overflow since the scale changed.
    pub good_steps: u64,
    /// Steps that were skipped because a gradient overflowed.
    pub skipped: u64,
}

/// Maximum scale. Beyond it a loss of 1 would come near the maximum of f32.
pub(crate) const LARGEST_SCALE: f64 = (1_u64 << 40) as f64;

impl LossScaleConfig {
    pub(crate) fn validate(&self) -> Result<(), TrainConfigError> {
        let is_valid = (1.0..=LARGEST_SCALE).contains(&self.initial_scale);
        check(is_valid, "compute.initial_scale", &self.initial_scale, "must be at least 1 and at most 2^40")?;
        check(self.growth_interval > 0, "compute.growth_interval", &0, "must be at least 1")
    }
}

impl LossScale {
    pub(crate) fn new(config: &LossScaleConfig) -> Self {
        Self { scale: config.initial_scale, good_steps: 0, skipped: 0 }
    }

    /// Records a step whose gradient was finite.
    pub(crate) fn good(&mut self, config: &LossScaleConfig) {
        self.good_steps += 1;
        if self.good_steps >= config.growth_interval && self.scale < LARGEST_SCALE {
            (self.scale, self.good_steps) = (2.0 * self.scale, 0);
        }
    }

    /// Records a step whose gradient overflowed. Returns whether there is a smaller scale to try.
    pub(crate) fn overflow(&mut self) -> bool {
        if self.scale <= 1.0 {
            return false;
        }
        (self.scale, self.good_steps) = ((self.scale / 2.0).max(1.0), 0);
        self.skipped += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_with_each_overflow_and_doubles_after_good_steps() {
        let config = LossScaleConfig { initial_scale: 3.0, growth_interval: 2 };
        let mut scale = LossScale::new(&config);
        assert!(scale.overflow() && scale.overflow());
        assert_eq!(scale, LossScale { scale: 1.0, good_steps: 0, skipped: 2 });
        assert!(!scale.overflow(), "nothing is left below 1");
        (0..5).for_each(|_| scale.good(&config));
        assert_eq!(scale, LossScale { scale: 4.0, good_steps: 1, skipped: 2 });
        assert!(scale.overflow());
        assert_eq!(scale, LossScale { scale: 2.0, good_steps: 0, skipped: 3 });
    }
}
