//! Names of optimizers.

use serde::{Serialize, Serializer};

/// An optimizer, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimizerName(&'static str);

impl OptimizerName {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): two state values per element.
    pub const ADAMW: Self = Self("adamw");
    /// Adafactor (Shazeer and Stern, 2018): one state value for each row and column of a matrix.
    pub const ADAFACTOR: Self = Self("adafactor");

    /// The name in a configuration.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// A name that the registry has.
    pub(super) const fn registered(name: &'static str) -> Self {
        Self(name)
    }

    /// Whether the optimizer comes with Undertone.
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
