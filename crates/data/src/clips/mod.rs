//! Clips: pieces of audio with their transcripts, in any of the usual layouts of data sets.
//!
//! The same [`RecordsConfig`](crate::records::RecordsConfig) that reads the records of text tasks reads speech.
//! [`Clips::open`] detects the layout:
//!
//! | `path` | content |
//! |---|---|
//! | `.jsonl`, `.json`, `.csv`, `.tsv` | a list of audio files with their texts, one per row |
//! | `.csv` with pipes | `FILE\|TRANSCRIPT`, as in LJSpeech; a third field is the text in another form (`columns: {text: 2}`) |
//! | `.parquet` | rows that contain the audio, as on Hugging Face (`struct<bytes, path>`, or bytes), or with paths |
//! | `.tar` | a shard of WebDataset: members `KEY.flac` (`.wav`, `.mp3`, `.ogg`) and `KEY.txt` or `KEY.json` |
//! | a folder with `metadata.csv` or `.jsonl` | LJSpeech, AudioFolder |
//! | a folder of other lists, `.parquet` or `.tar` | all of them, as if they were one; not `train` and `test` at once |
//! | a folder of audio files | the text of `a.wav` is in `a.txt` or `a.normalized.txt` (`format: audio` if there are lists, too) |
//! | a folder without audio or lists of its own | the lists of transcripts below it, as in LibriSpeech, or its audio files with texts, as in LibriTTS |
//! | `19-198.trans.txt`, `transcripts.txt` | a list of transcripts: `NAME TEXT` on a line, the audio below its folder (LibriSpeech, MLS) |
//! | a folder with `wav.scp` and `text`, or that `text` | a data directory of Kaldi or ESPnet, with `segments` and `utt2spk` if they are there |
//!
//! Several paths are read one after the other. A row has these fields;
//! [`columns`](crate::records::RecordsConfig::columns) maps them to columns with other names:
//!
//! | field | meaning |
//! |---|---|
//! | `audio` (or `audio_filepath`, `file_name`, `file`, `path`) | the audio: a path, or the audio itself |
//! | `text` (or `sentence`, `transcription`, `transcript`) | the transcript; may be empty |
//! | `language` | language of the clip, such as `en` |
//! | `task` | task that the clip belongs to |
//! | `start`, `end` | the part of the file to use, in seconds; or NeMo's `offset` and `duration` |
//! | `segments` | a list of `{start, end, text}` as Whisper writes it, or equally long lists of each, in seconds of the file |
//!
//! Names may be in upper case, and an empty cell counts as absent. Other columns are ignored. A name that is almost one
//! of these, such as `strat` or `lang`, is refused unless `columns` is given, because a typing error would silently
//! train on the wrong audio. A `duration` without `offset` is the length of the whole file, as in NeMo and many tables,
//! and has no effect.
//!
//! A path is looked up in the folder of its list, and then in the folders `clips` (Common Voice), `wavs` (LJSpeech) and
//! `audio` there, also in their subfolder of the list's name (`audio/train` for `train.tsv`, FLEURS); a path without an
//! extension also with `.wav`, `.flac`, `.mp3` or `.ogg`. In a folder of audio files and in lists of transcripts each row
//! has the columns `name` and `parts`: for `3_anna_07.wav` they are `3_anna_07` and `3`, `anna`, `07`. So `columns:
//! {text: parts.0}` takes a text from the name, and `part: {to: 0.8, by: parts.1}` splits by speaker.
//!
//! Audio is only read when it is asked for.
//!
//! ```
//! use undertone_data::audio;
//! use undertone_data::clips::Clips;
//! use undertone_data::records::RecordsConfig;
//!
//! let dir = tempfile::tempdir()?;
//! audio::write_wav(&dir.path().join("a.wav"), &[0.1; 16_000])?;
//! std::fs::write(dir.path().join("metadata.csv"), "file_name,transcription\na.wav,hello\n")?;
//! let clips = Clips::open(&RecordsConfig { path: dir.path().to_path_buf().into(), ..Default::default() })?;
//! assert_eq!((clips.len(), clips.clip(0).text.as_str(), clips.seconds(0)), (1, "hello", Some(1.0)));
//! assert_eq!(clips.load(0)?.len(), 16_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_shuffle;
mod clip;
mod error;
mod layout;
mod open;
mod parquet;
mod remote;
mod source;
mod tar;
#[cfg(test)]
mod tests;
mod transcripts;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use block_shuffle::BlockShuffle;
pub use clip::{Clip, is_audio_column};
pub use error::ClipsError;
pub use remote::Remote;

