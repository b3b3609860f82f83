//! The workspace as cargo tells of it.

use super::error::StructureError;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The features that bring a backend or a part of one.
pub const BACKEND_FEATURES: [&str; 8] = ["cuda", "libtorch", "metal", "ndarray", "rocm", "tch", "vulkan", "wgpu"];

/// A package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// Its name without the project's in front: `undertone-train` is `train`.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The root files of its library and its binaries; tests, examples, benchmarks and build scripts are left out.
    pub roots: Vec<PathBuf>,
    /// What it is built with, tests aside.
    pub dependencies: Vec<Dependency>,
    /// Its features, and what each brings.
    pub features: Vec<(String, Vec<String>)>,
}

/// A package that another is built with.
#[derive(Debug)]
pub struct Dependency {
    /// As in [`Package::name`].
    pub name: String,
    /// Whether it is a package of the same workspace.
    pub ours: bool,
    /// The features that it is asked for.
    pub features: Vec<String>,
}

impl Package {
    /// Whether it holds tests and nothing else, which may do what others may not.
    pub fn is_tests(&self) -> bool {
        self.name == "tests"
    }

    /// The packages of the workspace that it is built with, sorted.
    pub fn arrows(&self) -> Vec<&str> {
        let ours = self.dependencies.iter().filter(|dependency| dependency.ours);
        let mut names: Vec<&str> = ours.map(|dependency| dependency.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Every package of the workspace in `root`.
pub fn packages(root: &Path) -> Result<Vec<Package>, StructureError> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(root);
    let output = cargo.output().map_err(|e| StructureError::Cargo(e.to_string()))?;
    if !output.status.success() {
        return Err(StructureError::Cargo(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|e| StructureError::Cargo(e.to_string()))?;
    let mut packages: Vec<Package> = list(&metadata["packages"]).iter().map(package).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(value: &Value) -> Package {
    let manifest = PathBuf::from(text(&value["manifest_path"]));
    let holds_code =
        |target: &&Value| list(&target["kind"]).iter().any(|kind| ["lib", "bin", "proc-macro"].contains(&text(kind)));
    let used = |dependency: &&Value| dependency["kind"] != "dev";
    let features = value["features"].as_object().into_iter().flatten();
    Package {
        name: short(text(&value["name"])),
        folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
        roots: list(&value["targets"]).iter().filter(holds_code).map(|t| text(&t["src_path"]).into()).collect(),
        dependencies: list(&value["dependencies"]).iter().filter(used).map(dependency).collect(),
        features: features.map(|(name, brings)| (name.clone(), texts(brings))).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    let ours = value["path"].is_string();
    let name = text(&value["name"]);
    Dependency { name: if ours { short(name) } else { name.to_owned() }, ours, features: texts(&value["features"]) }
}

/// A package's name as the layout has it.
pub fn short(name: &str) -> String {
    name.strip_prefix("undertone-").unwrap_or(name).to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(|item| text(item).to_owned()).collect()
}
