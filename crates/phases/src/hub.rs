//! Models and datasets from the Hugging Face hub, through its cache.

mod http;
mod snapshot;
mod split;
mod stream;

use crate::SourceError;
use hf_hub::{Cache, Repo, RepoType};
use snapshot::Snapshot;
use std::path::PathBuf;
use std::sync::Arc;
use undertone_data::clips::Remote;

/// The hub and its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// The folder of the cache, as Hugging Face's own libraries lay it out.
    pub cache: PathBuf,
    /// The address; the hub's own by default.
    pub endpoint: Option<String>,
    /// Whether the cache alone is read.
    pub offline: bool,
    /// What says who asks; given to the endpoint alone, never to where it redirects.
    pub token: Option<Token>,
}

/// A user's token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub(crate) String);

impl Token {
    /// What Hugging Face's site gave the user; None if that is empty.
    pub fn new(token: &str) -> Option<Self> {
        Some(token.trim()).filter(|token| !token.is_empty()).map(|token| Self(token.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
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

/// [`Hub::stream`] of the hub that the environment names.
///
/// # Errors
/// As [`Hub::stream`].
pub fn stream(
    dataset: &str,
    config: Option<&str>,
    split: &str,
    revision: Option<&str>,
) -> Result<Vec<Arc<dyn Remote>>, SourceError> {
    Hub::from_env().stream(dataset, config, split, revision)
}

impl Hub {
    /// What `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN` say, as Hugging Face's own libraries
    /// read them. Without `HF_HUB_CACHE` the cache is the folder `hub` in `HF_HOME`. Without `HF_TOKEN` the token is what
    /// `hf auth login` stored, in the file `token` in `HF_HOME`, or in the one that `HF_TOKEN_PATH` names.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = Cache::from_env();
        let file = variable("HF_TOKEN_PATH").map_or_else(|| home.token_path(), PathBuf::from);
        let token = variable("HF_TOKEN").or_else(|| std::fs::read_to_string(file).ok());
        Self {
            cache: variable("HF_HUB_CACHE").map_or_else(|| home.path().clone(), PathBuf::from),
            endpoint: variable("HF_ENDPOINT"),
            offline: variable("HF_HUB_OFFLINE").is_some_and(|v| !matches!(v.as_str(), "0" | "false")),
            token: token.as_deref().and_then(Token::new),
        }
    }

    /// The folder of `model` in the cache, fetched if it is not there.
    ///
    /// # Errors
    /// Names the file that could not be had.
    pub fn model(&self, model: &str, revision: Option<&str>) -> Result<PathBuf, SourceError> {
        let revision = revision.unwrap_or("main");
        let failed = |file: &str, reason: String| {
            let (model, file) = (model.to_owned(), file.to_owned());
            SourceError::Hub { model, file, reason }
        };
        let config = if self.offline {
            let repo = Repo::with_revision(model.to_owned(), RepoType::Model, revision.to_owned());
            let cached = Cache::new(self.cache.clone()).repo(repo).get(SMALL[0]);
            cached.ok_or_else(|| failed(SMALL[0], "HF_HUB_OFFLINE is set and it is not in the cache".into()))?
        } else {
            let snapshot = self.snapshot(RepoType::Model, model, revision);
            download(&snapshot.map_err(|e| failed("the list of files", e.to_string()))?, &failed)?
        };
        Ok(config.parent().map(PathBuf::from).unwrap_or_default())
    }
}

/// Fetches every file of the model and returns where its `config.json` lies.
fn download(snapshot: &Snapshot, failed: &impl Fn(&str, String) -> SourceError) -> Result<PathBuf, SourceError> {
    let get = |file: &str| snapshot.file(file).map_err(|e| failed(file, e.to_string()));
    let has = |file: &str| snapshot.files.iter().any(|listed| listed == file);
    if has(WEIGHTS) {
        get(WEIGHTS)?;
    } else if has(INDEX) {
        get(INDEX)?;
        for shard in snapshot.files.iter().filter(|file| file.ends_with(".safetensors")) {
            get(shard)?;
        }
    } else {
        return Err(failed(WEIGHTS, "the model has no safetensors weights".into()));
    }
    for file in SMALL.iter().skip(1).filter(|file| has(file)) {
        get(file)?;
    }
    let config = get(SMALL[0])?;
    snapshot.name_it().map_err(|e| failed("the name of the commit", e.to_string()))?;
    Ok(config)
}
