use std::path::PathBuf;

use super::{Origin, Paths, Share};

/// Error of reading records; lines and rows count from 1, columns from 0.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A key of the configuration is invalid.
    #[error("{reason}")]
    Config {
        /// The key, and how to correct it.
        reason: String,
    },
    /// The file or folder does not exist.
    #[error("{}: there is no such file of records; check the path", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but cannot be read, or is not in its format.
    #[error("{}: cannot be read: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Message of the operating system or of the format's reader.
        reason: String,
    },
    /// The extension belongs to no format.
    #[error("{}: the extension tells no format; give it under `format`: jsonl, json, csv, tsv, conll, text or parquet, or for speech tar, audio or transcripts (lines of a name and its text)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// A format of speech was given for text.
    #[error("{}: `format: tar`, `audio` and `transcripts` are for speech; text comes as jsonl, json, csv, tsv, conll, text or parquet", path.display())]
    Speech {
        /// The file.
        path: PathBuf,
    },
    /// A folder holds no files of records.
    #[error("{}: is a folder without files of records ({extensions}); name one that has some", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// Extensions that were looked for.
        extensions: String,
    },
    /// A folder holds more than one format.
    #[error("{}: is a folder with files of several formats, such as {first} and {other}; say under `format` which to read", path.display())]
    Formats {
        /// The folder.
        path: PathBuf,
        /// Name of its first file.
        first: String,
        /// Name of a file in another format.
        other: String,
    },
    /// A quote is never closed, so that all lines after it belong to its cell.
    #[error("{origin} opens a quote that is never closed; close it, or put two for one that belongs to the text")]
    OpenQuote {
        /// Line with the quote.
        origin: Origin,
    },
    /// There are no records.
    #[error("{path}: holds no records; give a file that has some")]
    Empty {
        /// The files.
        path: Paths,
    },
    /// There are records, but none in the part.
    #[error("{path}: none of its {records} records is in the part from {from} to {to}; widen it")]
    EmptyPart {
        /// The files.
        path: Paths,
        /// Number of records in them.
        records: u64,
        /// Start of the part.
        from: f64,
        /// End of the part.
        to: f64,
    },
    /// There are records, but none in the share.
    #[error(
        "{path}: none of its {records} records falls into a share of {share}; make it larger, or give each split files of its own"
    )]
    EmptyShare {
        /// The files.
        path: Paths,
        /// Number of records in them.
        records: u64,
        /// The share.
        share: Share,
    },
    /// Two files that are read line by line differ in length.
    #[error("{} has {lines} lines and {} has {target_lines}: line n of one must belong to line n of the other", path.display(), target_path.display())]
    Unequal {
        /// The first file.
        path: PathBuf,
        /// Number of its lines.
        lines: usize,
        /// The second file.
        target_path: PathBuf,
        /// Number of its lines.
        target_lines: usize,
    },
    /// The bytes are not valid text.
    #[error("{origin} is not UTF-8; save the file as UTF-8")]
    Encoding {
        /// File, and line or row in it.
        origin: Origin,
    },
    /// A line or row cannot be parsed.
    #[error("{origin} {reason}")]
    Malformed {
        /// File, and line or row in it.
        origin: Origin,
        /// Reason.
        reason: String,
    },
    /// A record lacks fields that the task needs.
    #[error("{origin} has {found}; the task needs {needs}: map them under `columns`")]
    Fields {
        /// File, and line or row in it.
        origin: Origin,
        /// Fields that the record has.
        found: String,
        /// Fields that the task needs.
        needs: String,
    },
    /// A field has a value of the wrong type.
    #[error("{origin} has {found} in {field}, where the task needs {needs}; map another column or correct the file")]
    Type {
        /// File, and line or row in it.
        origin: Origin,
        /// Name of the field and its column.
        field: String,
        /// Type of the value, in words.
        found: String,
        /// Expected type.
        needs: String,
    },
    /// More records were left out than is allowed.
    #[error("{path}: {left_out} of {of} records cannot be used, more than `max_bad_share` allows; the first: {first}")]
    TooManyBad {
        /// The files.
        path: Paths,
        /// Number of records that were left out.
        left_out: usize,
        /// Number of all records.
        of: usize,
        /// Why the first was.
        first: Box<RecordsError>,
    },
    /// A label or tag is not in the task's set.
    #[error("{origin} has the {kind} `{label}`, which is none of the task's: {set} {hint}")]
    Label {
        /// File, and line or row in it.
        origin: Origin,
        /// `label` or `tag`.
        kind: &'static str,
        /// Label as in the file.
        label: String,
        /// Set of the task.
        set: String,
        /// Accepted forms of labels.
        hint: &'static str,
    },
    /// An answer is not at its place in the context.
    #[error(
        "{origin} has the answer `{answer}` at character {start} of the context, where there is `{found}`; starts count \
         characters (not bytes or words) from 0"
    )]
    Span {
        /// File, and line or row in it.
        origin: Origin,
        /// Text of the answer.
        answer: String,
        /// Position where it should start.
        start: usize,
        /// Text of the context at this position.
        found: String,
    },
}
impl RecordsError {
    /// Whether one record is to blame, and the others can be used.
    pub(super) fn is_of_record(&self) -> bool {
        matches!(self, Self::Fields { .. } | Self::Type { .. } | Self::Label { .. } | Self::Span { .. })
    }
}
