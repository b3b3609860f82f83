use std::path::PathBuf;

use super::{Origin, Paths, Share};

/// Why records could not be read; lines and rows count from 1, columns from 0.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A key of the configuration does not fit.
    #[error("{reason}")]
    Config {
        /// Which, and what to do.
        reason: String,
    },
    /// No such file or folder.
    #[error("{}: there is no such file of records; check the path", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but cannot be read, or is not what its format says.
    #[error("{}: cannot be read: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system or the format's reader said.
        reason: String,
    },
    /// The extension names no format.
    #[error("{}: the extension tells no format; give it under `format`: jsonl, json, csv, tsv, conll, text or parquet", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// A format of speech where text is wanted.
    #[error("{}: `format: tar` and `audio` are for speech; text comes as jsonl, json, csv, tsv, conll, text or parquet", path.display())]
    Speech {
        /// The file.
        path: PathBuf,
    },
    /// A folder without files of records.
    #[error("{}: is a folder without files of records ({extensions}); name one that has some", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// The extensions that were looked for.
        extensions: String,
    },
    /// A folder that holds more than one format.
    #[error("{}: is a folder with files of several formats, such as {first} and {other}; say under `format` which to read", path.display())]
    Formats {
        /// The folder.
        path: PathBuf,
        /// The name of its first file.
        first: String,
        /// The name of one in another format.
        other: String,
    },
    /// No records at all.
    #[error("{path}: holds no records; give a file that has some")]
    Empty {
        /// The files.
        path: Paths,
    },
    /// Records, but none in the part.
    #[error("{path}: none of its {records} records is in the part from {from} to {to}; widen it")]
    EmptyPart {
        /// The files.
        path: Paths,
        /// Records in them.
        records: u64,
        /// Where the part begins.
        from: f64,
        /// Where it ends.
        to: f64,
    },
    /// Records, but none in the share.
    #[error(
        "{path}: none of its {records} records falls into a share of {share}; make it larger, or give each split files of its own"
    )]
    EmptyShare {
        /// The files.
        path: Paths,
        /// Records in them.
        records: u64,
        /// How much was wanted.
        share: Share,
    },
    /// Two files that should belong together line by line, and do not.
    #[error("{} has {lines} lines and {} has {target_lines}: line n of one must belong to line n of the other", path.display(), target_path.display())]
    Unequal {
        /// The first file.
        path: PathBuf,
        /// Its lines.
        lines: usize,
        /// The second file.
        target_path: PathBuf,
        /// Its lines.
        target_lines: usize,
    },
    /// Bytes that are no text.
    #[error("{origin} is not UTF-8; save the file as UTF-8")]
    Encoding {
        /// The file, and the line or row in it.
        origin: Origin,
    },
    /// A line or row that cannot be understood.
    #[error("{origin} {reason}")]
    Malformed {
        /// The file, and the line or row in it.
        origin: Origin,
        /// What is wrong with it.
        reason: String,
    },
    /// A record without the fields that the task needs.
    #[error("{origin} has {found}; the task needs {needs}: map them under `columns`")]
    Fields {
        /// The file, and the line or row in it.
        origin: Origin,
        /// The fields that there are.
        found: String,
        /// The fields that the task needs.
        needs: String,
    },
    /// A field that holds something of another type.
    #[error("{origin} has {found} in {field}, where the task needs {needs}; map another column or correct the file")]
    Type {
        /// The file, and the line or row in it.
        origin: Origin,
        /// The field and its column.
        field: String,
        /// The type of value that is there, in words.
        found: String,
        /// What should be there.
        needs: String,
    },
    /// A label or tag that is none of the task's.
    #[error("{origin} has the {kind} `{label}`, which is none of the task's: {set} {hint}")]
    Label {
        /// The file, and the line or row in it.
        origin: Origin,
        /// `label` or `tag`.
        kind: &'static str,
        /// As the file has it.
        label: String,
        /// The task's.
        set: String,
        /// How they may be given.
        hint: &'static str,
    },
    /// An answer that does not stand where it should.
    #[error(
        "{origin} has the answer `{answer}` at character {start} of the context, where there is `{found}`; starts count \
         characters (not bytes or words) from 0"
    )]
    Span {
        /// The file, and the line or row in it.
        origin: Origin,
        /// The answer's text.
        answer: String,
        /// Where it should start.
        start: usize,
        /// What the context has there.
        found: String,
    },
}
