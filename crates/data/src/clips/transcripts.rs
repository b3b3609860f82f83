//! Lists of transcripts: a line has the name of a recording and its text, as in LibriSpeech and Kaldi.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::audio::{audio_files, has_audio_extension};
use crate::records::lines::{Rows, is_blank, lines, read_error};
use crate::records::row::{Content, Row};
use crate::records::{Origin, RecordsError};

/// Files of a Kaldi data directory beside its `text`.
pub(super) const RECORDINGS: &str = "wav.scp";
const SEGMENTS: &str = "segments";
const SPEAKERS: &str = "utt2spk";

/// Whether the name of a file is that of such a list: `19-198.trans.txt` of LibriSpeech, `transcripts.txt` of
/// Multilingual LibriSpeech, or Kaldi's `text`, which has `wav.scp` beside it.
pub(super) fn is_list(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.ends_with(".trans.txt")
        || name == "transcripts.txt"
        || name == "text" && path.with_file_name(RECORDINGS).is_file()
}

/// Returns the rows of a list: `audio`, `name` and its `parts` between `_`, `-` and spaces, `text`, and of a Kaldi data
/// directory `start`, `end` and `speaker`. The audio is where `wav.scp` says, or below the list's folder.
pub(super) fn rows(list: &Arc<Path>, trees: &mut Trees) -> Result<Rows, RecordsError> {
    let places = Places::of(list, trees)?;
    Ok(Box::new(lines(list)?.filter(|line| !is_blank(line)).map(move |line| {
        let (number, line) = line?;
        let (name, text) = entry(&line);
        let mut fields = named(name);
        fields.insert("text".into(), text.into());
        let origin = Origin::line(&places.list, number);
        let file = places.add(name, &mut fields, &origin)?;
        Ok(Row { file, ..Row::new(origin, Content::Fields(fields)) })
    })))
}

/// Returns the columns that come from the name of a recording: `name`, and its `parts` between `_`, `-` and spaces.
pub(super) fn named(name: &str) -> Map<String, Value> {
    let parts: Vec<_> = name.split(['_', '-', ' ']).filter(|part| !part.is_empty()).collect();
    [("parts".to_owned(), Value::from(parts)), ("name".to_owned(), name.into())].into_iter().collect()
}

/// Audio below folders, each of which is searched once.
#[derive(Default)]
pub(super) struct Trees(HashMap<PathBuf, Rc<Tree>>);

/// Audio files below a folder by their names without extension; none where several have the name and none of them is in the
/// folder itself.
type Tree = HashMap<String, Option<PathBuf>>;

impl Trees {
    fn of(&mut self, folder: &Path) -> Result<Rc<Tree>, RecordsError> {
        if let Some(tree) = self.0.get(folder) {
            return Ok(tree.clone());
        }
        let mut tree = Tree::new();
        for file in audio_files(folder).map_err(|error| read_error(folder, error))? {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_own = |file: &Option<PathBuf>| file.as_deref().and_then(Path::parent) == Some(folder);
            match tree.get_mut(&stem) {
                Some(found) if is_own(found) => {}
                Some(found) => *found = Some(file).filter(|file| file.parent() == Some(folder)),
                None => drop(tree.insert(stem, Some(file))),
            }
        }
        let tree = Rc::new(tree);
        self.0.insert(folder.into(), tree.clone());
        Ok(tree)
    }
}

/// Where the audio of a list is.
struct Places {
    list: Arc<Path>,
    audio: Audio,
}

enum Audio {
    /// Below the list's folder.
    Below(Rc<Tree>),
    Kaldi {
        recordings: HashMap<String, Entry>,
        segments: HashMap<String, Entry>,
        speakers: HashMap<String, Entry>,
    },
}

/// What a line of a file of Kaldi says of a name.
struct Entry {
    origin: Origin,
    value: String,
}

