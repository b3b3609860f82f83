//! Registry of the types of adapters that YAML can name.

use super::lora::LoraConfig;
use super::{AdapterConfig, AdapterKind};
use serde::de::DeserializeOwned;
use serde_json::Value;
use undertone_registry::typed::ConfigType;
use undertone_registry::{NameTaken, Registry, typed_config};

/// Registers a type of adapter under its name: from then on, `adapter: {type: name, …}` is parsed as this type.
/// Registering a type again has no effect.
///
/// # Errors
/// When another type has the name.
pub fn register<K: AdapterKind + DeserializeOwned + Default>() -> Result<(), NameTaken> {
    TYPES.register(config_type::<K>())
}

static TYPES: Registry<ConfigType<AdapterConfig>> =
    Registry::new("type of adapter", || vec![config_type::<LoraConfig>()]);

fn config_type<K: AdapterKind + DeserializeOwned + Default>() -> ConfigType<AdapterConfig> {
    ConfigType::of::<K>(K::default().name(), K::schema)
}

typed_config!(AdapterConfig, AdapterKind, TYPES, "Adapter", |name| match name {
    Value::String(name) => Ok(name),
    other => Err(format!("`type` is {other}: it names a type of adapter")),
});

impl Default for AdapterConfig {
    fn default() -> Self {
        LoraConfig::default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn adapter(json: Value) -> Result<AdapterConfig, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn an_adapter_is_written_as_it_is_read_with_its_type_first() {
        let lora = LoraConfig { r: 4, target_modules: vec!["q_proj".into()], ..Default::default() };
        let text = serde_json::to_string(&AdapterConfig::from(lora.clone())).expect("written");
        let expected = r#"{"type":"lora","r":4,"lora_alpha":16.0,"lora_dropout":0.0,"target_modules":["q_proj"],"use_rslora":false}"#;
        assert_eq!(text, expected);
        let found: AdapterConfig = serde_json::from_str(&text).expect("read");
        assert_eq!((found.name(), found.downcast_ref::<LoraConfig>()), ("lora", Some(&lora)));
        assert_ne!(found, AdapterConfig::default());
    }

    #[test]
    fn what_is_no_adapter_is_refused_by_name() {
        for (json, expected) in [
            (json!({"type": "lore"}), "unknown variant `lore`, expected `lora`"),
            (json!({"r": 8}), "missing field `type`"),
            (json!({"type": 3}), "`type` is 3"),
            (json!({"type": "lora", "rank": 3}), "`rank`: there is no such key; the keys here are r, lora_alpha"),
            (json!({"type": "lora", "r": -1}), "`r`: invalid value signed int `-1`"),
            (json!("lora"), "invalid type: string \"lora\""),
        ] {
            let error = adapter(json.clone()).expect_err("refused");
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
