//! Options of kinds that other crates register: the keys of a configuration that only the kind itself can read.

use figment::Figment;
use figment::error::Kind;
use figment::providers::Serialized;
use schemars::{Schema, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Keys and values, as in the YAML.
pub type Options = Map<String, Value>;

/// Reason why options are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A key is unknown, or its value has the wrong type.
    #[error("`{key}`: {problem}")]
    Key {
        /// Path of the key, such as `text.fixed`.
        key: String,
        /// The problem.
        problem: String,
    },
    /// The settings are invalid. The message names the key.
    #[error("{0}")]
    Value(String),
}

impl OptionsError {
    /// Returns the same error for options that are the value of `key`.
    pub fn within(self, key: &str) -> Self {
        match self {
            Self::Key { key: inner, problem } if inner.is_empty() => Self::Key { key: key.to_owned(), problem },
            Self::Key { key: inner, problem } => Self::Key { key: format!("{key}.{inner}"), problem },
            value @ Self::Value(_) => value,
        }
    }
}

/// Reads options as the settings that they are. Keys that are left out have the defaults of `C`.
///
/// # Errors
/// Names the key that is unknown or has a value of the wrong type.
pub fn read<C: DeserializeOwned>(options: &Options) -> Result<C, OptionsError> {
    Figment::from(Serialized::defaults(options)).extract().map_err(|error: figment::Error| {
        let mut path = error.path.clone();
        let problem = match &error.kind {
            Kind::UnknownField(field, known) => {
                if path.last() != Some(field) {
                    path.push(field.clone());
                }
                format!("there is no such key; the keys here are {}", known.join(", "))
            }
            kind => kind.to_string(),
        };
        OptionsError::Key { key: path.join("."), problem }
    })
}

/// Returns settings as options, with all keys.
///
/// Single-precision numbers keep their shortest spelling, 0.1 for example, so that they read as they were written.
pub fn write<C: Serialize>(settings: &C) -> Options {
    let text = serde_json::to_string(settings).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns `options` with the keys of `changes` replaced. Maps are merged key by key, lists are replaced as a whole.
pub fn merged(mut options: Options, changes: &Options) -> Options {
    for (key, change) in changes {
        let merged = match (options.remove(key), change) {
            (Some(Value::Object(before)), Value::Object(change)) => Value::Object(merged(before, change)),
            _ => change.clone(),
        };
        options.insert(key.clone(), merged);
    }
    options
}

/// Returns the schema of a choice by `type` from these types and the schemas of their other keys.
pub fn schema_by_type(types: impl IntoIterator<Item = (&'static str, Schema)>) -> Schema {
    let types = types.into_iter().map(|(name, mut keys)| {
        keys.insert("required".into(), json!(["type"]));
        let properties = keys.ensure_object().entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("type".into(), json!({"const": name}));
        }
        keys
    });
    json_schema!({"oneOf": types.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Beep {
        hz: f32,
        range: [f32; 2],
        inner: Inner,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        on: bool,
    }

    fn options(value: Value) -> Options {
        value.as_object().expect("a map").clone()
    }

    #[test]
    fn what_is_written_reads_the_same_and_is_short() {
        let beep: Beep = read(&options(json!({"hz": 0.1, "range": [1, 2.3]}))).expect("read");
        assert_eq!(beep, Beep { hz: 0.1, range: [1.0, 2.3], inner: Inner::default() });
        let written = write(&beep);
        assert_eq!(Value::Object(written.clone()), json!({"hz": 0.1, "range": [1.0, 2.3], "inner": {"on": false}}));
        assert_eq!(read(&written), Ok(beep));
    }

    #[test]
    fn a_refusal_names_the_key_with_its_path() {
        let refused = |value| read::<Beep>(&options(value)).expect_err("refused").within("beep").to_string();
        let said = refused(json!({"inner": {"off": true}}));
        assert!(said.starts_with("`beep.inner.off`: there is no such key; the keys here are on"), "{said}");
        assert!(refused(json!({"range": [1]})).starts_with("`beep.range`: "));
    }

    #[test]
    fn changes_reach_into_maps_and_replace_lists() {
        let before = options(json!({"hz": 1, "range": [1, 2], "inner": {"on": true, "also": 3}}));
        let after = merged(before, &options(json!({"range": [5], "inner": {"on": false}})));
        assert_eq!(Value::Object(after), json!({"hz": 1, "range": [5], "inner": {"on": false, "also": 3}}));
    }
}
