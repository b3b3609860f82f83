use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Column, PartConfig, Paths, RecordsError, Share};

/// Selection of records from files, and the columns that hold the fields of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordsConfig {
    /// The file, a folder of files, or a list of both. Several files are read one after the other as if they were one.
    pub path: Paths,
    /// The second file of two plain text files: translations, labels or tags, line by line.
    pub target_path: Option<PathBuf>,
    /// Format of the files: `auto`, which goes by the extension, `jsonl`, `json`, `csv`, `tsv`, `conll`, `text` or
    /// `parquet`; speech may also be `tar` or `audio`.
    pub format: Format,
    /// Mapping from a field that the task needs, such as `text` or `answers`, to the column that holds it: its name, a
    /// dotted path for something nested (`translation.en`, `target.0`), or its number from 0; null if an optional field is not to be
    /// read from the column of its name (`language: null`).
    pub columns: BTreeMap<String, Column>,
    /// Whether the first row of a CSV or TSV file names the columns. By default it does if it contains the name of a
    /// field or of a mapped column. Each of several files has its own header.
    pub header: Option<bool>,
    /// Maximum number of records from all files: the first ones, of the part if there is one.
    pub limit: Option<usize>,
    /// Fixed part of the records, so that training, validation and test splits can come from one file; all by default.
    pub part: Option<PartConfig>,
    /// Share of the records that remain, of which another split takes the rest.
    pub share: Option<Share>,
    /// Columns whose values records keep, besides the fields ([`Origin::columns`](super::Origin::columns)).
    pub keep: Vec<String>,
    /// Maximum share of the records that are left out because one of their fields cannot be used; if not given, such a record is an error.
    pub skip: Option<f64>,
    /// Whether recordings may lack a text, as those that are still to be transcribed.
    pub without_texts: bool,
}

/// Format of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Given by the extension, which must be the same throughout a folder; `text` if there are two files. A `.json`
    /// file with one object per line is JSON Lines.
    #[default]
    Auto,
    /// One JSON object per line.
    Jsonl,
    /// A JSON array, alone or as the only array in an object.
    Json,
    /// Cells separated by commas; text that contains a comma is quoted.
    Csv,
    /// Cells separated by tabs; quotes are part of the text.
    Tsv,
    /// A word and its tag per line, and blank lines between sentences.
    Conll,
    /// Two plain files, line by line.
    Text,
    /// Parquet.
    Parquet,
    /// Shards of WebDataset; for speech only.
    Tar,
    /// A folder of audio files with their texts beside them, in it or in those below; for speech only.
    Audio,
    /// The name of a recording and its text on each line, as in LibriSpeech and Kaldi; for speech only.
    Transcripts,
}

impl RecordsConfig {
    /// Checks everything that can be checked without the files.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), RecordsError> {
        let fail = |reason: String| Err(RecordsError::Config { reason });
        let paths = self.path.as_slice();
        if paths.is_empty() || paths.iter().any(|path| path.as_os_str().is_empty()) {
            return fail("`path` is empty: name a file or folder of records".into());
        }
        if self.is_text() && paths.len() > 1 {
            return fail("`path` has several files: `format: text` reads two, `path` and `target_path`".into());
        }
        for format in paths.iter().filter_map(|path| self.format_of(path)) {
            self.fits(format)?;
        }
        if self.limit == Some(0) {
            return fail("`limit` is 0: give at least 1, or leave it out for all records".into());
        }
        let part = self.part.as_ref().map(|part| ("part", part.from, part.to));
        let share = self.share.as_ref().map(|share| ("share", share.from, share.to));
        for (key, from, to) in part.into_iter().chain(share) {
            if !(0.0 <= from && from < to && to <= 1.0) {
                return fail(format!("`{key}` is from {from} to {to}: make 0 <= from < to <= 1"));
            }
        }
        Ok(())
    }

    /// Returns the columns whose equal values keep records together.
    pub fn groups(&self) -> impl Iterator<Item = &Column> {
        let part = self.part.as_ref().and_then(|part| part.by.as_ref());
        part.into_iter().chain(self.share.as_ref().and_then(|share| share.by.as_ref()))
    }

    /// Checks the keys that only some formats have.
    pub(crate) fn fits(&self, format: Format) -> Result<(), RecordsError> {
        let fail = |reason: &str| Err(RecordsError::Config { reason: reason.into() });
        match (&self.target_path, format) {
            (None, Format::Text) => {
                return fail("`target_path` is missing: `format: text` reads two files, line by line");
            }
            (Some(_), format) if format != Format::Text => {
                return fail("`target_path` is for `format: text`: other formats hold everything in one file");
            }
            _ => {}
        }
        if self.header.is_some() && !matches!(format, Format::Csv | Format::Tsv) {
            return fail("`header` is for `format: csv` and `tsv`: leave it out for other formats");
        }
        Ok(())
    }

    /// Returns whether two plain files are read.
    pub(crate) fn is_text(&self) -> bool {
        self.format == Format::Text || self.format == Format::Auto && self.target_path.is_some()
    }

    /// Returns a file's format: the configured one, or that of its extension.
    pub(crate) fn format_of(&self, path: &Path) -> Option<Format> {
        match self.format {
            _ if self.is_text() => Some(Format::Text),
            Format::Auto => Format::by_extension(path),
            format => Some(format),
        }
    }
}

/// Formats of file extensions.
const EXTENSIONS: [(&str, Format); 9] = [
    ("jsonl", Format::Jsonl),
    ("ndjson", Format::Jsonl),
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("tsv", Format::Tsv),
    ("conll", Format::Conll),
    ("bio", Format::Conll),
    ("iob2", Format::Conll),
    ("parquet", Format::Parquet),
];

impl Format {
    /// Returns the format of this file's extension, or of the one before `.gz`.
    pub(crate) fn by_extension(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        if extension.eq_ignore_ascii_case("gz") {
            let format = Self::by_extension(Path::new(path.file_stem()?))?;
            // A table of Parquet is compressed within.
            return (format != Self::Parquet).then_some(format);
        }
        EXTENSIONS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known)).map(|(_, format)| *format)
    }

    /// Returns the extensions of a format's files, for an error message; all known ones for `auto`.
    pub(crate) fn extensions(self) -> String {
        let names = EXTENSIONS.iter().filter(|(_, format)| self == Self::Auto || self == *format);
        names.map(|(name, _)| format!(".{name}")).collect::<Vec<_>>().join(", ")
    }
}
