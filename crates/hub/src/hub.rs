use crate::http::{Client, HttpError, Token};
use crate::snapshot::Snapshot;
use hf_hub::{Cache, RepoType};
use std::path::PathBuf;

/// The address of Hugging Face's own hub.
const ENDPOINT: &str = "https://huggingface.co";

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
    /// How often something is asked for that may go better the next time; once at least. Waits between attempts double.
    pub attempts: u32,
}

impl Hub {
    /// The usual attempts, with 8 s of waiting between them in all where the hub does not ask for longer waits.
    pub const ATTEMPTS: u32 = 6;

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
            attempts: Self::ATTEMPTS,
        }
    }

    /// What a repository has at a revision.
    pub(crate) fn snapshot(&self, kind: RepoType, name: &str, revision: &str) -> Result<Snapshot, HttpError> {
        let client = Client::new(self.endpoint.as_deref().unwrap_or(ENDPOINT), self.token.clone(), self.attempts)?;
        Snapshot::list(client, &Cache::new(self.cache.clone()), kind, name, revision)
    }
}