impl Places {
    fn of(list: &Arc<Path>, trees: &mut Trees) -> Result<Self, RecordsError> {
        let recordings = list.with_file_name(RECORDINGS);
        let audio = if recordings.is_file() {
            let optional = |name| {
                let path = list.with_file_name(name);
                if path.is_file() { entries(path) } else { Ok(HashMap::new()) }
            };
            Audio::Kaldi {
                recordings: entries(recordings)?,
                segments: optional(SEGMENTS)?,
                speakers: optional(SPEAKERS)?,
            }
        } else {
            let folder = list.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Audio::Below(trees.of(folder)?)
        };
        Ok(Self { list: list.clone(), audio })
    }

    /// Adds the columns of a recording's place; returns its file, if it is known.
    fn add(
        &self,
        name: &str,
        fields: &mut Map<String, Value>,
        origin: &Origin,
    ) -> Result<Option<PathBuf>, RecordsError> {
        let (recordings, segments, speakers) = match &self.audio {
            Audio::Below(files) => {
                fields.insert("audio".into(), name.into());
                let path = Path::new(name);
                if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty()) {
                    return Ok(None);
                }
                let stem = path.file_stem().filter(|_| has_audio_extension(path)).and_then(|stem| stem.to_str());
                return match files.get(stem.unwrap_or(name)) {
                    Some(None) => {
                        let reason = format!("has the name {name}, which several files have; give their paths");
                        Err(RecordsError::Malformed { origin: origin.clone(), reason })
                    }
                    found => Ok(found.cloned().flatten()),
                };
            }
            Audio::Kaldi { recordings, segments, speakers } => (recordings, segments, speakers),
        };
        if let Some(speaker) = speakers.get(name) {
            fields.insert("speaker".into(), speaker.value.as_str().into());
        }
        let recording = match segments.get(name) {
            Some(segment) => {
                let (recording, start, end) = segment.times()?;
                fields.insert("start".into(), start.into());
                fields.extend(end.map(|end| ("end".to_owned(), end.into())));
                recording
            }
            None => name,
        };
        let path = recordings.get(recording).map(Entry::path).transpose()?;
        fields.insert("audio".into(), path.unwrap_or(recording).into());
        // Kaldi's paths start at the folder that its recipe was run in, unless they were written for this one.
        let beside = path.map(|path| self.list.with_file_name(path)).filter(|path| path.is_file());
        Ok(beside.or(path.map(PathBuf::from)))
    }
}

impl Entry {
    /// Returns the recording of a segment, its start, and its end unless that is the recording's.
    fn times(&self) -> Result<(&str, f64, Option<f64>), RecordsError> {
        let mut parts = self.value.split_whitespace();
        let recording = parts.next().unwrap_or_default();
        match [parts.next(), parts.next()].map(|time| time?.parse::<f64>().ok()) {
            [Some(start), Some(end)] => Ok((recording, start, (end >= 0.0).then_some(end))),
            _ => Err(self.malformed("is not a segment: a line is `NAME RECORDING START END`, in seconds")),
        }
    }

    /// Returns the path of a recording.
    fn path(&self) -> Result<&str, RecordsError> {
        if self.value.ends_with('|') {
            return Err(self.malformed(
                "is a command, and Undertone runs none: write the audio to files (`wav-copy`, `sox`), and name those",
            ));
        }
        Ok(&self.value)
    }

    fn malformed(&self, reason: &str) -> RecordsError {
        RecordsError::Malformed { origin: self.origin.clone(), reason: reason.into() }
    }
}

/// Reads a file of Kaldi: a name on each line, and what belongs to it.
fn entries(path: PathBuf) -> Result<HashMap<String, Entry>, RecordsError> {
    let path: Arc<Path> = path.into();
    lines(&path)?
        .filter(|line| !is_blank(line))
        .map(|line| {
            let (number, line) = line?;
            let (name, value) = entry(&line);
            Ok((name.to_owned(), Entry { origin: Origin::line(&path, number), value: value.to_owned() }))
        })
        .collect()
}

/// Divides a line at the first white space after its name.
fn entry(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (name, value.trim_start())
}
