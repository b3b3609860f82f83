use crate::error::HubError;
use crate::hub::Hub;
use crate::snapshot::{Snapshot, repository};
use hf_hub::{Cache, RepoType};
use std::path::PathBuf;

/// Files other than the weights that a model's folder may contain.
const BESIDE_WEIGHTS: [&str; 10] = [
    "config.json",
    "tokenizer.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "normalizer.json",
    "vocab.json",
    "merges.txt",
];
/// Weights in one file or in shards, by preference: the file, the index of the shards, and how the shards' names begin and
/// end.
const WEIGHTS: [[&str; 4]; 2] = [
    ["model.safetensors", "model.safetensors.index.json", "", ".safetensors"],
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-", ".bin"],
];

impl Hub {
    /// Returns the folder of `model` in the cache; missing files are downloaded.
    ///
    /// # Errors
    /// The error names the file that could not be fetched.
    pub fn model(&self, model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
        let revision = revision.unwrap_or("main");
        let failed = |file: &str, reason: String| {
            let (model, file) = (model.to_owned(), file.to_owned());
            HubError::Model { model, file, reason }
        };
        let config = if self.offline {
            let repo = repository(RepoType::Model, model, revision);
            let repo = repo.map_err(|e| failed(BESIDE_WEIGHTS[0], e.to_string()))?;
            let cached = Cache::new(self.cache.clone()).repo(repo).get(BESIDE_WEIGHTS[0]);
            cached
                .ok_or_else(|| failed(BESIDE_WEIGHTS[0], "HF_HUB_OFFLINE is set and it is not in the cache".into()))?
        } else {
            let snapshot = self.snapshot(RepoType::Model, model, revision);
            download(&snapshot.map_err(|e| failed("the list of files", e.to_string()))?, &failed)?
        };
        Ok(config.parent().map(PathBuf::from).unwrap_or_default())
    }
}

/// Fetches every file of the model and returns the folder of its `config.json`.
fn download(snapshot: &Snapshot, failed: &impl Fn(&str, String) -> HubError) -> Result<PathBuf, HubError> {
    let get = |file: &str| snapshot.file(file).map_err(|e| failed(file, e.to_string()));
    let has = |file: &str| snapshot.files.iter().any(|listed| listed == file);
    let [file, index, begin, end] = WEIGHTS
        .into_iter()
        .find(|[file, index, ..]| has(file) || has(index))
        .ok_or_else(|| failed(WEIGHTS[0][0], "the model has no weights, neither safetensors nor torch's".into()))?;
    if has(file) {
        get(file)?;
    } else {
        get(index)?;
        for shard in snapshot.files.iter().filter(|file| file.starts_with(begin) && file.ends_with(end)) {
            get(shard)?;
        }
    }
    for file in BESIDE_WEIGHTS.iter().skip(1).filter(|file| has(file)) {
        get(file)?;
    }
    let config = get(BESIDE_WEIGHTS[0])?;
    snapshot.name_it().map_err(|e| failed("the name of the commit", e.to_string()))?;
    Ok(config)
}
