//! Update rules by name, each with keys of its own.

use super::adafactor::AdafactorConfig;
use super::adamw::AdamWConfig;
use super::registry;
use super::rule::{Made, UpdateRule};
use crate::config_error::TrainConfigError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use undertone_registry::options::{self, OptionsError};

/// Update rule, with its own keys: in YAML they stand beside `name` in `train.optimizer`.
#[derive(Clone, Debug, PartialEq)]
pub enum Algorithm {
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): two state values per element.
    AdamW(AdamWConfig),
    /// Adafactor (Shazeer and Stern, 2018): one state value for each row and column of a matrix.
    Adafactor(AdafactorConfig),
    /// A rule that another crate has registered.
    Registered {
        /// Its name.
        name: &'static str,
        /// Its keys.
        keys: Map<String, Value>,
    },
}

/// Keys in `train.optimizer` that do not depend on the update rule.
pub(super) const COMMON_KEYS: [&str; 8] =
    ["lr", "weight_decay", "groups", "lora_plus_ratio", "schedule", "warmup_steps", "lr_scaling", "clip_norm"];

const ADAMW: &str = AdamWConfig::NAME;
const ADAFACTOR: &str = AdafactorConfig::NAME;

impl Default for Algorithm {
    fn default() -> Self {
        Self::AdamW(AdamWConfig::default())
    }
}

impl Algorithm {
    /// Returns the name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AdamW(_) => ADAMW,
            Self::Adafactor(_) => ADAFACTOR,
            Self::Registered { name, .. } => name,
        }
    }

    /// Bytes of its state for an element of a trainable parameter, nearly: a row and a column of a matrix count nothing. Two moments
    /// are assumed of a rule that another crate has registered.
    pub fn state_bytes(&self) -> u64 {
        match self {
            Self::AdamW(_) | Self::Registered { .. } => 8,
            Self::Adafactor(AdafactorConfig { beta1: Some(_), .. }) => 4,
            Self::Adafactor(_) => 0,
        }
    }

    pub(super) fn validate(&self) -> Result<(), TrainConfigError> {
        match self {
            Self::AdamW(config) => config.validate(),
            Self::Adafactor(config) => config.validate(),
            Self::Registered { name, keys } => registry::make(name, keys).map(drop).map_err(|reason| {
                let (key, rule) = named(&reason).unwrap_or(("name", &reason));
                let value = keys.get(key).map_or_else(|| format!("`{name}`"), Value::to_string);
                TrainConfigError { key: format!("optimizer.{key}").into(), value, rule: rule.to_owned() }
            }),
        }
    }

    pub(super) fn rule(&self) -> Made {
        match self {
            Self::AdamW(config) => Ok(Box::new(config.clone())),
            Self::Adafactor(config) => Ok(Box::new(config.clone())),
            Self::Registered { name, keys } => registry::make(name, keys),
        }
    }

    fn read(name: &str, keys: Map<String, Value>) -> Result<Self, String> {
        let refused = |error: OptionsError, usual: Self| match error {
            OptionsError::Key { key, problem } if problem.starts_with("there is no such key") => {
                let own = serde_json::to_value(usual).unwrap_or_default();
                let own = own.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
                let known: Vec<&str> = own.chain(COMMON_KEYS).collect();
                let known = known.join(", ");
                format!("`{key}`: there is no such key with `name: {name}`; the keys here are {known}")
            }
            error => error.to_string(),
        };
        match name {
            ADAMW => options::read(&keys).map(Self::AdamW).map_err(|error| refused(error, Self::default())),
            ADAFACTOR => options::read(&keys)
                .map(Self::Adafactor)
                .map_err(|error| refused(error, Self::Adafactor(AdafactorConfig::default()))),
            name => {
                let name = registry::name(name).map_err(|error| format!("`name`: {error}"))?;
                Ok(Self::Registered { name, keys })
            }
        }
    }
}

/// Splits a refusal into the key that it begins with and the problem.
fn named(reason: &str) -> Option<(&str, &str)> {
    reason.strip_prefix('`')?.split_once("`: ")
}

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = match self {
            Self::AdamW(config) => serde_json::to_value(config),
            Self::Adafactor(config) => serde_json::to_value(config),
            Self::Registered { keys, .. } => Ok(keys.clone().into()),
        };
        let mut named = Map::from_iter([("name".to_owned(), self.name().into())]);
        if let Value::Object(keys) = keys.map_err(serde::ser::Error::custom)? {
            named.extend(keys);
        }
        named.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(deserializer)?;
        let name = match keys.remove("name") {
            None => ADAMW.to_owned(),
            Some(Value::String(name)) => name,
            Some(other) => return Err(D::Error::custom(format!("`name`: invalid type: {other}, expected a name"))),
        };
        Self::read(&name, keys).map_err(D::Error::custom)
    }
}

impl JsonSchema for Algorithm {
    fn schema_name() -> Cow<'static, str> {
        "Algorithm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let built_in = |name: &str, mut keys: Schema, required: &[&str]| {
            // The keys of all optimizers stand beside these.
            keys.remove("additionalProperties");
            keys.remove("title");
            keys.insert("required".into(), json!(required));
            if let Some(properties) = keys.get_mut("properties").and_then(Value::as_object_mut) {
                properties.insert("name".into(), json!({"type": "string", "const": name}));
            }
            keys.to_value()
        };
        let mut kinds = vec![
            built_in(ADAMW, AdamWConfig::json_schema(generator), &[]),
            built_in(ADAFACTOR, AdafactorConfig::json_schema(generator), &["name"]),
        ];
        let others = registry::names().into_iter().filter(|name| ![ADAMW, ADAFACTOR].contains(name));
        kinds.extend(others.map(|name| {
            json!({
                "type": "object", "description": "An optimizer of another crate, with keys of its own.",
                "properties": {"name": {"type": "string", "const": name}}, "required": ["name"], "additionalProperties": true
            })
        }));
        json_schema!({ "anyOf": kinds })
    }
}
