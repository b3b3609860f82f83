//! What optimizers are called.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::{PoisonError, RwLock};

/// An optimizer, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimizerName(&'static str);

/// All there are. For serde's errors, which name them for as long as the program runs.
static NAMES: RwLock<&'static [&'static str]> = RwLock::new(&[OptimizerName::ADAMW.0, OptimizerName::ADAFACTOR.0]);

impl OptimizerName {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): two numbers of state for each parameter.
    pub const ADAMW: Self = Self("adamw");
    /// Adafactor (Shazeer and Stern, 2018): of a matrix, one number for each row and column.
    pub const ADAFACTOR: Self = Self("adafactor");

    /// As configurations write it.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Makes a name known: a few words for each, once.
    pub(super) fn add(name: &'static str) {
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        *names = Box::leak([*names, &[name]].concat().into_boxed_slice());
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
        let names = *NAMES.read().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().find(|known| **known == name);
        known.map(|name| Self(name)).ok_or_else(|| D::Error::unknown_variant(&name, names))
    }
}
