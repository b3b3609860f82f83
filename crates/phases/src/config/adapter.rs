//! The two keys of an adapter: `adapter: {type: …}`, and `lora: {…}`, which is short for `adapter: {type: lora, …}`.

use undertone_model::adapters::AdapterConfig;
use undertone_model::adapters::lora::LoraConfig;

/// Values of the keys `lora` and `adapter`.
pub(crate) type AdapterKeys = (Option<LoraConfig>, Option<AdapterConfig>);

/// Returns the keys that an adapter is recorded with: LoRA's by its short one.
pub(crate) fn keys_of(adapter: AdapterConfig) -> AdapterKeys {
    match adapter.downcast_ref::<LoraConfig>() {
        Some(lora) => (Some(lora.clone()), None),
        None => (None, Some(adapter)),
    }
}

/// Returns the adapter of a configuration with these keys; LoRA's default if both are left out.
pub(crate) fn adapter_of(lora: Option<&LoraConfig>, adapter: Option<&AdapterConfig>) -> AdapterConfig {
    adapter.cloned().or_else(|| lora.cloned().map(Into::into)).unwrap_or_default()
}

/// Returns the keys as they are recorded, with `usual` if both are left out.
pub(super) fn settled(keys: AdapterKeys, usual: fn() -> LoraConfig) -> Result<AdapterKeys, &'static str> {
    match keys {
        (Some(_), Some(_)) => Err(BOTH),
        (None, Some(adapter)) => Ok(keys_of(adapter)),
        (lora, None) => Ok((Some(lora.unwrap_or_else(usual)), None)),
    }
}

const BOTH: &str =
    "`lora` and `adapter` are both given, and `lora: {…}` is short for `adapter: {type: lora, …}`: leave one out";

/// Returns the key that an adapter is recorded with.
pub(crate) fn key_of(adapter: &AdapterConfig) -> &'static str {
    if adapter.downcast_ref::<LoraConfig>().is_some() { "lora" } else { "adapter" }
}
