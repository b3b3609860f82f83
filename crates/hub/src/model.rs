use crate::error::HubError;
use crate::http::HttpError;
use crate::hub::Hub;
use crate::snapshot::{Snapshot, repository};
use hf_hub::{Cache, RepoType};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files other than the weights that a model's folder may contain.
const BESIDE_WEIGHTS: [&str; 11] = [
    "config.json", "tokenizer.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "normalizer.json", "vocab.json", "vocab.txt", "merges.txt",
];
/// Weights in one file or in shards, by preference: the file, and the index of the shards.
const WEIGHTS: [[&str; 2]; 2] =
    [["model.safetensors", "model.safetensors.index.json"], ["pytorch_model.bin", "pytorch_model.bin.index.json"]];
/// Files of an adapter by itself, as PEFT saves it: its description, and its weights, by preference.
const ADAPTER: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

impl Hub {
    /// Returns the folder of `model` in the cache; missing files are downloaded. What was downloaded before is used where the Hub cannot be
    /// reached.
    ///
    /// # Errors
    /// The error names the file that could not be fetched.
    pub fn model(&self, model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
        let revision = revision.unwrap_or("main");
        let failed = |file: &str, reason: String| {
            let (model, file) = (model.to_owned(), file.to_owned());
            HubError::Model { model, file, reason }
        };
        let cached = || self.cached_model(model, revision).map_err(|e| failed(BESIDE_WEIGHTS[0], e.to_string()));
        if self.offline {
            return cached()?
                .ok_or_else(|| failed(BESIDE_WEIGHTS[0], "HF_HUB_OFFLINE is set and it is not in the cache".into()));
        }
        match self.snapshot(RepoType::Model, model, revision) {
            Ok(snapshot) => download(&snapshot, &failed),
            Err(error @ HttpError::Transport { .. }) => match cached()? {
                Some(folder) => {
                    tracing::warn!(
                        "{error}: `{model}` is taken from the cache; set HF_HUB_OFFLINE=1 to skip the attempt"
                    );
                    Ok(folder)
                }
                None => Err(failed("the list of files", error.to_string())),
            },
            Err(error) => Err(failed("the list of files", error.to_string())),
        }
    }

    /// Returns the folder of a model that is in the cache.
    fn cached_model(&self, model: &str, revision: &str) -> Result<Option<PathBuf>, HttpError> {
        let repo = repository(RepoType::Model, model, revision)?;
        let cached = Cache::new(self.cache.clone()).repo(repo);
        // Python's libraries do not record a name for a revision that is a commit.
        let of_commit = |file: &str| Some(cached.pointer_path(revision).join(file)).filter(|file| file.exists());
        let config =
            [BESIDE_WEIGHTS[0], ADAPTER].into_iter().find_map(|file| cached.get(file).or_else(|| of_commit(file)));
        Ok(config.and_then(|config| config.parent().map(PathBuf::from)))
    }
}

/// Fetches every file of the model and returns its folder.
fn download(snapshot: &Snapshot, failed: &impl Fn(&str, String) -> HubError) -> Result<PathBuf, HubError> {
    let get = |file: &str| snapshot.file(file).map_err(|e| failed(file, e.to_string()));
    let has = |file: &str| snapshot.files.iter().any(|listed| listed == file);
    if has(ADAPTER) && !has(BESIDE_WEIGHTS[0]) {
        get(ADAPTER_WEIGHTS.into_iter().find(|file| has(file)).unwrap_or(ADAPTER_WEIGHTS[0]))?;
        return named(snapshot, get(ADAPTER)?, failed);
    }
    let [file, index] = WEIGHTS
        .into_iter()
        .find(|[file, index]| has(file) || has(index))
        .ok_or_else(|| failed(WEIGHTS[0][0], "the model has no weights, neither safetensors nor torch's".into()))?;
    if has(file) {
        get(file)?;
    } else {
        // Names that the Hub does not list may lead anywhere; loading says which are missing.
        for shard in shards(&get(index)?).map_err(|reason| failed(index, reason))?.iter().filter(|shard| has(shard)) {
            get(shard)?;
        }
    }
    for file in BESIDE_WEIGHTS.iter().skip(1).filter(|file| has(file)) {
        get(file)?;
    }
    named(snapshot, get(BESIDE_WEIGHTS[0])?, failed)
}

/// Records the name of the commit, and returns the folder of one of its files.
fn named(
    snapshot: &Snapshot,
    config: PathBuf,
    failed: &impl Fn(&str, String) -> HubError,
) -> Result<PathBuf, HubError> {
    snapshot.name_it().map_err(|e| failed("the name of the commit", e.to_string()))?;
    Ok(config.parent().map(PathBuf::from).unwrap_or_default())
}

/// Returns the files that the index of a model's weights lists.
fn shards(index: &Path) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read(index).map_err(|e| e.to_string())?;
    let json: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let map = json["weight_map"].as_object().ok_or("it has no `weight_map`")?;
    Ok(map.values().filter_map(|file| file.as_str().map(str::to_owned)).collect())
}
