//! What the configurations of pretrained models have in common: why one is refused, and how a `config.json` is read.

use crate::limits::MOST_NEW_PARAMETERS;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reason why a configuration does not describe a model, or a part of one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A value is outside the range that the architecture allows.
    #[error("`{key}` is {value}: {rule}")]
    Value {
        /// Key of the value.
        key: &'static str,
        /// Invalid value.
        value: String,
        /// Requirement on the value.
        rule: String,
    },
    /// More parameters than may be initialised.
    #[error(
        "it describes a model of {parameters} parameters, and at most {MOST_NEW_PARAMETERS} are initialised: make it narrower, or with fewer {fewer}"
    )]
    TooLarge {
        /// Number of parameters.
        parameters: u128,
        /// Other things to lower than the width.
        fewer: &'static str,
    },
    /// Another reason, in words, such as that a `config.json` is of another architecture.
    #[error("{0}")]
    Other(String),
}

/// Returns the error of a value outside its range.
pub(crate) fn invalid(key: &'static str, value: impl ToString, rule: &str) -> ConfigError {
    ConfigError::Value { key, value: value.to_string(), rule: rule.to_owned() }
}

/// Checks that the dropout of a key is a probability below 1.
///
/// # Errors
/// Names the key.
pub(crate) fn check_dropout(key: &'static str, p: f64) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&p) { Ok(()) } else { Err(invalid(key, p, "it must be at least 0 and below 1")) }
}

/// Reads the keys of a `C` in a `config.json` and ignores all others. A null is as good as none. `optional` are keys that
/// a default `C` is written without.
pub(crate) fn read_known<C: Default + Serialize + DeserializeOwned>(
    json: &Map<String, Value>,
    required: &[&str],
    optional: &[&str],
) -> Result<C, ConfigError> {
    let Value::Object(defaults) = serde_json::to_value(C::default()).unwrap_or_default() else {
        return Err(ConfigError::Other("the default configuration is not a JSON object".into()));
    };
    let is_known = |key: &str| defaults.contains_key(key) || optional.contains(&key);
    let known: Map<String, Value> = json
        .iter()
        .filter(|(key, value)| is_known(key) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(missing) = required.iter().find(|key| !known.contains_key(**key)) {
        return Err(ConfigError::Other(format!("`{missing}` is missing")));
    }
    serde_json::from_value(Value::Object(known)).map_err(|error| ConfigError::Other(error.to_string()))
}
