use std::path::PathBuf;

/// Error of reading or writing an audio file; times are in seconds from the file's beginning.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// The file does not exist.
    #[error("{path}: there is no such audio file; check the path, and the folder that its list is in")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The content is not in a known audio format.
    #[error("{path}: is not audio in a known format ({reason}); convert it to WAV, FLAC, MP3, M4A or Ogg Vorbis")]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Message of the decoder.
        reason: String,
    },
    /// A stream does not begin with a known format, and no sample rate was given for raw samples.
    #[error(
        "{path}: does not begin as audio in a known format does; send WAV, FLAC, MP3, Ogg, M4A or another format that \
         `transcribe --help` lists, or, if it is samples alone (16 bits, little-endian, one channel), say how many a second has, \
         as with `--rate 16000`"
    )]
    NoHeader {
        /// The stream.
        path: PathBuf,
    },
    /// A sample rate was given for a stream that has a header with its own.
    #[error(
        "{path}: is {format}, which says its rate itself; leave out `--rate`, which is for samples without a header"
    )]
    OwnRate {
        /// The stream.
        path: PathBuf,
        /// Format of the stream.
        format: &'static str,
    },
    /// A known format, but of a variant that cannot be decoded.
    #[error("{path}: holds audio that cannot be decoded ({reason}); convert it to 16-bit WAV or FLAC")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Unsupported property.
        reason: String,
    },
    /// There are no samples.
    #[error("{path}: holds no audio (zero samples); remove it from the data or record it again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A cell of a table that should contain audio is null.
    #[error("{path}: has no audio (its cell is null); remove the row from the data")]
    Null {
        /// File and row.
        path: PathBuf,
    },
    /// The file ends before the length in its header.
    #[error("{path}: is cut short, it ends at {at:.2} s of the {promised:.2} s its header promises; copy it again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// End of the file.
        at: f64,
        /// End according to the header.
        promised: f64,
    },
    /// The file cannot be decoded from some point on.
    #[error("{path}: is damaged at {at:.2} s ({reason}); copy or convert it again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Position up to which it could be decoded.
        at: f64,
        /// Message of the decoder.
        reason: String,
    },
    /// The file contains far more audio than its header declares.
    #[error(
        "{path}: holds far more than the {promised:.2} s that its header promises, so the file is not what it says (or two files were put together); write it again, with ffmpeg for example"
    )]
    MoreThanPromised {
        /// The file.
        path: PathBuf,
        /// Length according to the header.
        promised: f64,
    },
    /// The audio is longer than the limit.
    #[error("{path}: has more than the {hours} h of audio that are read at once; cut it, or give a start and an end")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Maximum length that is read at once.
        hours: f64,
    },
    /// A sample is NaN or infinite.
    #[error("{path}: the sample at {at:.3} s is not a finite number; write the file again without it")]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Position of the first such sample.
        at: f64,
    },
    /// The segment is invalid for any file.
    #[error("{path}: the segment from {start} s to {} is empty or negative; make 0 <= start < end", Bound(*end))]
    BadSegment {
        /// The file.
        path: PathBuf,
        /// Start of the segment.
        start: f64,
        /// End of the segment, if not that of the file.
        end: Option<f64>,
    },
    /// The segment goes beyond the file.
    #[error("{path}: the segment from {start} s to {} lies outside the file, which lasts {duration:.2} s", Bound(*end))]
    OutsideFile {
        /// The file.
        path: PathBuf,
        /// Start of the segment.
        start: f64,
        /// End of the segment, if not that of the file.
        end: Option<f64>,
        /// End of the file.
        duration: f64,
    },
    /// The file could not be written.
    #[error("{path}: cannot be written: {reason}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
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
