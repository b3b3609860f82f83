use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::slice;

use serde::{Deserialize, Serialize};

/// Files, and folders of files, that are read one after the other as if they were one.
///
/// Of a folder, the files with the extension of the format are read in the order of their names. Others, such as a
/// README, are passed over, and so are hidden files and folders in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a path, or a list of paths")]
pub enum Paths {
    /// A file or a folder.
    One(PathBuf),
    /// Several, in this order.
    Several(Vec<PathBuf>),
}

impl Paths {
    /// The paths as they are given.
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
    /// The first, and how many more.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.as_slice() {
            [] => Ok(()),
            [path] => write!(f, "{}", path.display()),
            [path, more @ ..] => write!(f, "{} and {} more", path.display(), more.len()),
        }
    }
}
