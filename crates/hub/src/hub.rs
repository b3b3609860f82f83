use crate::http::{Client, HttpError, Token};
use crate::snapshot::Snapshot;
use hf_hub::{Cache, RepoType};
use std::path::PathBuf;

/// Address of Hugging Face's own Hub.
const ENDPOINT: &str = "https://huggingface.co";

/// The Hub and its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// Folder of the cache, with the layout of Hugging Face's own libraries.
    pub cache: PathBuf,
    /// Address; that of Hugging Face's own Hub by default.
    pub endpoint: Option<String>,
    /// Whether only the cache is read.
    pub offline: bool,
    /// Token of the user; sent to the endpoint alone, never to the target of a redirect.
    pub token: Option<Token>,
    /// Maximum number of attempts for requests that fail temporarily; at least one. Waits between attempts double.
    pub attempts: u32,
}

/// Whether Hugging Face's own libraries take the value of a variable for true.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str())
}

impl Hub {
    /// Default number of attempts, with 8 s of waiting in total unless the Hub asks for longer waits.
    pub const ATTEMPTS: u32 = 6;

    /// Reads `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN` as Hugging Face's own libraries
    /// do, and where one is not set its other name: `HUGGINGFACE_HUB_CACHE`, `TRANSFORMERS_OFFLINE`, `HUGGING_FACE_HUB_TOKEN`. Without
    /// `HF_HUB_CACHE` the cache is the folder `hub` in `HF_HOME`, which is `huggingface` in `XDG_CACHE_HOME` or `~/.cache`. Without
    /// `HF_TOKEN` the token is the one stored by `hf auth login`, in the file `token` in `HF_HOME`, or in the file that `HF_TOKEN_PATH`
    /// names.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let place = |name: &str| variable(name).map(|path| expanded(&path, variable("HOME").as_deref()));
        let home = place("HF_HOME").or_else(|| Some(place("XDG_CACHE_HOME")?.join("huggingface")));
        let usual = home.map_or_else(Cache::from_env, |home| Cache::new(home.join("hub")));
        let file = place("HF_TOKEN_PATH").unwrap_or_else(|| usual.token_path());
        let token = variable("HF_TOKEN")
            .or_else(|| variable("HUGGING_FACE_HUB_TOKEN"))
            .or_else(|| std::fs::read_to_string(file).ok());
        Self {
            // The second name is that of earlier versions.
            cache: ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
                .into_iter()
                .find_map(place)
                .unwrap_or(usual.path().clone()),
            endpoint: variable("HF_ENDPOINT"),
            offline: ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]
                .into_iter()
                .find_map(variable)
                .is_some_and(|on| is_true(&on)),
            token: token.as_deref().and_then(Token::new),
            attempts: Self::ATTEMPTS,
        }
    }

    /// Returns the content of a repository at a revision.
    pub(crate) fn snapshot(&self, kind: RepoType, name: &str, revision: &str) -> Result<Snapshot, HttpError> {
        let client = Client::new(self.endpoint.as_deref().unwrap_or(ENDPOINT), self.token.clone(), self.attempts)?;
        Snapshot::list(client, &Cache::new(self.cache.clone()), kind, name, revision)
    }
}

/// Returns the path of a variable, which may begin with `~` and contain `$HOME`, as huggingface_hub reads it.
fn expanded(path: &str, home: Option<&str>) -> PathBuf {
    let Some(home) = home else { return path.into() };
    match path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(rest) => format!("{home}{rest}").into(),
        None => path.replace("${HOME}", home).replace("$HOME", home).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_huggingface_hub_does() {
        for (given, path) in
            [("~/hf", "/h/hf"), ("~", "/h"), ("~x/hf", "~x/hf"), ("$HOME/hf", "/h/hf"), ("/a/${HOME}", "/a//h")]
        {
            assert_eq!(expanded(given, Some("/h")), PathBuf::from(path), "{given}");
        }
        assert_eq!(expanded("~/hf", None), PathBuf::from("~/hf"));
    }

    #[test]
    fn a_variable_is_true_where_python_takes_it_for_that() {
        assert!(["1", "ON", "yes", "True"].into_iter().all(is_true));
        assert!(!["0", "False", "no", "off", "2"].into_iter().any(is_true));
    }
}
