//! Error of a `train` section.

use std::borrow::Cow;
use std::fmt::Debug;

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`train.{key}` is {value}: {rule}")]
pub struct TrainConfigError {
    /// Key below `train`.
    pub key: Cow<'static, str>,
    /// Value of the key.
    pub value: String,
    /// Rule that the value breaks.
    pub rule: String,
}

impl TrainConfigError {
    /// Makes the error that `value` breaks `rule`.
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, value: &dyn Debug, rule: &str) -> Self {
        Self { key: key.into(), value: format!("{value:?}").replace('"', "`"), rule: rule.to_owned() }
    }
}

/// Checks that a value is at least 0 and below 1.
pub(crate) fn share(key: &'static str, value: f64) -> Result<(), TrainConfigError> {
    check((0.0..1.0).contains(&value), key, &value, "must be at least 0 and below 1")
}

/// Checks that a value is above 0.
pub(crate) fn above_zero(key: &'static str, value: f64) -> Result<(), TrainConfigError> {
    check(value.is_finite() && value > 0.0, key, &value, "must be above 0")
}

/// Makes the error that `value` breaks `rule`, unless the rule holds.
pub(crate) fn check(holds: bool, key: &'static str, value: &dyn Debug, rule: &str) -> Result<(), TrainConfigError> {
    if holds { Ok(()) } else { Err(TrainConfigError::new(key, value, rule)) }
}
