//! Effects on audio that other crates register. Each has its own keys under its name in the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone_registry::{NameTaken, Registry};

use super::AugmentError;
use crate::options::{Options, OptionsError};
use crate::shared::entry;

/// A kind of effect.
pub trait Effect: Send + Sync {
    /// Returns the name that configurations use.
    fn name(&self) -> &str;

    /// Checks settings and returns them with the defaults of the keys that are left out. With the defaults alone the
    /// effect is off.
    ///
    /// # Errors
    /// Names the invalid key.
    fn complete(&self, settings: &Options) -> Result<Options, OptionsError>;

    /// Returns the JSON Schema of the settings.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;

    /// Returns the effect with complete settings; `None` if it never changes audio with them.
    ///
    /// # Errors
    /// Names the invalid key.
    fn open(&self, settings: &Options) -> Result<Option<Box<dyn AudioEffect>>, OptionsError>;
}

/// An effect with its settings.
pub trait AudioEffect: Send + Sync {
    /// Changes a clip of 16 kHz, and returns whether it did. All randomness comes from `draw`.
    fn apply(&self, audio: &mut [f32], draw: u64) -> bool;
}

static EFFECTS: Registry<Entry> = Registry::new("augmentation", Vec::new);

entry!(Effect);

/// Registers a kind of effect under its name, for the whole process.
///
/// # Errors
/// If the name is already registered.
pub fn register(effect: impl Effect + 'static) -> Result<(), NameTaken> {
    EFFECTS.register(Entry(Arc::new(effect)))
}

/// Complete settings of all registered effects, by their names.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Effects(BTreeMap<String, Options>);

impl Default for Effects {
    /// Returns the default settings, with which every effect is off.
    fn default() -> Self {
        let default = |Entry(effect): Entry| Some((effect.name().to_owned(), effect.complete(&Map::new()).ok()?));
        Self(EFFECTS.all().into_iter().filter_map(default).collect())
    }
}

impl Effects {
    /// Sets an effect's settings.
    ///
    /// # Errors
    /// If there is no such effect, or if it refuses the settings.
    pub fn set(&mut self, name: &str, settings: &Options) -> Result<(), OptionsError> {
        let Entry(effect) = EFFECTS.get(name).map_err(|unknown| OptionsError::Value(unknown.to_string()))?;
        let complete = effect.complete(settings).map_err(|error| match error.within(name) {
            OptionsError::Value(reason) => OptionsError::Value(format!("augment.{name}.{reason}")),
            error => error,
        });
        self.0.insert(name.to_owned(), complete?);
        Ok(())
    }

    /// Opens the effects that can change audio, in the order of their names.
    pub(super) fn open(&self) -> Result<Vec<Box<dyn AudioEffect>>, AugmentError> {
        let open = |(name, settings): (&String, &Options)| {
            let Ok(Entry(effect)) = EFFECTS.get(name) else { return Ok(None) };
            let refused = |source: OptionsError| AugmentError::Effect { name: name.clone(), source };
            effect.complete(settings).and_then(|settings| effect.open(&settings)).map_err(refused)
        };
        self.0.iter().filter_map(|settings| open(settings).transpose()).collect()
    }
}

/// Keys of the configuration beside the effects, for a message.
const KEYS: &[&str] = &["speed", "reverb", "noise", "volume", "spec_augment", "text"];

impl<'de> Deserialize<'de> for Effects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut effects = Self::default();
        for (name, settings) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            if !effects.0.contains_key(&name) {
                let known: Vec<&str> = KEYS.iter().copied().chain(effects.0.keys().map(String::as_str)).collect();
                let more = match effects.0.is_empty() {
                    true => ", and those of registered augmentations (`undertone::register()` adds Undertone's own)",
                    false => "",
                };
                let known = known.join(", ");
                return Err(D::Error::custom(format!(
                    "`{name}`: there is no such key; the keys here are {known}{more}"
                )));
            }
            let Value::Object(settings) = settings else {
                return Err(D::Error::custom(format!("`{name}`: these are keys and their values, not {settings}")));
            };
            effects.set(&name, &settings).map_err(D::Error::custom)?;
        }
        Ok(effects)
    }
}

impl JsonSchema for Effects {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Effects".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let schema = |Entry(effect): Entry| (effect.name().to_owned(), effect.schema(generator).to_value());
        let properties: Map<String, Value> = EFFECTS.all().into_iter().map(schema).collect();
        json_schema!({"type": "object", "properties": properties})
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Augment, AugmentConfig};
    use super::*;
    use crate::options;
    use std::sync::Once;

    /// Turns a clip over.
    struct Reversed;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        p: f32,
    }

    impl Effect for Reversed {
        fn name(&self) -> &str {
            "reversed"
        }

        fn complete(&self, settings: &Options) -> Result<Options, OptionsError> {
            let settings: Settings = options::read(settings)?;
            match (0.0..=1.0).contains(&settings.p) {
                true => Ok(options::write(&settings)),
                false => Err(OptionsError::Value(format!("p is {}", settings.p))),
            }
        }

        fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
            generator.subschema_for::<Settings>()
        }

        fn open(&self, settings: &Options) -> Result<Option<Box<dyn AudioEffect>>, OptionsError> {
            let on = options::read::<Settings>(settings)?.p > 0.0;
            Ok(on.then(|| Box::new(Self) as Box<dyn AudioEffect>))
        }
    }

    impl AudioEffect for Reversed {
        fn apply(&self, audio: &mut [f32], _: u64) -> bool {
            audio.reverse();
            true
        }
    }

    fn registered() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| register(Reversed).expect("registered"));
    }

    #[test]
    fn a_registered_effect_has_a_key_of_its_own() {
        registered();
        let config: AugmentConfig = serde_json::from_str(r#"{"reversed": {"p": 1}}"#).expect("read");
        assert!(config.changes_audio() && !AugmentConfig::default().changes_audio());
        let written = serde_json::to_value(&config).expect("written");
        assert_eq!(written["reversed"], serde_json::json!({"p": 1.0}));
        assert_eq!(serde_json::from_value::<AugmentConfig>(written).expect("read"), config);
        let mut audio = vec![0.1, 0.2];
        Augment::new(&config, 100).expect("made").audio(&mut audio, 1);
        assert_eq!(audio, [0.2, 0.1]);
    }

    #[test]
    fn a_refusal_names_the_effect_and_its_key() {
        registered();
        let refused = |yaml: &str| serde_json::from_str::<AugmentConfig>(yaml).expect_err("refused").to_string();
        assert!(refused(r#"{"reversed": {"q": 1}}"#).starts_with("`reversed.q`: there is no such key"));
        assert!(refused(r#"{"reversed": {"p": 2}}"#).starts_with("augment.reversed.p is 2"));
        assert!(refused(r#"{"reversed": 2}"#).starts_with("`reversed`: "));
        let unknown = refused(r#"{"revresed": {}}"#);
        assert!(unknown.starts_with("`revresed`: there is no such key; the keys here are speed, "), "{unknown}");
        assert!(unknown.contains(", reversed"), "{unknown}");
    }
}