use crate::audio::{AudioError, Decoded, OVERSHOOT, ROUNDING, Stored};
use crate::cut::TimedText;
use clip::BEYOND;
use parquet::{Pages, Shard};
use source::{AudioFile, HeaderLength, Length, Source};

/// Default of [`Clips::with_memory`]: size of the audio from Parquet files that is kept in memory, in bytes.
pub const DEFAULT_MEMORY: usize = 256 << 20;

/// Clips of speech in the order of their files; there is at least one.
///
/// Holds the texts and the location of the audio. Any number of threads may load clips at the same time.
pub struct Clips {
    clips: Vec<Clip>,
    files: Vec<AudioFile>,
    shards: Vec<Shard>,
    blocks: Option<Vec<Range<usize>>>,
    pages: Pages,
    /// Length of each clip's recording, except for clips in files of their own, which store it themselves.
    lengths: Vec<Length>,
}

/// A clip that cannot be loaded.
#[derive(Debug)]
pub struct ClipProblem {
    /// Index of the clip.
    pub index: usize,
    /// Name of the clip.
    pub name: String,
    /// Error of the clip.
    pub error: AudioError,
}

impl Clips {
    /// Sets the maximum size of audio from Parquet files in memory, in bytes; one page of such a file is always kept.
    pub fn with_memory(self, bytes: usize) -> Self {
        Self { pages: Pages::new(bytes), ..self }
    }

    /// Returns the number of clips.
    pub fn len(&self) -> usize {
        self.clips.len()
    }

    /// Returns false: [`Clips::open`] refuses data without clips.
    pub fn is_empty(&self) -> bool {
        self.clips.is_empty()
    }

    /// Returns a clip without its audio. Panics if the index is out of range, as do the other methods that take an
    /// index.
    pub fn clip(&self, index: usize) -> &Clip {
        &self.clips[index]
    }

    /// Returns the local file that contains a clip and, but for its other parts, nothing else; `None` for clips in Parquet and
    /// tar files and for remote ones.
    pub fn file(&self, index: usize) -> Option<&Path> {
        let Source::File { file } = &self.clips[index].source else { return None };
        let file = &self.files[*file];
        (!file.is_remote).then_some(&file.path)
    }

    /// Returns a clip's length in seconds: from its `start` to its `end`, or to the end according to the file's header.
    /// None if the header does not give it, as in an MP3 without an encoder's tag, or cannot be read. Nothing is
    /// decoded, but the header of audio in a Parquet file is read together with the audio around it, so read those in
    /// order.
    pub fn seconds(&self, index: usize) -> Option<f64> {
        let clip = &self.clips[index];
        let end = clip.end.or_else(|| match self.header_length(index) {
            HeaderLength::Seconds(seconds) => Some(seconds),
            HeaderLength::Nothing | HeaderLength::Unreadable => None,
        });
        self.length_to(index, end)
    }

    /// Returns the length as [`Clips::seconds`] does. If the header does not give it, the whole recording is read once
    /// and its packets are counted, not decoded. None if it cannot be read.
    pub fn counted_seconds(&self, index: usize) -> Option<f64> {
        let clip = &self.clips[index];
        if clip.end.is_some() || self.header_length(index) != HeaderLength::Nothing {
            return self.seconds(index);
        }
        let count = || self.stored(index).ok()?.counted_seconds().ok();
        self.length_to(index, *self.length(index).counted.get_or_init(count))
    }

    /// Returns whether only [`Clips::counted_seconds`] gives a clip's length: its header can be read, but has no
    /// length.
    pub fn is_untold(&self, index: usize) -> bool {
        self.clips[index].end.is_none() && self.header_length(index) == HeaderLength::Nothing
    }

