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
    if matches!(config.format, Format::Tar | Format::Audio | Format::Transcripts) {
        return Err(RecordsError::Speech { path: path.into() });
    }
    if config.is_text() {
        let reason = format!("{} is a folder: `format: text` reads two files, line by line", path.display());
        return Err(RecordsError::Config { reason });
    }
    if config.format == Format::Auto {
        refuse_arrow(path)?;
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

/// Refuses a folder as `datasets` writes it with `save_to_disk`, and says how to write it so that it can be read.
pub(crate) fn refuse_arrow(folder: &Path) -> Result<(), RecordsError> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_saved = folder.join("dataset_dict.json").is_file()
        || folder.join("state.json").is_file()
            && entries.into_iter().any(|path| path.extension().is_some_and(|own| own == "arrow"));
    if !is_saved {
        return Ok(());
    }
    let reason = "it is what `save_to_disk` of the `datasets` library writes, in Arrow, and Undertone reads Parquet: \
                  write each split with `dataset.to_parquet(\"train.parquet\")`";
    Err(read_error(folder, reason))
}
