//! Configuration of the loss terms on the encoder from known timing.

use super::ConfigError;
use super::error::ensure;
use serde::{Deserialize, Serialize};

/// Loss terms on the encoder from known timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlignmentConfig {
    /// Weight of the cross-entropy of the character at each position; 0 leaves it out.
    pub characters: f64,
    /// Weight of the cross-entropy of the element at each position; 0 leaves it out.
    pub elements: f64,
    /// Number of encoder blocks before the element head.
    pub elements_layer: usize,
}

impl Default for AlignmentConfig {
    fn default() -> Self {
        Self { characters: 0.0, elements: 0.0, elements_layer: 2 }
    }
}

impl AlignmentConfig {
    /// Whether any term has a weight above 0.
    pub fn is_on(&self) -> bool {
        self.characters > 0.0 || self.elements > 0.0
    }

    /// # Errors
    /// When a weight is negative or not finite, or `elements_layer` is set without a weight for `elements`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, weight) in [("characters", self.characters), ("elements", self.elements)] {
            ensure(weight.is_finite() && weight >= 0.0, || {
                format!("`loss.alignment.{key}` is {weight}: it must be at least 0")
            })?;
        }
        let is_usual = self.elements_layer == Self::default().elements_layer;
        ensure(
            self.elements != 0.0 || is_usual,
            || "`loss.alignment.elements_layer` is for `loss.alignment.elements`, which is 0: give that a weight, or leave it out",
        )?;
        Ok(())
    }
}
