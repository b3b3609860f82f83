//! Settings of the cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Cache, CacheError};

/// Content, place and size of the cache on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Folder of the cache; several processes may share it. By default `$XDG_CACHE_HOME/undertone/samples`, or
    /// `~/.cache/undertone/samples`. Other files in it are neither counted nor removed.
    pub dir: Option<PathBuf>,
    /// Content of the cache: `off`, `audio` or `features`.
    pub what: CacheWhat,
    /// Maximum size on disk: bytes, or a text like `20GB` or `512 MiB`. At least 1 MB.
    #[serde(deserialize_with = "bytes")]
    #[schemars(schema_with = "bytes_schema")]
    pub max_bytes: u64,
}

/// Bytes, or a text with a unit.
fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["integer", "string"]})
}

/// Content that a cache keeps of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheWhat {
    /// Nothing: every sample is decoded and computed again.
    #[default]
    Off,
    /// Decoded 16 kHz audio. It stays valid when augmentation or feature settings change.
    Audio,
    /// Log-mel features. They save more time per sample, where the audio is not augmented.
    Features,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { dir: None, what: CacheWhat::Off, max_bytes: 20_000_000_000 }
    }
}

/// Minimum of the cap. A smaller value is taken for a typing error (`20` for `20GB`).
const LEAST: u64 = 1_000_000;

impl CacheConfig {
    /// Refuses a cap that is too small.
    pub fn validate(&self) -> Result<(), CacheError> {
        if self.max_bytes < LEAST {
            return Err(CacheError::Cap { given: self.max_bytes, least: LEAST });
        }
        Ok(())
    }

    /// Returns the folder; fails if none is given and the environment has no default for it.
    pub fn folder(&self) -> Result<PathBuf, CacheError> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => default_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::home_dir()),
        }
    }

    /// Opens the cache, or returns `None` if `what` is `off`; fails as [`CacheConfig::validate`] and [`Cache::open`]
    /// do.
    pub fn open(&self) -> Result<Option<Cache>, CacheError> {
        self.validate()?;
        match self.what {
            CacheWhat::Off => Ok(None),
            CacheWhat::Audio | CacheWhat::Features => Cache::open(&self.folder()?, self.max_bytes).map(Some),
        }
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
            let config = parse(&format!(r#"{{"max_bytes": {text}}}"#)).unwrap();
            assert_eq!(config.max_bytes, bytes, "{text}");
            config.validate().unwrap();
        }
        for text in [r#""20XB""#, r#""""#, r#""GB""#, r#"-1"#, r#""-1GB""#, r#"null"#] {
            assert!(parse(&format!(r#"{{"max_bytes": {text}}}"#)).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let config = CacheConfig { dir: Some("/a".into()), what: CacheWhat::Audio, max_bytes: 19_999_999_999 };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(text, r#"{"dir":"/a","what":"audio","max_bytes":19999999999}"#);
        assert_eq!(parse(&text).unwrap(), config);
        assert_eq!(parse("{}").unwrap(), CacheConfig::default());
        assert_eq!(parse(r#"{"what": "features"}"#).unwrap().what, CacheWhat::Features);
        assert!(parse(r#"{"what": "Features"}"#).is_err());
        assert!(parse(r#"{"size": 3}"#).unwrap_err().contains("unknown field `size`"));
    }

    #[test]
    fn a_cap_too_small_is_refused_by_name() {
        let error = CacheConfig { max_bytes: 20, ..Default::default() }.validate().unwrap_err().to_string();
        assert!(error.contains("`max_bytes` is 20") && error.contains("1000000"), "{error}");
    }

    #[test]
    fn off_opens_nothing_and_makes_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let config = CacheConfig { dir: Some(dir.path().join("cache")), ..Default::default() };
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
