use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ClipsError;
use crate::audio::has_audio_extension;
use crate::records::lines::read_error;
use crate::records::row::{Content, Row};
use crate::records::{Format, Origin, RecordsConfig, RecordsError, find};

/// Usual names of splits, which must not be mixed.
const SPLITS: [&str; 11] = [
    "train", "training", "valid", "validation", "validated", "invalidated", "dev", "test", "eval", "other", "reported",
];

/// Extensions of compressed tar files.
const COMPRESSED: [&str; 6] = [".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4"];

/// Returns the files of a configuration and their formats, in order.
pub(super) fn files(config: &RecordsConfig) -> Result<Vec<(Format, PathBuf)>, ClipsError> {
    if config.target_path.is_some() || matches!(config.format, Format::Text | Format::Conll) {
        let reason = "`target_path` and `format: text` or `conll` are for text: speech comes as a list of audio files \
                      (jsonl, json, csv, tsv), parquet, tar or audio";
        return Err(RecordsError::Config { reason: reason.into() }.into());
    }
    let mut files = Vec::new();
    for path in config.path.as_slice() {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => files.extend(folder(path, config)?),
            Ok(_) => files.push((file(path, config)?, path.clone())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(RecordsError::Missing { path: path.clone() }.into());
            }
            Err(error) => return Err(read_error(path, error).into()),
        }
    }
    Ok(files)
}

/// Returns the format of a single file.
fn file(path: &Path, config: &RecordsConfig) -> Result<Format, ClipsError> {
    let name = file_name(path);
    if is_compressed(&name) {
        return Err(compressed(path));
    }
    let format = match ending(&name).as_str() {
        "tar" if config.format == Format::Auto => Format::Tar,
        _ if has_audio_extension(path) => {
            let reason = "is an audio file: name the list of audio files and texts, or the folder with both";
            return Err(layout(path, reason));
        }
        _ => config.format_of(path).ok_or_else(|| RecordsError::Format { path: path.into() })?,
    };
    match format {
        Format::Audio => Err(layout(path, "is a file: `format: audio` reads a folder")),
        Format::Text | Format::Conll => {
            Err(layout(path, "is a file of text; speech comes as jsonl, json, csv, tsv, parquet or tar"))
        }
        _ => Ok(format),
    }
}

/// Content of a folder.
#[derive(Default)]
struct Found {
    /// Lists called `metadata`, as in LJSpeech and AudioFolder.
    metadata: Vec<PathBuf>,
    lists: Vec<PathBuf>,
    parquet: Vec<PathBuf>,
    tar: Vec<PathBuf>,
    audio: Vec<PathBuf>,
    compressed: Vec<PathBuf>,
    all: Vec<String>,
}

fn folder(path: &Path, config: &RecordsConfig) -> Result<Vec<(Format, PathBuf)>, ClipsError> {
    let found = look(path)?;
    let tagged = |format, files: Vec<PathBuf>| files.into_iter().map(|file| (format, file)).collect::<Vec<_>>();
    let nothing = |what: &str| layout(path, format!("is a folder without {what}; it has {}", several(&found.all)));
    match config.format {
        Format::Auto => {}
        Format::Audio if found.audio.is_empty() => return Err(nothing("audio files (.wav, .flac, .mp3, .ogg)")),
        Format::Audio => return Ok(vec![(Format::Audio, path.into())]),
        Format::Tar if found.tar.is_empty() => return Err(nothing("tar files")),
        Format::Tar => return Ok(tagged(Format::Tar, found.tar)),
        _ => return Ok(find::folder(path, config)?),
    }

    let kinds = [&found.lists, &found.parquet, &found.tar].iter().filter(|files| !files.is_empty()).count();
    if let [list] = found.metadata.as_slice() {
        return Ok(vec![(file(list, config)?, list.clone())]);
    }
    if kinds > 1 || found.metadata.len() > 1 {
        let reason = format!(
            "is a folder with several kinds of lists and shards: {}; name one of them, or say under `format` which to read",
            several(&names(found.metadata.iter().chain(&found.lists).chain(&found.parquet).chain(&found.tar)))
        );
        return Err(layout(path, reason));
    }
    if let Some(first) = found.compressed.first() {
        return Err(compressed(first));
    }
    let files = match () {
        () if !found.parquet.is_empty() => tagged(Format::Parquet, found.parquet),
        () if !found.tar.is_empty() => tagged(Format::Tar, found.tar),
        () if !found.lists.is_empty() => find::folder(path, config)?,
        () if !found.audio.is_empty() => vec![(Format::Audio, path.into())],
        () => return Err(nothing("a list of audio files, Parquet or tar shards, or audio files with texts")),
    };
    check_splits(path, &files)?;
    Ok(files)
}

