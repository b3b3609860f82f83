//! Models and datasets from the Hugging Face hub, through its cache.

mod split;

use crate::SourceError;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use std::path::PathBuf;

/// The hub and its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// The folder of the cache, as Hugging Face's own libraries lay it out; the token that they store is beside it.
    pub cache: PathBuf,
    /// The address; the hub's own by default.
    pub endpoint: Option<String>,
    /// Whether the cache alone is read.
    pub offline: bool,
}

/// Files beside the weights that a Whisper folder may have.
const SMALL: [&str; 9] = [
    "config.json",
    "tokenizer.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "normalizer.json",
    "vocab.json",
    "merges.txt",
];
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// [`Hub::model`] of the hub that the environment names.
///
/// # Errors
/// Names the file that could not be had.
pub fn fetch(model: &str, revision: Option<&str>) -> Result<PathBuf, SourceError> {
    Hub::from_env().model(model, revision)
}

/// [`Hub::dataset`] of the hub that the environment names.
///
/// # Errors
/// Names the file that could not be had, or the configs or splits that there are.
pub fn dataset(
    dataset: &str,
    config: Option<&str>,
    split: &str,
    revision: Option<&str>,
) -> Result<Vec<PathBuf>, SourceError> {
    Hub::from_env().dataset(dataset, config, split, revision)
}

impl Hub {
    /// What `HF_HOME`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` say.
    pub fn from_env() -> Self {
        Self {
            cache: Cache::from_env().path().clone(),
            endpoint: std::env::var("HF_ENDPOINT").ok(),
            offline: std::env::var("HF_HUB_OFFLINE").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false")),
        }
    }

    /// The folder of `model` in the cache, fetched if it is not there.
    ///
    /// # Errors
    /// Names the file that could not be had.
    pub fn model(&self, model: &str, revision: Option<&str>) -> Result<PathBuf, SourceError> {
        let repo = Repo::with_revision(model.to_owned(), RepoType::Model, revision.unwrap_or("main").to_owned());
        let failed =
            |file: &str, reason: String| SourceError::Hub { model: model.to_owned(), file: file.to_owned(), reason };
        let config = if self.offline {
            let cached = Cache::new(self.cache.clone()).repo(repo).get("config.json");
            cached.ok_or_else(|| failed("config.json", "HF_HUB_OFFLINE is set and it is not in the cache".into()))?
        } else {
            let api = self.api().map_err(|e| failed("config.json", e.to_string()))?.repo(repo);
            download(&api, &failed)?
        };
        Ok(config.parent().map(PathBuf::from).unwrap_or_default())
    }

    fn api(&self) -> Result<Api, ApiError> {
        let builder = ApiBuilder::from_cache(Cache::new(self.cache.clone()));
        match &self.endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint.clone()).build(),
            None => builder.build(),
        }
    }
}

/// Fetches every file of the model and returns where its `config.json` lies.
fn download(api: &ApiRepo, failed: &impl Fn(&str, String) -> SourceError) -> Result<PathBuf, SourceError> {
    let get = |file: &str| api.get(file).map_err(|e| failed(file, e.to_string()));
    let listed = api.info().map_err(|e| failed("the list of files", e.to_string()))?;
    let has = |file: &str| listed.siblings.iter().any(|s| s.rfilename == file);
    if has(WEIGHTS) {
        get(WEIGHTS)?;
    } else if has(INDEX) {
        get(INDEX)?;
        for shard in listed.siblings.iter().filter(|s| s.rfilename.ends_with(".safetensors")) {
            get(&shard.rfilename)?;
        }
    } else {
        return Err(failed(WEIGHTS, "the model has no safetensors weights".into()));
    }
    for file in SMALL.iter().skip(1).filter(|file| has(file)) {
        get(file)?;
    }
    get(SMALL[0])
}
