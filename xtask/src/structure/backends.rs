//! Backends: only one crate names them.

use super::finding::{Finding, Rule};
use super::modules::{Target, Tree};
use super::workspace::{BACKEND_FEATURES, Package};
use std::path::Path;

/// The crate that may.
const OWNER: &str = "ops";

/// Crates that are backends, or what they are made of.
const CRATES: [&str; 12] = [
    "burn-cpu", "burn-cubecl", "burn-cuda", "burn-flex", "burn-ndarray", "burn-rocm", "burn-tch", "burn-wgpu",
    "cubecl", "cubecl-cuda", "cubek", "tch",
];

/// Backends' types and makers of devices in what Burn exports.
const NAMES: [&str; 24] = [
    "Candle", "Cpu", "Cuda", "Flex", "LibTorch", "Metal", "NdArray", "Rocm", "Vulkan", "WebGpu", "Wgpu", "cpu", "cuda",
    "flex", "libtorch", "libtorch_cuda", "libtorch_mps", "libtorch_vulkan", "metal", "ndarray", "rocm", "vulkan",
    "webgpu", "wgpu",
];

/// Where the manifest of a crate that may not names a backend. Features that hand on those of another crate of the workspace
/// are no naming.
pub fn check_manifest(package: &Package, place: &str) -> Vec<Finding> {
    if package.name == OWNER || package.is_tests() {
        return Vec::new();
    }
    let found = |text: String| Finding::new(Rule::Backend, place, text);
    let mut findings = Vec::new();
    for dependency in package.dependencies.iter().filter(|dependency| !dependency.ours) {
        if CRATES.contains(&dependency.name.as_str()) {
            findings.push(found(format!("it depends on {}, which only {OWNER} may", dependency.name)));
        }
        let features = dependency.features.iter().filter(|feature| BACKEND_FEATURES.contains(&feature.as_str()));
        for feature in features.filter(|_| dependency.name.starts_with("burn")) {
            findings
                .push(found(format!("it asks {} for the backend {feature}, which only {OWNER} may", dependency.name)));
        }
    }
    for (name, brings) in &package.features {
        for brought in brings {
            let (of, feature) = brought.split_once('/').unwrap_or((brought, ""));
            let of = of.trim_start_matches("dep:").trim_end_matches('?');
            if CRATES.contains(&of) || (of == "burn" && BACKEND_FEATURES.contains(&feature)) {
                findings.push(found(format!("its feature {name} brings {brought}, which only {OWNER} may")));
            }
        }
    }
    findings
}

/// Where the code of a crate that may not names a backend of those that Burn exports; it can name no crate that its
/// manifest does not. `show` makes a file's path short.
pub fn check_code(package: &Package, tree: &Tree, show: impl Fn(&Path) -> String) -> Vec<Finding> {
    if package.name == OWNER || package.is_tests() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, module) in tree.modules.iter().enumerate() {
        let file = show(&tree.files[module.file]);
        for mention in &module.mentions {
            if let Target::Outside(path) = tree.resolve(index, &mention.path)
                && names_backend(&path)
            {
                let text = format!("`{}` names a backend, which only {OWNER} may", path.join("::"));
                findings.push(Finding::new(Rule::Backend, &file, text));
            }
        }
        for feature in module.features.iter().filter(|name| BACKEND_FEATURES.contains(&name.as_str())) {
            let text = format!("code that depends on the feature {feature}, which only {OWNER}'s may");
            findings.push(Finding::new(Rule::Backend, &file, text));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

fn names_backend(path: &[String]) -> bool {
    path.split_first()
        .is_some_and(|(first, rest)| first == "burn" && rest.iter().any(|name| NAMES.contains(&name.as_str())))
}
