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
