//! Why a configuration is refused.

use std::path::PathBuf;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there.
    #[error("there is no configuration `{}`: give the path of a YAML file, as in configs/", .0.display())]
    NoFile(PathBuf),
    /// A key or value does not fit.
    #[error("{0}")]
    Value(String),
}
