//! Settings of the cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use undertone_registry::choice;

use super::{Cache, CacheError};

/// Content, place and size of the cache on disk. Several processes may share the folder `dir`. By default it is
/// `$XDG_CACHE_HOME/undertone/samples`, or `~/.cache/undertone/samples`. Other files in it are neither counted nor
/// removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(remote = "Self", tag = "what", rename_all = "lowercase")]
#[schemars(rename = "CacheConfig", deny_unknown_fields, transform = choice::by_name)]
pub enum CacheConfig {
    /// No cache: every sample is decoded and computed again.
    Off {
        /// Folder, for what is stored whatever the cache keeps.
        #[serde(default)]
        dir: Option<PathBuf>,
    },
    /// Decoded 16 kHz audio. It stays valid when augmentation or feature settings change.
    Audio(CacheFolder),
    /// Log-mel features. They save more time per sample, where the audio is not augmented.
    Features(CacheFolder),
    /// Last states of the encoder, where it is not trained: the first epoch computes them, and later ones do not run the
    /// encoder at all. 1.2 MB per recording for Whisper tiny, 2.3 MB for small.
    Encoder(CacheFolder),
}

choice!(CacheConfig, "what");

/// Place and size of a cache on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct CacheFolder {
    /// Folder of the cache.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Maximum size on disk: bytes, or a text like `20GB` or `512 MiB`. At least 1 MB.
    #[serde(default = "usual_size", deserialize_with = "bytes")]
    #[schemars(schema_with = "bytes_schema")]
    pub max_bytes: u64,
}

const fn usual_size() -> u64 {
    20_000_000_000
}

/// Bytes, or a text with a unit.
fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["integer", "string"]})
}

/// Content that a cache keeps of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheWhat {
    /// Nothing.
    Off,
    /// Decoded 16 kHz audio.
    Audio,
    /// Log-mel features.
    Features,
    /// Last states of the encoder.
    Encoder,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self::Off { dir: None }
    }
}

/// Minimum of the cap. A smaller value is taken for a typing error (`20` for `20GB`).
const LEAST: u64 = 1_000_000;

impl CacheConfig {
    /// Returns a cache of the default size.
    pub fn of(what: CacheWhat, dir: Option<PathBuf>) -> Self {
        let folder = |dir| CacheFolder { dir, max_bytes: usual_size() };
        match what {
            CacheWhat::Off => Self::Off { dir },
            CacheWhat::Audio => Self::Audio(folder(dir)),
            CacheWhat::Features => Self::Features(folder(dir)),
            CacheWhat::Encoder => Self::Encoder(folder(dir)),
        }
    }

    /// Returns the content of the cache.
    pub fn what(&self) -> CacheWhat {
        match self {
            Self::Off { .. } => CacheWhat::Off,
            Self::Audio(_) => CacheWhat::Audio,
            Self::Features(_) => CacheWhat::Features,
            Self::Encoder(_) => CacheWhat::Encoder,
        }
    }

    /// Returns the folder that is given, if one is.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Off { dir } => dir.as_deref(),
            Self::Audio(kept) | Self::Features(kept) | Self::Encoder(kept) => kept.dir.as_deref(),
        }
    }

    fn max_bytes(&self) -> Option<u64> {
        match self {
            Self::Off { .. } => None,
            Self::Audio(kept) | Self::Features(kept) | Self::Encoder(kept) => Some(kept.max_bytes),
        }
    }

    /// Refuses a cap that is too small.
    pub fn validate(&self) -> Result<(), CacheError> {
        match self.max_bytes().filter(|given| *given < LEAST) {
            Some(given) => Err(CacheError::Cap { given, least: LEAST }),
            None => Ok(()),
        }
    }

    /// Returns the folder; fails if none is given and the environment has no default for it.
    pub fn folder(&self) -> Result<PathBuf, CacheError> {
        match self.dir() {
            Some(dir) => Ok(dir.to_owned()),
            None => default_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::home_dir()),
        }
    }

    /// Opens the cache, or returns `None` if it is off; fails as [`CacheConfig::validate`] and [`Cache::open`]
    /// do.
    pub fn open(&self) -> Result<Option<Cache>, CacheError> {
        self.validate()?;
        self.max_bytes().map(|max_bytes| Cache::open(&self.folder()?, max_bytes)).transpose()
    }
}

