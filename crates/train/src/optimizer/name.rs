//! What optimizers are called.

use super::registry;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An optimizer, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimizerName(&'static str);

impl OptimizerName {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): two numbers of state for each parameter.
    pub const ADAMW: Self = Self("adamw");
    /// Adafactor (Shazeer and Stern, 2018): of a matrix, one number for each row and column.
    pub const ADAFACTOR: Self = Self("adafactor");

    /// As configurations write it.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Whether it comes with Undertone.
    pub(super) fn is_built_in(self) -> bool {
        [Self::ADAMW, Self::ADAFACTOR].contains(&self)
    }
}

impl Default for OptimizerName {
    fn default() -> Self {
        Self::ADAMW
    }
}

impl Serialize for OptimizerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for OptimizerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        registry::name(&name).map(Self).map_err(D::Error::custom)
    }
}
