use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::clip::{self, Clip};
use super::parquet::{self, Pages, Shard};
use super::remote::{ParquetFile, Remote};
use super::source::{Files, Length, Source};
use super::tar::{self, Member};
use super::transcripts::{self, Trees};
use super::{Clips, ClipsError, DEFAULT_MEMORY, layout};
use crate::audio::{EXTENSIONS, has_audio_extension};
use crate::records::fields::TaskFields;
use crate::records::files::file_rows;
use crate::records::lines::{Rows, read_error};
use crate::records::row::Row;
use crate::records::{Format, RecordsConfig, RecordsError, parquet as record_parquet};

/// Subfolders beside a list that may contain its audio: Common Voice's, LJSpeech's, and a common name.
const FOLDERS: [&str; 3] = ["clips", "wavs", "audio"];

/// Number of clips in files of their own that form a block, if other clips are in row groups or shards.
const FILES_PER_BLOCK: usize = 256;

/// Location of the audio of a list's rows.
#[derive(Clone)]
enum Holder {
    /// In files, in one of these folders.
    Folders(Rc<[PathBuf]>),
    /// In the rows themselves.
    Cells { shard: usize },
    /// In members of the tar file, one for each row.
    Members(Rc<[Member]>),
}

/// State of the lists that have been opened so far; each is opened when its rows are needed.
#[derive(Default)]
struct Opened {
    /// Files that are not local.
    remotes: HashMap<PathBuf, Arc<dyn Remote>>,
    holders: HashMap<PathBuf, Holder>,
    shards: Vec<Shard>,
    trees: Trees,
}

impl Clips {
    /// Reads all data about clips without decoding audio, and checks that every audio file exists.
    ///
    /// # Errors
    /// The error names the file and the line or row. It is returned for a file that is missing, empty or not in its
    /// format, a folder whose layout is ambiguous, a field that is missing or of another type, invalid times or
    /// segments, and an audio file that does not exist.
    pub fn open(config: &RecordsConfig) -> Result<Self, ClipsError> {
        config.validate()?;
        read(config, layout::files(config)?, Vec::new(), Err)
    }

    /// As [`Clips::open`], but an invalid row or missing audio does not stop the reading. Returns the usable clips, and
    /// the errors of the others.
    ///
    /// # Errors
    /// As [`Clips::open`], for errors of whole files; and the error of the first row if no row can be used.
    pub fn open_usable(config: &RecordsConfig) -> Result<(Self, Vec<ClipsError>), ClipsError> {
        let mut problems = Vec::new();
        config.validate()?;
        let clips = read(config, layout::files(config)?, Vec::new(), |problem| {
            problems.push(problem);
            Ok(())
        });
        match clips {
            Ok(clips) if !clips.is_empty() => Ok((clips, problems)),
            Err(ClipsError::Records(RecordsError::Empty { .. })) | Ok(_) if !problems.is_empty() => {
                Err(problems.swap_remove(0))
            }
            clips => Ok((clips?, problems)),
        }
    }

    /// As [`Clips::open`], for remote Parquet files; the `path` of the configuration is ignored. The footers and the
    /// columns without audio are read now, the pages of the audio when a clip in them is asked for.
    ///
    /// # Errors
    /// As [`Clips::open`], and for a file whose rows do not contain the audio.
    pub fn stream(config: &RecordsConfig, shards: Vec<Arc<dyn Remote>>) -> Result<Self, ClipsError> {
        let names: Vec<PathBuf> = shards.iter().map(|shard| PathBuf::from(shard.name())).collect();
        let config = RecordsConfig { path: names.clone().into(), format: Format::Parquet, ..config.clone() };
        config.validate()?;
        read(&config, names.into_iter().map(|name| (Format::Parquet, name)).collect(), shards, Err)
    }
}

