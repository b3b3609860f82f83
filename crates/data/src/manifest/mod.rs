//! Manifests: which audio says what, one entry a line.
//!
//! The file's extension tells the format:
//!
//! - `.jsonl`, `.ndjson`: one object a line, with the keys below and no others; blank lines are skipped.
//! - `.csv`, `.tsv`: a header row with the columns below, in any order; other columns are ignored, empty cells are as
//!   if absent.
//! - `.csv` without a header but with pipes, `FILE|TRANSCRIPT` as in LJSpeech; a third field is ignored, and quotes are
//!   part of the text.
//!
//! | name | meaning |
//! |---|---|
//! | `audio` (or `path`, `file`, `audio_filepath`) | the audio file; relative to the manifest's folder; required |
//! | `text` | what is said in it; required, may be empty |
//! | `language` | its language, such as `en` |
//! | `task` | the task that the entry belongs to |
//! | `start`, `end` | the part of the file that counts, in seconds |

mod error;
mod parse;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use error::ManifestError;

/// The entries of a manifest file, in its order; there is at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One piece of audio and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The audio file; a relative path in the manifest has been joined to the manifest's folder.
    pub audio: PathBuf,
    /// What is said in it.
    pub text: String,
    /// Its language, if given.
    pub language: Option<String>,
    /// The task it belongs to, if given.
    pub task: Option<String>,
    /// Where it starts in the file, in seconds and at least 0; the file's beginning if absent.
    pub start: Option<f64>,
    /// Where it ends in the file, in seconds and after `start`; the file's end if absent.
    pub end: Option<f64>,
}

impl Manifest {
    /// Reads a manifest; with `check_files`, also makes sure that every audio file exists.
    ///
    /// Fails with the file and the line if the manifest is missing, unreadable, empty or of an unknown extension, if a
    /// line is malformed, a column is missing, a segment is negative or empty, or an audio file does not exist.
    pub fn load(path: &Path, check_files: bool) -> Result<Self, ManifestError> {
        let entries = parse::parse(path, &parse::read(path)?)?;
        if entries.is_empty() {
            return Err(ManifestError::Empty { path: path.into() });
        }
        if check_files && let Some((line, entry)) = entries.iter().find(|(_, entry)| !entry.audio.is_file()) {
            return Err(ManifestError::MissingAudio { path: path.into(), line: *line, audio: entry.audio.clone() });
        }
        Ok(Self { entries: entries.into_iter().map(|(_, entry)| entry).collect() })
    }
}