/// The XDG base directory specification says that relative paths are ignored.
fn default_folder(xdg: Option<OsString>, home: Option<PathBuf>) -> Result<PathBuf, CacheError> {
    let xdg = xdg.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = home.filter(|dir| dir.is_absolute()).map(|dir| dir.join(".cache"));
    let base = xdg.or(home).ok_or(CacheError::NoHome)?;
    Ok(base.join(Path::new("undertone/samples")))
}

/// Sizes are read with units and written as plain numbers: a rounded `18.6 GiB` would be another cap.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    ByteSize::deserialize(deserializer).map(|size| size.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<CacheConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_numbers_or_texts() {
        for (text, bytes) in [
            (r#"20000000"#, 20_000_000),
            (r#""20GB""#, 20_000_000_000),
            (r#""20gb""#, 20_000_000_000),
            (r#""512 MiB""#, 512 << 20),
            (r#""1.5 GB""#, 1_500_000_000),
            (r#""3000000""#, 3_000_000),
        ] {
            let config = parse(&format!(r#"{{"what": "audio", "max_bytes": {text}}}"#)).unwrap();
            assert_eq!(config.max_bytes(), Some(bytes), "{text}");
            config.validate().unwrap();
        }
        for text in [r#""20XB""#, r#""""#, r#""GB""#, r#"-1"#, r#""-1GB""#, r#"null"#] {
            assert!(parse(&format!(r#"{{"what": "audio", "max_bytes": {text}}}"#)).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let config = CacheConfig::Audio(CacheFolder { dir: Some("/a".into()), max_bytes: 19_999_999_999 });
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(text, r#"{"what":"audio","dir":"/a","max_bytes":19999999999}"#);
        assert_eq!(parse(&text).unwrap(), config);
        assert_eq!(parse("{}").unwrap(), CacheConfig::default());
        assert_eq!(parse(r#"{"what": "features"}"#).unwrap().what(), CacheWhat::Features);
        assert_eq!(parse(r#""audio""#).unwrap(), CacheConfig::of(CacheWhat::Audio, None));
        assert!(parse(r#"{"max_bytes": 3000000}"#).unwrap_err().contains("`max_bytes`: `what: off` has no such key"));
        assert!(parse(r#"{"what": "Features"}"#).is_err());
        assert!(parse(r#"{"size": 3}"#).unwrap_err().contains("`size`"));
    }

    #[test]
    fn a_cap_too_small_is_refused_by_name() {
        let error = CacheConfig::Audio(CacheFolder { dir: None, max_bytes: 20 }).validate().unwrap_err().to_string();
        assert!(error.contains("`max_bytes` is 20") && error.contains("1000000"), "{error}");
    }

    #[test]
    fn off_opens_nothing_and_makes_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let config = CacheConfig::Off { dir: Some(dir.path().join("cache")) };
        assert!(config.open().unwrap().is_none());
        assert!(!dir.path().join("cache").exists());
    }

    #[test]
    fn the_default_folder_follows_the_xdg_specification() {
        let home = || Some(PathBuf::from("/home/me"));
        let at = |xdg: &str, home| default_folder(Some(xdg.into()), home).ok();
        assert_eq!(at("/x", home()), Some("/x/undertone/samples".into()));
        assert_eq!(at("relative", home()), Some("/home/me/.cache/undertone/samples".into()));
        assert_eq!(default_folder(None, home()).ok(), Some("/home/me/.cache/undertone/samples".into()));
        assert!(matches!(default_folder(None, None), Err(CacheError::NoHome)));
    }
}
