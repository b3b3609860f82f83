//! Settings of Burn's fusion, which joins elementwise operations to one kernel. A `cubecl.toml` (or `burn.toml`) takes precedence.

use burn::BurnConfig;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use serde::Deserialize;
use serde::de::{IntoDeserializer, value};
use std::collections::BTreeMap;
use std::path::Path;

/// Groups of operations that fusion collects side by side. With Burn's five, a group that nothing ends, such as the scalars of a loss,
/// holds back every operation behind it: 1,400 in the backward pass of Whisper small, which fusion then compares with each other. One
/// group finds nearly as few kernels: 2,068 a step with LoRA, and three find 2,066.
const GROUPS: usize = 1;

/// Applies the settings. It must run before the first device is opened; later it has no effect.
pub(crate) fn configure() {
    if !is_configured()
        && let Ok(config) = settings()
    {
        BurnConfig::try_set(config.override_from_env());
    }
}

/// Burn gives its settings no other way in than by deserialization.
fn settings() -> Result<BurnConfig, value::Error> {
    let search = BTreeMap::from([("beam_search", BTreeMap::from([("max_blocks", GROUPS)]))]);
    BurnConfig::deserialize(BTreeMap::from([("fusion", search)]).into_deserializer())
}

/// Whether this folder or one above it has a file that configures CubeCL.
pub(crate) fn is_configured() -> bool {
    let sections = CubeClRuntimeConfig::section_file_names().iter().map(|(file, _)| *file);
    let names: Vec<&str> = CubeClRuntimeConfig::file_names().iter().copied().chain(sections).collect();
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().any(|folder: &Path| names.iter().any(|name| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burn_reads_the_settings() {
        let settings = settings().expect("Burn's settings");
        assert_eq!(settings.fusion().beam_search.max_blocks, GROUPS);
        assert_eq!(settings.fusion().growth_patience, BurnConfig::default().fusion().growth_patience);
    }
}
