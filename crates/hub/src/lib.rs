//! Models and datasets from the Hugging Face hub, through the cache that Hugging Face's own libraries use.
//!
//! A [`Hub`] is an address, a cache and a token. [`Hub::model`] gives the folder of a model, [`Hub::dataset`] the Parquet
//! files of a dataset's split, both fetched once; [`Hub::stream`] reads parts of those files without storing them.
//! Everything is taken from one commit, and nothing half-fetched is taken for whole. What the hub says is not trusted:
//! no name that it gives leads out of the cache, and no answer that does not end is waited for.
//!
//! It is deliberately no reader of models or records: it gives paths and bytes, and knows neither networks nor tasks.
//! It uploads nothing.
//!
//! The crate hf-hub says what the cache looks like and how repositories are named; its client fetches nothing here,
//! because it cannot read a part of a file, checks no SHA-256, and does not wait as long as a busy hub asks it to.
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
