use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::clip::Clip;
use super::{ClipsError, transcripts};
use crate::audio::{files_below, has_audio_extension};
use crate::records::lines::read_error;
use crate::records::row::{Content, Row};
use crate::records::warnings::warn_once;
use crate::records::{Column, Format, Origin, RecordsConfig, RecordsError, find};

/// Usual names of splits, which must not be mixed.
const SPLITS: [&str; 11] = [
    "train", "training", "valid", "validation", "validated", "invalidated", "dev", "test", "eval", "other", "reported",
];

/// Extensions of compressed tar files.
const COMPRESSED: [&str; 6] = [".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4"];

/// Extensions of a text beside its audio, the first that is there; the second is LibriTTS's.
const TEXTS: [&str; 2] = ["txt", "normalized.txt"];

/// Returns the files of a configuration and their formats, in order.
pub(super) fn files(config: &RecordsConfig) -> Result<Vec<(Format, PathBuf)>, ClipsError> {
    if config.target_path.is_some() || matches!(config.format, Format::Text | Format::Conll) {
        let reason = "`target_path` and `format: text` or `conll` are for text: speech comes as a list of audio files \
                      (jsonl, json, csv, tsv), parquet, tar, audio or transcripts";
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
        _ if config.format == Format::Auto && transcripts::is_list(path) => Format::Transcripts,
        _ if has_audio_extension(path) => {
            let reason = "is an audio file: name the list of audio files and texts, or the folder with both";
            return Err(layout(path, reason));
        }
        _ => config.format_of(path).ok_or_else(|| RecordsError::Format { path: path.into() })?,
    };
    match format {
        Format::Audio => Err(layout(path, "is a file: `format: audio` reads a folder")),
        Format::Text | Format::Conll => {
            let reason = "is a file of text; speech comes as jsonl, json, csv, tsv, parquet or tar, or with `format: \
                          transcripts` as lines of the name of a recording and its text";
            Err(layout(path, reason))
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
    transcripts: Vec<PathBuf>,
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
        Format::Auto => find::refuse_arrow(path)?,
        Format::Audio if found.audio.is_empty() && audio_below(path)?.is_empty() => {
            return Err(nothing("audio files (.wav, .flac, .mp3, .ogg)"));
        }
        Format::Audio => {
            if found.audio.is_empty() {
                check_splits(path, folders_of(path, parents(&audio_below(path)?)))?;
            }
            return Ok(vec![(Format::Audio, path.into())]);
        }
        Format::Transcripts => return lists_of_transcripts(path)?.ok_or_else(|| nothing("lists of transcripts")),
        Format::Tar if found.tar.is_empty() => return Err(nothing("tar files")),
        Format::Tar => return Ok(tagged(Format::Tar, found.tar)),
        _ => return Ok(find::folder(path, config)?),
    }

    let all = [&found.lists, &found.parquet, &found.tar, &found.transcripts];
    let kinds = all.iter().filter(|files| !files.is_empty()).count();
    if let [list] = found.metadata.as_slice() {
        return Ok(vec![(file(list, config)?, list.clone())]);
    }
    if kinds > 1 || found.metadata.len() > 1 {
        let reason = format!(
            "is a folder with several kinds of lists and shards: {}; name one of them, or say under `format` which to read",
            several(&names(found.metadata.iter().chain(all.into_iter().flatten())))
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
        () if found.audio.iter().any(|file| text_beside(file).is_some()) => vec![(Format::Audio, path.into())],
        () if !found.transcripts.is_empty() => tagged(Format::Transcripts, found.transcripts),
        () if !found.audio.is_empty() => vec![(Format::Audio, path.into())],
        () => match lists_of_transcripts(path)? {
            Some(lists) => return Ok(lists),
            None if is_tree_of_audio(path, config)? => vec![(Format::Audio, path.into())],
            None => return Err(nothing("a list of audio files, Parquet or tar shards, or audio files with texts")),
        },
    };
    check_splits(path, files.iter().map(|(_, file)| file_name(file)))?;
    Ok(files)
}

/// Returns the lists of transcripts below a folder, if there are any.
fn lists_of_transcripts(path: &Path) -> Result<Option<Vec<(Format, PathBuf)>>, ClipsError> {
    let mut lists = files_below(path, transcripts::is_list).map_err(|error| read_error(path, error))?;
    // Kaldi divides a data directory into others below it, with the same recordings.
    let whole: Vec<PathBuf> = lists.iter().filter(|list| list.ends_with("text")).cloned().collect();
    let is_part = |list: &PathBuf| {
        let within = |whole: &PathBuf| whole != list && whole.parent().is_some_and(|folder| list.starts_with(folder));
        list.ends_with("text") && whole.iter().any(within)
    };
    lists.retain(|list| !is_part(list));
    check_splits(path, folders_of(path, lists.iter().map(PathBuf::as_path)))?;
    Ok((!lists.is_empty()).then(|| lists.into_iter().map(|list| (Format::Transcripts, list)).collect()))
}

/// Whether a folder has audio below it, with texts beside it or in its names.
fn is_tree_of_audio(path: &Path, config: &RecordsConfig) -> Result<bool, ClipsError> {
    let audio = audio_below(path)?;
    let is_in_name =
        |column: &Column| matches!(column, Column::Name(name) if name == "name" || name.starts_with("parts"));
    let known = config.without_texts || config.columns.get("text").is_some_and(is_in_name);
    let is_one = audio.iter().any(|file| known || text_beside(file).is_some());
    if is_one {
        check_splits(path, folders_of(path, parents(&audio)))?;
    }
    Ok(is_one)
}

fn audio_below(path: &Path) -> Result<Vec<PathBuf>, RecordsError> {
    files_below(path, has_audio_extension).map_err(|error| read_error(path, error))
}

/// Returns for each of these paths below `path` the part of it that is named like a split, or else the first.
fn folders_of<'p>(path: &Path, below: impl Iterator<Item = &'p Path>) -> impl Iterator<Item = String> {
    let folder = move |below: &Path| {
        let below = below.strip_prefix(path).ok()?;
        let parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let split = parts.iter().position(|part| split(part).is_some());
        parts.into_iter().nth(split.unwrap_or(0))
    };
    below.filter_map(folder)
}

/// Returns the folders of recordings, whose own names say nothing of a split.
fn parents(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
    files.iter().filter_map(|file| file.parent())
}

/// Returns the split that a name begins with.
fn split(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let word = name.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_owned();
    SPLITS.contains(&word.as_str()).then_some(word)
}

/// Warns of the list of a folder that names recordings of `train` and `test`, all of which are read.
pub(super) fn warn_of_parts(config: &RecordsConfig, clips: &[Clip]) {
    let is_metadata = |path: &Path| path.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("metadata"));
    for list in clips.iter().map(|clip| &clip.origin.path).filter(|path| is_metadata(path)).collect::<BTreeSet<_>>() {
        // Whoever names the list means all of it.
        if config.path.as_slice().iter().any(|path| path.as_path() == &**list) {
            continue;
        }
        let first =
            |clip: &Clip| Some(clip.name.split_once('/')?.0.to_owned()).filter(|folder| split(folder).is_some());
        let folders: BTreeSet<String> =
            clips.iter().filter(|clip| clip.origin.path == *list).filter_map(first).collect();
        if folders.len() > 1 {
            warn_once(format!(
                "`{}` lists recordings of several parts of a data set, and all of them are read: {}; make a list for each part",
                list.display(),
                several(&Vec::from_iter(folders))
            ));
        }
    }
}