    /// Returns the seconds from a clip's start to its end, if the end is after the start.
    fn length_to(&self, index: usize, end: Option<f64>) -> Option<f64> {
        let start = self.clips[index].start.unwrap_or(0.0);
        end.map(|end| end - start).filter(|seconds| *seconds > 0.0)
    }

    /// Returns the length in the header of a clip's recording, which is read once.
    fn header_length(&self, index: usize) -> HeaderLength {
        let read = || match self.stored(index).and_then(|stored| stored.seconds()) {
            Ok(Some(seconds)) => HeaderLength::Seconds(seconds),
            Ok(None) => HeaderLength::Nothing,
            Err(_) => HeaderLength::Unreadable,
        };
        *self.length(index).header_length.get_or_init(read)
    }

    /// Returns the known length of a clip's recording.
    fn length(&self, index: usize) -> &Length {
        match &self.clips[index].source {
            Source::File { file } => &self.files[*file].length,
            Source::Cell { .. } | Source::Member { .. } => &self.lengths[index],
        }
    }

    /// Returns whether [`Clips::seconds`] only reads a header. It does not if the audio around the header is read as
    /// well.
    pub fn header_is_near(&self, index: usize) -> bool {
        let Clip { end, source, .. } = &self.clips[index];
        end.is_some() || !matches!(source, Source::Cell { .. })
    }

    /// Returns whether a clip follows the previous one: both are in one file, with less than two seconds between them.
    pub fn continues(&self, index: usize) -> bool {
        const PAUSE: f64 = 2.0;
        let clip = &self.clips[index];
        let (Some(before), Some(start)) = (index.checked_sub(1).map(|before| &self.clips[before]), clip.start) else {
            return false;
        };
        let one_file = matches!((&before.source, &clip.source),
            (Source::File { file }, Source::File { file: same }) if file == same);
        one_file
            && before.channel == clip.channel
            && before.end.is_some_and(|end| (end - ROUNDING..=end + PAUSE).contains(&start))
    }

    /// Returns a clip's audio: 16 kHz mono, from its `start` to its `end`.
    ///
    /// # Errors
    /// As [`audio::load_segment`](crate::audio::load_segment), and for a cell that is null or a Parquet file that is
    /// damaged.
    pub fn load(&self, index: usize) -> Result<Vec<f32>, AudioError> {
        let Clip { start, end, .. } = &self.clips[index];
        self.load_between(index, *start, *end)
    }

    /// Returns the audio as [`Clips::load`] does, with the range of samples that are floats.
    ///
    /// # Errors
    /// As [`Clips::load`].
    pub fn decode(&self, index: usize) -> Result<Decoded, AudioError> {
        let Clip { start, end, .. } = &self.clips[index];
        self.stored(index)?.decode(*start, *end)
    }

    /// Returns another part of the file that contains a clip, in seconds of the file: for example one of its segments.
    ///
    /// # Errors
    /// As [`Clips::load`].
    pub fn load_between(&self, index: usize, start: Option<f64>, end: Option<f64>) -> Result<Vec<f32>, AudioError> {
        self.stored(index)?.load(start, end)
    }

    /// Returns the cache key of a clip's audio: the file's path without links, size and modification time, the location
    /// within the file if it contains many clips, `start` and `end`, and the channel. For a [`Remote`] it contains the name and
    /// size.
    ///
    /// A hash of the content would require reading all data before training starts. A changed file has another time or
    /// size, which `make` and `rsync` rely on, too; a file that was only moved is computed again.
    pub fn key(&self, index: usize) -> String {
        let Clip { start, end, channel, .. } = &self.clips[index];
        let bound = |bound: &Option<f64>| bound.map(|at| at.to_string()).unwrap_or_default();
        let channel = channel.map(|channel| format!("|channel {channel}")).unwrap_or_default();
        format!("{}|{}|{}{channel}", self.recording(index), bound(start), bound(end))
    }