/// Returns the clips of all rows except those that `on_problem` accepts as skipped.
fn read(
    config: &RecordsConfig,
    lists: Vec<(Format, PathBuf)>,
    shards: Vec<Arc<dyn Remote>>,
    on_problem: impl FnMut(ClipsError) -> Result<(), ClipsError>,
) -> Result<Clips, ClipsError> {
    let on_problem = RefCell::new(on_problem);
    let task = clip::task(config);
    let mut files = Files::default();
    for shard in &shards {
        files.note_remote(shard.name(), shard.size());
    }
    let remotes = shards.into_iter().map(|shard| (PathBuf::from(shard.name()), shard)).collect();
    let opened = RefCell::new(Opened { remotes, ..Opened::default() });
    let rows = lists.into_iter().flat_map(|(format, path)| {
        let (rows, is_open) = match list_rows(&task, format, path.into(), &opened) {
            Ok(rows) => (rows, true),
            Err(error) => (Box::new(std::iter::once(Err(error))) as Rows, false),
        };
        rows.map(move |row| (row, is_open))
    });
    // Pieces that are cut from one file are identified by that file, which a share does not divide: by its first spelling, so that a
    // division does not depend on where the data lies.
    let spellings = RefCell::new(HashMap::new());
    let recording = |row: &Row| match opened.borrow().holders.get(&*row.origin.path) {
        Some(Holder::Folders(folders)) if config.share.is_some() => {
            let path = clip::audio_path(&task, row).ok()?;
            let file = candidates(folders, &path).find_map(|file| file.canonicalize().ok());
            let plain = plain_path(path);
            Some(file.map_or_else(
                || plain.clone(),
                |file| spellings.borrow_mut().entry(file).or_insert(plain.clone()).clone(),
            ))
        }
        _ => None,
    };
    let rows = (1..).zip(rows).filter_map(|(number, (row, is_open))| match row {
        Ok(row) => Some(Ok(Row { number, recording: recording(&row), ..row })),
        // The lines after it can be read.
        Err(problem @ (RecordsError::Malformed { .. } | RecordsError::Encoding { .. })) if is_open => {
            on_problem.borrow_mut()(problem.into()).err().map(Err)
        }
        Err(problem) => Some(Err(problem.into())),
    });

    let clips = task.select(rows, |row| {
        // The list of a row has been opened already.
        let holder = opened.borrow().holders.get(&*row.origin.path).cloned();
        let holder = holder.unwrap_or_else(|| Holder::Folders(Rc::new([])));
        let clip = source(&task, row, &holder, &mut files)
            .and_then(|(name, source)| Ok(clip::read(&task, row, name, source)?));
        clip.map(Some).or_else(|problem| on_problem.borrow_mut()(problem).map(|()| None))
    })?;
    let clips: Vec<Clip> = clips.into_iter().flatten().collect();
    layout::warn_of_parts(config, &clips);
    let shards = opened.into_inner().shards;
    let blocks = blocks(&clips, &shards);
    let own_files = clips.iter().all(|clip| matches!(clip.source, Source::File { .. }));
    let lengths = if own_files { Vec::new() } else { clips.iter().map(|_| Length::default()).collect() };
    Ok(Clips { clips, files: files.list, shards, blocks, pages: Pages::new(DEFAULT_MEMORY), lengths })
}