/// Refuses to read `train` and `test` as one data set.
fn check_splits(path: &Path, files: &[(Format, PathBuf)]) -> Result<(), ClipsError> {
    let split = |file: &PathBuf| {
        let name = file_name(file).to_ascii_lowercase();
        let word = name.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_owned();
        SPLITS.contains(&word.as_str()).then_some(word)
    };
    let splits: BTreeSet<_> = files.iter().map(|(_, file)| split(file)).collect();
    if splits.len() < 2 {
        return Ok(());
    }
    let files = several(&names(files.iter().map(|(_, file)| file)));
    Err(layout(path, format!("is a folder with several parts of a data set: {files}; name the files of one part")))
}

fn look(path: &Path) -> Result<Found, ClipsError> {
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<DirEntry>, _>>);
    let mut files: Vec<_> = entries.map_err(|error| read_error(path, error))?.iter().map(DirEntry::path).collect();
    files.sort();
    let mut found = Found::default();
    for file in files {
        let name = file_name(&file);
        if name.starts_with('.') {
            continue;
        }
        let ending = ending(&name);
        if file.is_dir() {
            found.all.push(format!("{name}/"));
            continue;
        }
        found.all.push(name.clone());
        match ending.as_str() {
            _ if is_compressed(&name) => found.compressed.push(file),
            "tar" => found.tar.push(file),
            "parquet" => found.parquet.push(file),
            "csv" | "tsv" | "jsonl" | "ndjson" | "json" => {
                let is_metadata = file.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("metadata"));
                if is_metadata { found.metadata.push(file) } else { found.lists.push(file) }
            }
            _ if has_audio_extension(&file) => found.audio.push(file),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the rows of a folder of audio: the file's name as `audio`, without its extension as `name`, its parts
/// between `_`, `-` and spaces as `parts`, and the content of the `.txt` of the same name as `text`.
pub(super) fn audio_rows(path: &Path) -> Result<Vec<Result<Row, RecordsError>>, RecordsError> {
    let found = look(path).map_err(|error| read_error(path, error))?;
    let has_audio = |name: &&String| {
        let inside = name.strip_suffix('/').and_then(|name| look(&path.join(name)).ok());
        inside.is_some_and(|inside| !inside.audio.is_empty())
    };
    if let Some(folder) = found.all.iter().find(has_audio) {
        tracing::warn!(
            "`{}` is not read, for a folder of audio is read without those in it: name it beside `{}`",
            path.join(folder).display(),
            path.display()
        );
    }
    let folder = path.into();
    let row = |(number, file): (u64, PathBuf)| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut fields = Map::new();
        fields.insert("audio".into(), file_name(&file).into());
        let parts: Vec<_> = name.split(['_', '-', ' ']).filter(|part| !part.is_empty()).collect();
        fields.insert("parts".into(), parts.into());
        fields.insert("name".into(), name.into());
        let text = file.with_extension("txt");
        match std::fs::read_to_string(&text) {
            Ok(content) => {
                let content = content.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
                fields.insert("text".into(), Value::from(content));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(read_error(&text, error)),
        }
        Ok(Row { file: Some(file), ..Row::new(Origin::row(&folder, number), Content::Fields(fields)) })
    };
    Ok((1..).zip(found.audio).map(row).collect())
}

fn is_compressed(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    COMPRESSED.iter().any(|ending| name.ends_with(ending))
}

fn compressed(path: &Path) -> ClipsError {
    let reason = "is a compressed tar file, of which no part can be read without all before it; unpack it to a .tar \
                  (gunzip for .gz), which is hardly larger, for audio is compressed already";
    layout(path, reason)
}

fn layout(path: &Path, reason: impl Into<String>) -> ClipsError {
    ClipsError::Layout { path: path.into(), reason: reason.into() }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn ending(name: &str) -> String {
    name.rsplit_once('.').map_or(String::new(), |(_, ending)| ending.to_ascii_lowercase())
}

fn names<'p>(files: impl Iterator<Item = &'p PathBuf>) -> Vec<String> {
    files.map(|file| file_name(file)).collect()
}

/// Returns the first names, and the number of the others.
fn several(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        names if names.len() <= 5 => names.join(", "),
        names => format!("{} and {} more", names[..4].join(", "), names.len() - 4),
    }
}
