//! Copies of the models among the fixtures, which tests change.

use crate::tensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use undertone::store::HostTensor;

/// Copies the files of a folder to a new one, without some of them.
pub fn copy_folder(from: &Path, to: &Path, without: &[&str]) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("an entry");
        if !without.iter().any(|name| entry.file_name() == *name) {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// A copy of a model's folder, which is loaded as an `M`.
pub struct Folder<M> {
    dir: TempDir,
    load: fn(&Path) -> Result<M, String>,
}

impl<M> Folder<M> {
    /// Copies a fixture, without the files that are no part of the model.
    pub fn copy(fixture: &Path, without: &[&str], load: fn(&Path) -> Result<M, String>) -> Self {
        let this = Self { dir: tempfile::tempdir().expect("a directory"), load };
        copy_folder(fixture, &this.path(), without);
        this
    }

    /// The model's folder.
    pub fn path(&self) -> PathBuf {
        self.beside("model")
    }

    /// A path beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes one of its files.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), bytes).expect("written");
    }

    /// Writes one of its JSON files.
    pub fn write_json(&self, name: &str, value: &Value) {
        self.write(name, value.to_string());
    }

    /// Reads one of its JSON files.
    pub fn json(&self, name: &str) -> Value {
        read_json(&self.path().join(name))
    }

    /// Every tensor of its safetensors files.
    pub fn stored(&self) -> BTreeMap<String, HostTensor> {
        let paths = std::fs::read_dir(self.path()).expect("listed").map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
            .flat_map(|path| tensors(&path))
            .collect()
    }

    /// Loads the model.
    pub fn load(&self) -> M {
        (self.load)(&self.path()).expect("a model")
    }

    /// Checks that sizes far beyond what the weights have are refused by their keys in `config.json`, and before anything as large is
    /// made. More layers are refused by the name of a tensor that has `missing_layer` in it.
    pub fn refuses_sizes(&self, sizes: &[(&str, u64)], missing_layer: &str) {
        let whole = self.json("config.json");
        for (key, large) in sizes {
            for value in [*large, 1_000_000_000_000, u64::MAX] {
                let mut config = whole.clone();
                config[*key] = value.into();
                self.write_json("config.json", &config);
                let error = self.refusal();
                let named = if value == *large && key.ends_with("_layers") { missing_layer } else { key };
                assert!(
                    error.contains(named) && error.contains(self.path().to_str().expect("UTF-8")),
                    "{key}: {error}"
                );
            }
        }
        self.write_json("config.json", &whole);
        self.load();
        assert!(undertone::train::peak_memory_bytes().is_none_or(|peak| peak < 1 << 30));
    }

    /// Why the model cannot be loaded.
    pub fn refusal(&self) -> String {
        (self.load)(&self.path()).err().expect("refused")
    }
}

/// Reads a JSON file.
#[track_caller]
pub fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
