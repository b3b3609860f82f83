//! Where CubeCL keeps the kernels it has compiled and what tuning has chosen: for each card by itself, in the user's cache folder,
//! so that a second run compiles and tries nothing. Whoever has a `cubecl.toml` (or `burn.toml`) decides by it instead.

use burn::tensor::Device;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};
use burn_cubecl::cubecl::environment;
use std::path::Path;

/// The variable by which CubeCL takes the name of its folder from whoever starts the program.
const NAMED: &str = "CUBECL_ENVIRONMENT";

/// Has compiled kernels kept. Before the first device is opened; later it changes nothing.
pub(crate) fn keep() {
    if is_configured() {
        return;
    }
    let mut config = CubeClRuntimeConfig::default().override_from_env();
    config.compilation.cache = true;
    config.environment.path = CacheConfig::Global;
    CubeClRuntimeConfig::try_set(config);
}

/// Goes on with what is kept for the card of `device`: CubeCL tells devices apart by their number alone, and what is fastest on one
/// card is not on another.
pub(crate) fn use_for(device: &Device) {
    let Some(identity) = device.identity() else { return };
    if !is_configured() && std::env::var_os(NAMED).is_none() {
        let name = identity.name.to_lowercase().replace(' ', "-");
        if *environment::active() != *name {
            environment::activate(name);
        }
    }
}

/// Whether a file in this folder or one above it configures CubeCL.
fn is_configured() -> bool {
    let sections = CubeClRuntimeConfig::section_file_names().iter().map(|(file, _)| *file);
    let names: Vec<&str> = CubeClRuntimeConfig::file_names().iter().copied().chain(sections).collect();
    let here = std::env::current_dir().unwrap_or_default();
    here.ancestors().any(|folder: &Path| names.iter().any(|name| folder.join(name).is_file()))
}