/// Refuses to read `train` and `test` as one data set, by the names of its files or folders.
fn check_splits(path: &Path, names: impl Iterator<Item = String>) -> Result<(), ClipsError> {
    let names: BTreeSet<String> = names.collect();
    let splits: BTreeSet<_> = names.iter().map(|name| split(name)).collect();
    if splits.len() < 2 {
        return Ok(());
    }
    let names = several(&Vec::from_iter(names));
    Err(layout(path, format!("is a folder with several parts of a data set: {names}; name what belongs to one part")))
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
            _ if transcripts::is_list(&file) => found.transcripts.push(file),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the rows of a folder of audio, or of those in it if it has no audio itself: the file as `audio`, the columns of
/// its name without extension, and the content of the file of its text as `text`.
pub(super) fn audio_rows(path: &Path, config: &RecordsConfig) -> Result<Vec<Result<Row, RecordsError>>, RecordsError> {
    let has_texts = !config.columns.contains_key("text");
    let found = look(path).map_err(|error| read_error(path, error))?;
    let files = if found.audio.is_empty() { audio_below(path)? } else { found.audio };
    let has_audio = |name: &&String| {
        let inside = name.strip_suffix('/').and_then(|name| look(&path.join(name)).ok());
        inside.is_some_and(|inside| !inside.audio.is_empty())
    };
    let is_tree = files.iter().any(|file| file.parent() != Some(path));
    if !is_tree && let Some(folder) = found.all.iter().find(has_audio) {
        tracing::warn!(
            "`{}` is not read, for a folder that has audio is read without those in it: name it beside `{}`",
            path.join(folder).display(),
            path.display()
        );
    }
    let folder = path.into();
    let row = |(number, file): (u64, PathBuf)| {
        let mut fields = transcripts::named(&file.file_stem().unwrap_or_default().to_string_lossy());
        let below = file.strip_prefix(path).unwrap_or(&file);
        fields.insert("audio".into(), below.to_string_lossy().into());
        if let Some(text) = text_beside(&file).filter(|_| has_texts) {
            let content = std::fs::read_to_string(&text).map_err(|error| read_error(&text, error))?;
            let content = content.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
            fields.insert("text".into(), Value::from(content));
        }
        Ok(Row { file: Some(file), ..Row::new(Origin::row(&folder, number), Content::Fields(fields)) })
    };
    Ok((1..).zip(files).map(row).collect())
}

/// Returns the file beside an audio file that has its text.
fn text_beside(audio: &Path) -> Option<PathBuf> {
    TEXTS.map(|ending| audio.with_extension(ending)).into_iter().find(|text| text.is_file())
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
