//! Models from the Hugging Face hub, through its cache.

use crate::SourceError;
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use std::path::PathBuf;

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

/// The folder of `model` in the hub's cache, fetched if it is not there. Honours `HF_HOME` (the stored
/// token too), `HF_ENDPOINT` and `HF_HUB_OFFLINE`.
///
/// # Errors
/// Names the file that could not be had.
pub fn fetch(model: &str, revision: Option<&str>) -> Result<PathBuf, SourceError> {
    let repo = Repo::with_revision(model.to_owned(), RepoType::Model, revision.unwrap_or("main").to_owned());
    let failed =
        |file: &str, reason: String| SourceError::Hub { model: model.to_owned(), file: file.to_owned(), reason };
    let offline = std::env::var("HF_HUB_OFFLINE").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    let config = if offline {
        let cached = Cache::from_env().repo(repo).get("config.json");
        cached.ok_or_else(|| failed("config.json", "HF_HUB_OFFLINE is set and it is not in the cache".into()))?
    } else {
        let api = ApiBuilder::from_env().build().map_err(|e| failed("config.json", e.to_string()))?.repo(repo);
        download(&api, &failed)?
    };
    Ok(config.parent().map(PathBuf::from).unwrap_or_default())
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

/// The folder of a dataset's records; not fetched yet, so this names the way out.
///
/// # Errors
/// Always.
pub fn dataset(dataset: &str, _: Option<&str>, split: &str, _: Option<&str>) -> Result<PathBuf, SourceError> {
    let reason = "datasets are not fetched yet: download its Parquet files and give their folder as `path`".into();
    Err(SourceError::Hub { model: dataset.to_owned(), file: split.to_owned(), reason })
}