    /// Returns the key of the recording that a clip is a part of: [`Clips::key`] without `start`, `end` and channel.
    pub fn recording(&self, index: usize) -> String {
        let source = &self.clips[index].source;
        let AudioFile { path, size, modified, is_remote, .. } = &self.files[source.file()];
        let absolute = path.canonicalize().or_else(|_| std::path::absolute(path)).ok().filter(|_| !is_remote);
        let path = absolute.as_ref().unwrap_or(path);
        let place = match source {
            Source::File { .. } => String::new(),
            Source::Cell { row, .. } => format!("row {row}"),
            Source::Member { offset, length, .. } => format!("bytes {offset}+{length}"),
        };
        format!("{}|{size}|{modified}|{place}", path.display())
    }

    /// Returns the clips that are stored together: the row groups of Parquet files and whole tar files, in order, with
    /// all other clips in between. None if every clip is a file of its own, so that any order is equally fast. For
    /// [`BlockShuffle`].
    pub fn blocks(&self) -> Option<&[Range<usize>]> {
        self.blocks.as_deref()
    }

    /// Reads the header of every audio file and returns errors that would occur later: audio that is missing, empty or
    /// not audio, clips that end more than half a second after the end of the file, segments that end more than 30 s
    /// after it, and clips or segments that begin there. A file whose header has no length is read completely. Of the audio in Parquet files only clips with times
    /// are checked, because their pages have to be read as a whole.
    pub fn problems(&self) -> Vec<ClipProblem> {
        let problem = |index: usize| {
            let error = self.check(index).err()?;
            Some(ClipProblem { index, name: self.clips[index].name.clone(), error })
        };
        (0..self.len()).filter_map(problem).collect()
    }

    fn check(&self, index: usize) -> Result<(), AudioError> {
        let clip = &self.clips[index];
        let last = clip.segments.last();
        if matches!(clip.source, Source::Cell { .. }) && clip.start.is_none() && clip.end.is_none() && last.is_none() {
            return Ok(());
        }
        let stored = self.stored(index)?;
        let duration = match self.header_length(index) {
            HeaderLength::Seconds(seconds) => Some(seconds),
            HeaderLength::Unreadable => stored.seconds()?,
            HeaderLength::Nothing => {
                let counted = &self.length(index).counted;
                match counted.get() {
                    Some(Some(seconds)) => Some(*seconds),
                    _ => {
                        let seconds = stored.counted_seconds()?;
                        counted.get_or_init(|| Some(seconds));
                        Some(seconds)
                    }
                }
            }
        };
        let start = clip.start.unwrap_or(0.0);
        let path = stored.name().to_path_buf();
        match duration {
            Some(0.0) => Err(AudioError::Empty { path }),
            Some(duration) if start >= duration || clip.end.is_some_and(|end| end > duration + OVERSHOOT) => {
                Err(AudioError::OutsideFile { path, start, end: clip.end, duration })
            }
            Some(duration) => match last.filter(|last| last.start >= duration || last.end > duration + BEYOND) {
                Some(&TimedText { start, end, .. }) => {
                    Err(AudioError::OutsideFile { path, start, end: Some(end), duration })
                }
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Returns the location of a clip's audio.
    fn stored(&self, index: usize) -> Result<Stored, AudioError> {
        let clip = &self.clips[index];
        let path = &self.files[clip.source.file()].path;
        let stored = match &clip.source {
            Source::File { .. } => Ok(Stored::file(path)),
            Source::Member { name, offset, length, .. } => Ok(Stored::part(path.join(&**name), path, *offset, *length)),
            Source::Cell { shard, row, .. } => {
                let name = PathBuf::from(clip.origin.to_string());
                match self.pages.cell(&self.shards[*shard], *shard, *row) {
                    Ok(Some(bytes)) => Ok(Stored::memory(name, Arc::new(bytes))),
                    Ok(None) => Err(AudioError::Null { path: name }),
                    Err(error) => Err(AudioError::Read { path: name, source: std::io::Error::other(error) }),
                }
            }
        };
        stored.map(|stored| stored.with_channel(clip.channel))
    }
}

impl std::fmt::Debug for Clips {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clips")
            .field("clips", &self.clips.len())
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}
