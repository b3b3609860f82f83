//! Error of a refused configuration.

use std::path::PathBuf;

/// Reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file does not exist.
    #[error("there is no configuration `{}`: give the path of a YAML file, as in configs/", .0.display())]
    NoFile(PathBuf),
    /// A key or value is invalid.
    #[error("{0}")]
    Value(String),
}

impl From<String> for ConfigError {
    fn from(reason: String) -> Self {
        Self::Value(reason)
    }
}

/// Returns an error with the reason unless a rule holds.
pub(super) fn ensure<R: Into<String>>(holds: bool, reason: impl FnOnce() -> R) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason().into()) }
}
