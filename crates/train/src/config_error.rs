//! What is wrong with a `train` section.

use std::borrow::Cow;
use std::fmt::Debug;

/// A value that no run can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`train.{key}` is {value}: {rule}")]
pub struct TrainConfigError {
    /// The key below `train`.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

impl TrainConfigError {
    /// `rule` is what `value` breaks.
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, value: &dyn Debug, rule: &str) -> Self {
        Self { key: key.into(), value: format!("{value:?}").replace('"', "`"), rule: rule.to_owned() }
    }
}
