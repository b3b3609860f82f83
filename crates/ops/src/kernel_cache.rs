//! Cache of compiled kernels and tuning results of CubeCL, in the user's cache folder, separate for each card: a second
//! run compiles and tunes nothing. A `cubecl.toml` (or `burn.toml`) takes precedence.

use burn::tensor::Device;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};
use burn_cubecl::cubecl::environment;
use std::path::Path;

/// Environment variable from which CubeCL takes the name of its cache folder.
const NAMED: &str = "CUBECL_ENVIRONMENT";

/// Enables the cache. It must run before the first device is opened; later it has no effect.
pub(crate) fn keep() {
    if is_configured() {
        return;
    }
    let mut config = CubeClRuntimeConfig::default().override_from_env();
    config.compilation.cache = true;
    config.environment.path = CacheConfig::Global;
    CubeClRuntimeConfig::try_set(config);
}

/// Selects the cache of the card of `device`. CubeCL distinguishes devices only by number, but the fastest kernel
/// differs between cards.
pub(crate) fn use_for(device: &Device) {
    let Some(identity) = device.identity() else { return };
    if !is_configured() && std::env::var_os(NAMED).is_none() {
        let name = identity.name.to_lowercase().replace(' ', "-");
        if *environment::active() != *name {
            environment::activate(name);
        }
    }
}

/// Whether this folder or one above it has a file that configures CubeCL.
fn is_configured() -> bool {
    let sections = CubeClRuntimeConfig::section_file_names().iter().map(|(file, _)| *file);
    let names: Vec<&str> = CubeClRuntimeConfig::file_names().iter().copied().chain(sections).collect();
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().any(|folder: &Path| names.iter().any(|name| folder.join(name).is_file()))
}