/// Returns a path without `.` and `..`, so that a file has one spelling in a list.
fn plain_path(path: String) -> String {
    let mut plain = PathBuf::new();
    for part in Path::new(&path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain.into_os_string().into_string().unwrap_or(path)
}

/// Returns the rows of one list, without the audio, and records the location of the audio.
fn list_rows(
    task: &TaskFields,
    format: Format,
    path: Arc<Path>,
    opened: &RefCell<Opened>,
) -> Result<Rows, RecordsError> {
    let mut opened = opened.borrow_mut();
    let (rows, holder): (Rows, _) = match format {
        Format::Audio => {
            let rows = layout::audio_rows(&path, task.config)?;
            (Box::new(rows.into_iter()), Holder::Folders(Rc::new([path.to_path_buf()])))
        }
        Format::Tar => {
            let (rows, members): (Vec<_>, Vec<_>) = tar::samples(&path)?.into_iter().unzip();
            (Box::new(rows.into_iter().map(Ok)), Holder::Members(members.into()))
        }
        Format::Parquet => {
            let remote = opened.remotes.get(&*path).cloned();
            let is_remote = remote.is_some();
            let place = remote.map_or_else(|| ParquetFile::File(path.clone()), ParquetFile::Remote);
            match Shard::open(task, &path, place)? {
                Some((shard, place, schema)) => {
                    opened.shards.push(shard);
                    let holder = Holder::Cells { shard: opened.shards.len() - 1 };
                    (record_parquet::rows_in(path.clone(), place, Some(schema))?, holder)
                }
                None if is_remote => {
                    let reason = "has no column with audio in it, and only such a file can be streamed; if its audio is \
                                  in a column of another name, give that under `columns` as `audio`";
                    return Err(read_error(&path, reason));
                }
                None => (record_parquet::rows(path.clone(), None)?, beside(&path)),
            }
        }
        Format::Transcripts => (transcripts::rows(&path, &mut opened.trees)?, beside(&path)),
        format => (file_rows(task, format, path.clone())?, beside(&path)),
    };
    opened.holders.insert(path.to_path_buf(), holder);
    Ok(rows)
}

/// Returns the folders that may contain a list's audio: its own, those with usual names, and those of the list's split.
fn beside(list: &Path) -> Holder {
    let folder = list.parent().unwrap_or(Path::new(""));
    let split = list.file_stem().unwrap_or_default();
    let usual = FOLDERS.into_iter().map(|name| folder.join(name));
    let of_split = std::iter::once("").chain(FOLDERS).map(|name| folder.join(name).join(split));
    let others = usual.chain(of_split).filter(|folder| folder.is_dir());
    Holder::Folders(std::iter::once(folder.to_path_buf()).chain(others).collect())
}

/// Returns the name and location of a row's audio.
fn source(task: &TaskFields, row: &Row, holder: &Holder, files: &mut Files) -> Result<(String, Source), ClipsError> {
    let list = &row.origin.path;
    let number = match row.origin.place {
        crate::records::Place::Line(number) | crate::records::Place::Row(number) => number as usize - 1,
    };
    let list_name = || list.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let gone = || ClipsError::Records(RecordsError::Missing { path: list.to_path_buf() });
    match holder {
        Holder::Cells { shard } => {
            let file = files.number(list).ok_or_else(gone)?;
            let path = parquet::cell_path(task, row);
            let name = path.map_or_else(|| format!("{} row {}", list_name(), number + 1), str::to_owned);
            Ok((name, Source::Cell { file, shard: *shard, row: number }))
        }
        Holder::Members(members) => {
            let file = files.number(list).ok_or_else(gone)?;
            let Member { name, offset, length } = members.get(number).cloned().ok_or_else(gone)?;
            Ok((format!("{}/{name}", list_name()), Source::Member { file, name, offset, length }))
        }
        Holder::Folders(folders) => {
            let path = clip::audio_path(task, row)?;
            let file = row.file.iter().filter(|_| !task.config.columns.contains_key("audio")).cloned();
            let found = file.chain(candidates(folders, &path)).find_map(|path| files.number(&path));
            let Some(file) = found else {
                let audio = folders.first().map(|folder| folder.join(&path)).unwrap_or_default();
                return Err(ClipsError::MissingAudio { origin: row.origin.clone(), audio });
            };
            if row.key("text").is_none() && !task.config.columns.contains_key("text") && list.is_dir() {
                let reason = format!(
                    "its audio file {path} has no text beside it, a .txt of the same name; write one, or take the text \
                     from the file's name, as `columns: {{text: parts.0}}` does"
                );
                return Err(ClipsError::Layout { path: list.to_path_buf(), reason });
            }
            Ok((path, Source::File { file }))
        }
    }
}

/// Returns the possible paths of an audio file, in this order. Joining an absolute path gives that path.
fn candidates<'p>(folders: &'p [PathBuf], path: &'p str) -> impl Iterator<Item = PathBuf> + 'p {
    let bare = !has_audio_extension(Path::new(path));
    let endings = std::iter::once(String::new())
        .chain(EXTENSIONS.iter().filter(move |_| bare).map(|ending| format!(".{ending}")));
    folders.iter().flat_map(move |folder| endings.clone().map(move |ending| folder.join(format!("{path}{ending}"))))
}

/// Returns the clips that are stored together.
fn blocks(clips: &[Clip], shards: &[Shard]) -> Option<Vec<Range<usize>>> {
    let place = |clip: &Clip| match clip.source {
        Source::File { .. } => (0, 0, 0),
        Source::Cell { shard, row, .. } => (1, shard, shards[shard].group(row)),
        Source::Member { file, .. } => (2, file, 0),
    };
    if clips.iter().all(|clip| matches!(clip.source, Source::File { .. })) {
        return None;
    }
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for (index, clip) in clips.iter().enumerate() {
        match blocks.last_mut() {
            Some(block)
                if place(&clips[block.start]) == place(clip)
                    && (place(clip).0 != 0 || block.len() < FILES_PER_BLOCK) =>
            {
                block.end = index + 1;
            }
            _ => blocks.push(index..index + 1),
        }
    }
    Some(blocks)
}
