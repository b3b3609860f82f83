//! Models and datasets from the Hugging Face Hub, through the cache that Hugging Face's own libraries use.
//!
//! A [`Hub`] is an address, a cache and a token. [`Hub::model`] returns the folder of a model, [`Hub::dataset`] the
//! Parquet files of a dataset's split, both of which are downloaded once; [`Hub::stream`] reads parts of those files
//! without storing them. All files come from one commit, and an incomplete download is never taken for a complete one.
//! The Hub's responses are not trusted: no name in them can lead out of the cache, and no endless response is waited
//! for.
//!
//! The crate does not read models or records: it returns paths and bytes, and depends on neither networks nor tasks. It
//! uploads nothing.
//!
//! The crate hf-hub defines the layout of the cache and the names of repositories. Its client is not used, because it
//! cannot read a part of a file, does not check SHA-256, and does not wait as long as a busy Hub asks it to.
//!
//! ```
//! use undertone_hub::Hub;
//!
//! let cache = std::env::temp_dir().join("no-cache-yet");
//! let hub = Hub { cache, endpoint: None, offline: true, token: None, attempts: Hub::ATTEMPTS };
//! let error = hub.model("openai/whisper-tiny", None).unwrap_err().to_string();
//! assert!(error.contains("HF_HUB_OFFLINE is set and it is not in the cache"));
//! ```

mod dataset;
mod error;
mod http;
mod hub;
mod model;
mod names;
mod remote;
mod snapshot;
mod split;

pub use error::HubError;
pub use http::Token;
pub use hub::Hub;
pub use remote::RemoteFile;
