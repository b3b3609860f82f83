//! Search for the files of a configuration.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::lines::read_error;
use super::{Format, RecordsConfig, RecordsError};

/// Returns every file of a configuration, with its format.
pub(crate) fn files(config: &RecordsConfig) -> Result<Vec<(Format, PathBuf)>, RecordsError> {
    let mut files = Vec::new();
    for path in config.path.as_slice() {
        let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => RecordsError::Missing { path: path.clone() },
            _ => read_error(path, error),
        })?;
        let format = config.format_of(path);
        if metadata.is_dir() {
            files.extend(folder(path, config)?);
        } else if let Some(format) = format {
            files.push((format, path.clone()));
        } else {
            return Err(RecordsError::Format { path: path.clone() });
        }
    }
    Ok(files)
}

/// Returns the files of records in a folder, ordered by name; at least one, and all of one format.
pub(crate) fn folder(path: &Path, config: &RecordsConfig) -> Result<Vec<(Format, PathBuf)>, RecordsError> {
    if matches!(config.format, Format::Tar | Format::Audio) {
        return Err(RecordsError::Speech { path: path.into() });
    }
    if config.is_text() {
        let reason = format!("{} is a folder: `format: text` reads two files, line by line", path.display());
        return Err(RecordsError::Config { reason });
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| read_error(path, error))? {
        let entry = entry.map_err(|error| read_error(path, error))?;
        let (file, hidden) = (entry.path(), entry.file_name().as_encoded_bytes().starts_with(b"."));
        let wanted = |format: &Format| config.format == Format::Auto || config.format == *format;
        match Format::by_extension(&file).filter(wanted) {
            Some(format) if !hidden && !file.is_dir() => files.push((format, file)),
            _ => {}
        }
    }
    files.sort_by(|(_, a), (_, b)| a.cmp(b));
    let Some((format, first)) = files.first() else {
        return Err(RecordsError::EmptyFolder { path: path.into(), extensions: config.format.extensions() });
    };
    config.fits(*format)?;
    match files.iter().find(|(other, _)| other != format) {
        None => Ok(files),
        Some((_, other)) => {
            let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Err(RecordsError::Formats { path: path.into(), first: name(first), other: name(other) })
        }
    }
}
