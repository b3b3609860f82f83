//! Keys of an update rule.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads the keys of a rule.
///
/// # Errors
/// Begins with the key that is unknown or has an invalid value: "`beta1`: invalid type".
pub(super) fn read_keys<T: DeserializeOwned>(keys: &Map<String, Value>) -> Result<T, String> {
    let read = |keys: Map<String, Value>| serde_json::from_value::<T>(keys.into());
    let alone = |(key, value): (&String, &Value)| {
        let error = read(Map::from_iter([(key.clone(), value.clone())])).err()?.to_string();
        (!error.starts_with("missing field")).then(|| format!("`{key}`: {error}"))
    };
    read(keys.clone()).map_err(|error| keys.iter().find_map(alone).unwrap_or_else(|| error.to_string()))
}

/// Splits what [`read_keys`] says into key and problem.
pub(super) fn named(reason: &str) -> Option<(&str, &str)> {
    reason.strip_prefix('`')?.split_once("`: ")
}
