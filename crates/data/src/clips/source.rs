use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

/// Location of a clip's audio; files are numbered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A file of its own.
    File { file: usize },
    /// A cell of a Parquet file: its row from 0, and the index of that file's [`Shard`](super::parquet::Shard).
    Cell { file: usize, shard: usize, row: usize },
    /// A member of a tar file.
    Member { file: usize, name: Arc<str>, offset: u64, length: u64 },
}

impl Source {
    /// Returns the file that contains it.
    pub fn file(&self) -> usize {
        match self {
            Self::File { file } | Self::Cell { file, .. } | Self::Member { file, .. } => *file,
        }
    }
}

/// A file with audio, in its state when it was opened.
#[derive(Debug)]
pub(super) struct AudioFile {
    pub path: PathBuf,
    pub size: u64,
    /// Modification time, in nanoseconds since 1970; 0 if the system does not give it.
    pub modified: u128,
    /// Whether `path` is the name of a remote file, which always has the same content.
    pub is_remote: bool,
    /// Length, if the file contains a single recording.
    pub length: Length,
}

/// Length of a recording, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// Length according to the header.
    pub header_length: OnceLock<HeaderLength>,
    /// Length according to the packets, in seconds; none if they cannot be read.
    pub counted: OnceLock<Option<f64>>,
}

/// Result of reading the length from a recording's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HeaderLength {
    Seconds(f64),
    /// The header is valid, but has no length.
    Nothing,
    Unreadable,
}

/// Numbered files, each once.
#[derive(Default)]
pub(super) struct Files {
    pub list: Vec<AudioFile>,
    numbers: HashMap<PathBuf, usize>,
}

impl Files {
    /// Returns the file's number; none if there is no such file.
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

    /// Adds a remote file, which [`Files::number`] then finds by its name.
    pub fn note_remote(&mut self, name: &str, size: u64) {
        let path = PathBuf::from(name);
        self.numbers.insert(path.clone(), self.list.len());
        self.list.push(AudioFile { path, size, modified: 0, is_remote: true, length: Length::default() });
    }
}
