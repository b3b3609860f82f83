use std::path::PathBuf;

/// Why an audio file could not be read or written; times are in seconds from the file's beginning.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// No such file.
    #[error("{path}: there is no such audio file; check the path, and the folder that its list is in")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but the system does not let it be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The content is no audio format known here.
    #[error("{path}: is not audio in a known format ({reason}); convert it to WAV, FLAC, MP3 or Ogg Vorbis")]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// A stream that begins as no format that is known, without a word on what its samples are.
    #[error(
        "{path}: does not begin as audio in a known format does; send WAV, FLAC, MP3 or Ogg Vorbis, or, if it is samples alone \
         (16 bits, little-endian, one channel), say how many a second has, as with `--rate 16000`"
    )]
    NoHeader {
        /// The stream.
        path: PathBuf,
    },
    /// A stream that says how many samples a second has, and was said to have so many.
    #[error(
        "{path}: is {format}, which says its rate itself; leave out `--rate`, which is for samples without a header"
    )]
    OwnRate {
        /// The stream.
        path: PathBuf,
        /// What it is.
        format: &'static str,
    },
    /// A known format, but of a kind that cannot be decoded.
    #[error("{path}: holds audio that cannot be decoded ({reason}); convert it to 16-bit WAV or FLAC")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What exactly is unsupported.
        reason: String,
    },
    /// No samples at all.
    #[error("{path}: holds no audio (zero samples); remove it from the data or record it again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A cell of a table that should hold audio, and is null.
    #[error("{path}: has no audio (its cell is null); remove the row from the data")]
    Null {
        /// The file and its row.
        path: PathBuf,
    },
    /// The file ends before its header says.
    #[error("{path}: is cut short, it ends at {at:.2} s of the {promised:.2} s its header promises; copy it again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        at: f64,
        /// Where its header says that it ends.
        promised: f64,
    },
    /// The file cannot be decoded from some point on.
    #[error("{path}: is damaged at {at:.2} s ({reason}); copy or convert it again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How far it could be decoded.
        at: f64,
        /// What the decoder said.
        reason: String,
    },
    /// The file holds far more than its header says.
    #[error(
        "{path}: holds far more than the {promised:.2} s that its header promises, so the file is not what it says; write it again"
    )]
    MoreThanPromised {
        /// The file.
        path: PathBuf,
        /// How long its header says that it is.
        promised: f64,
    },
    /// More audio than is read at once.
    #[error("{path}: has more than the {hours} h of audio that are read at once; cut it, or give a start and an end")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most that is read at once.
        hours: f64,
    },
    /// A sample is NaN or infinite.
    #[error("{path}: the sample at {at:.3} s is not a finite number; write the file again without it")]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Where the first such sample is.
        at: f64,
    },
    /// The segment makes no sense whatever the file.
    #[error("{path}: the segment from {start} s to {} is empty or negative; make 0 <= start < end", Bound(*end))]
    BadSegment {
        /// The file.
        path: PathBuf,
        /// Where the segment starts.
        start: f64,
        /// Where the segment ends, if not with the file.
        end: Option<f64>,
    },
    /// The segment goes beyond the file.
    #[error("{path}: the segment from {start} s to {} lies outside the file, which lasts {duration:.2} s", Bound(*end))]
    OutsideFile {
        /// The file.
        path: PathBuf,
        /// Where the segment starts.
        start: f64,
        /// Where the segment ends, if not with the file.
        end: Option<f64>,
        /// Where the file ends.
        duration: f64,
    },
    /// The file could not be written.
    #[error("{path}: cannot be written: {reason}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// The end of a segment, which may be the file's own.
struct Bound(Option<f64>);

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(end) => write!(f, "{end} s"),
            None => f.write_str("the end of the file"),
        }
    }
}
