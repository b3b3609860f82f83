use std::path::PathBuf;

/// Why a manifest could not be loaded; lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// No such file.
    #[error("{path}: there is no such manifest; check the path")]
    Missing {
        /// The manifest.
        path: PathBuf,
    },
    /// The file exists but the system does not let it be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The manifest.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The extension names no manifest format.
    #[error("{path}: is no manifest by its extension; name it .jsonl, .csv or .tsv")]
    Format {
        /// The manifest.
        path: PathBuf,
    },
    /// No entries.
    #[error("{path}: holds no entries; add at least one line with audio and text")]
    Empty {
        /// The manifest.
        path: PathBuf,
    },
    /// The header row lacks a required column.
    #[error("{path}: line 1: the header has no column named {column}; it has: {found}")]
    Column {
        /// The manifest.
        path: PathBuf,
        /// The column's accepted names.
        column: String,
        /// The columns that there are.
        found: String,
    },
    /// A line that cannot be understood.
    #[error("{path}: line {line}: {reason}")]
    Line {
        /// The manifest.
        path: PathBuf,
        /// The line.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A segment that is negative or empty.
    #[error("{path}: line {line}: the segment from {start} s to {end} s is negative or empty; make 0 <= start < end")]
    Segment {
        /// The manifest.
        path: PathBuf,
        /// The line.
        line: u64,
        /// Where the segment starts; 0 if not given.
        start: f64,
        /// Where the segment ends; infinity if not given.
        end: f64,
    },
    /// An audio file that does not exist.
    #[error(
        "{path}: line {line}: the audio file {audio} does not exist; relative paths start at the manifest's folder"
    )]
    MissingAudio {
        /// The manifest.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The audio file.
        audio: PathBuf,
    },
}
