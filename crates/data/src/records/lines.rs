//! Lines of files, and functions that all formats share.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

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

/// Opens a file of text for reading; of one that gzip has compressed, what it holds.
pub(crate) fn open_text(path: &Path) -> Result<Box<dyn Read>, RecordsError> {
    let mut file = BufReader::new(open(path)?);
    let is_gzip = file.fill_buf().map_err(|error| read_error(path, error))?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
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
    let file = open_text(path)?;
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
