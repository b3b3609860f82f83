use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

/// Where a clip's audio lies; files are numbered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A file of its own.
    File { file: usize },
    /// A cell of a Parquet file: its row from 0, and the number of that file's [`Shard`](super::parquet::Shard).
    Cell { file: usize, shard: usize, row: usize },
    /// A member of a tar file.
    Member { file: usize, name: Arc<str>, offset: u64, length: u64 },
}

impl Source {
    /// The file that holds it.
    pub fn file(&self) -> usize {
        match self {
            Self::File { file } | Self::Cell { file, .. } | Self::Member { file, .. } => *file,
        }
    }
}

/// A file with audio, as it was when it was opened.
#[derive(Debug)]
pub(super) struct AudioFile {
    pub path: PathBuf,
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970; 0 where the system does not tell.
    pub modified: u128,
    /// Whether `path` is the name of a remote file, which always has the same content.
    pub is_remote: bool,
    /// How long it is, where it holds a single recording.
    pub length: Length,
}

/// How long a recording is, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// By its header.
    pub from_header: OnceLock<HeaderLength>,
    /// By its packets, in seconds; none if they cannot be read.
    pub counted: OnceLock<Option<f64>>,
}

/// What the header of a recording says about its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HeaderLength {
    Seconds(f64),
    /// It is a good header, and does not say.
    Nothing,
    Unreadable,
}

/// Files by number, each once.
#[derive(Default)]
pub(super) struct Files {
    pub list: Vec<AudioFile>,
    numbers: HashMap<PathBuf, usize>,
}

impl Files {
    /// The file's number; None if there is no such file.
    pub fn number(&mut self, path: &Path) -> Option<usize> {
        if let Some(number) = self.numbers.get(path) {
            return Some(*number);
        }
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |since| since.as_nanos());
        let (number, size) = (self.list.len(), metadata.len());
        let file = AudioFile { path: path.into(), size, modified, is_remote: false, length: Length::default() };
        self.list.push(file);
        self.numbers.insert(path.into(), number);
        Some(number)
    }

    /// Notes a remote file, which [`Files::number`] then knows by its name.
    pub fn note_remote(&mut self, name: &str, size: u64) {
        let path = PathBuf::from(name);
        self.numbers.insert(path.clone(), self.list.len());
        self.list.push(AudioFile { path, size, modified: 0, is_remote: true, length: Length::default() });
    }
}
