use crate::error::HubError;
use crate::http::HttpError;
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
        let of_commit = || Some(cached.pointer_path(revision).join(BESIDE_WEIGHTS[0])).filter(|file| file.exists());
        let config = cached.get(BESIDE_WEIGHTS[0]).or_else(of_commit);
        Ok(config.and_then(|config| config.parent().map(PathBuf::from)))
    }
}

/// Fetches every file of the model and returns its folder.
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
    Ok(config.parent().map(PathBuf::from).unwrap_or_default())
}
