use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::slice;

use serde::{Deserialize, Serialize};

/// Files, and folders of files, that are read one after the other as if they were one.
///
/// In a folder, the files with the extension of the format are read, ordered by name. Other files, such as a README,
/// are skipped, and so are hidden files and folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "a path, or a list of paths")]
pub enum Paths {
    /// A file or a folder.
    One(PathBuf),
    /// Several, in this order.
    Several(Vec<PathBuf>),
}

impl Paths {
    /// Returns the paths as given.
    pub fn as_slice(&self) -> &[PathBuf] {
        match self {
            Self::One(path) => slice::from_ref(path),
            Self::Several(paths) => paths,
        }
    }
}

impl Default for Paths {
    fn default() -> Self {
        Self::One(PathBuf::new())
    }
}

impl From<PathBuf> for Paths {
    fn from(path: PathBuf) -> Self {
        Self::One(path)
    }
}

impl From<Vec<PathBuf>> for Paths {
    fn from(paths: Vec<PathBuf>) -> Self {
        Self::Several(paths)
    }
}

impl Display for Paths {
    /// The first path, and the number of the others.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.as_slice() {
            [] => Ok(()),
            [path] => write!(f, "{}", path.display()),
            [path, more @ ..] => write!(f, "{} and {} more", path.display(), more.len()),
        }
    }
}
