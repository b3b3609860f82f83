//! Lines of files, and functions that all formats share.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use super::row::Row;
use super::{Origin, RecordsError};

/// Rows of one file, read on demand.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<Row, RecordsError>>>;

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> Result<File, RecordsError> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => RecordsError::Missing { path: path.into() },
        _ => read_error(path, error),
    })
}

/// Makes an error of the operating system or of a format's reader.
pub(crate) fn read_error(path: &Path, error: impl ToString) -> RecordsError {
    RecordsError::Read { path: path.into(), reason: error.to_string() }
}

/// Returns lines with their numbers, without line ends and byte order mark. Only a line feed ends a line, with or
/// without a carriage return before it: other separators of Unicode may be part of a text.
pub(crate) fn lines(
    path: &Arc<Path>,
) -> Result<impl Iterator<Item = Result<(u64, String), RecordsError>> + use<>, RecordsError> {
    let file = open(path)?;
    let path = path.clone();
    Ok((1..).zip(BufReader::new(file).split(b'\n')).map(move |(number, line)| {
        let mut line = line.map_err(|error| read_error(&path, error))?;
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let line =
            String::from_utf8(line).map_err(|_| RecordsError::Encoding { origin: Origin::line(&path, number) })?;
        Ok((
            number,
            match line.strip_prefix('\u{feff}') {
                Some(rest) if number == 1 => rest.to_owned(),
                _ => line,
            },
        ))
    }))
}

pub(crate) fn is_blank(line: &Result<(u64, String), RecordsError>) -> bool {
    matches!(line, Ok((_, text)) if text.trim().is_empty())
}
