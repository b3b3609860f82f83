//! Cache of compiled kernels and tuning results of CubeCL, in the user's cache folder, separate for each card: a second
//! run compiles and tunes nothing. A `cubecl.toml` (or `burn.toml`) takes precedence.

use crate::fusion::is_configured;
use burn::tensor::Device;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};
use burn_cubecl::cubecl::environment;

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
