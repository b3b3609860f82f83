//! Why samples of speech cannot be used.

use crate::{ConfigError, SourceError, TranscribeError};
use undertone_cw::CwError;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::augment::AugmentError;
use undertone_data::cache::CacheError;
use undertone_data::clips::ClipsError;
use undertone_data::cut::SegmentError;
use undertone_data::features::FeatureError;
use undertone_data::loader::SampleError;
use undertone_model::whisper::TokenizerError;
use undertone_ops::DeviceError;

/// Why a sample or a dataset is unusable.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The recordings cannot be used.
    #[error(transparent)]
    Clips(#[from] ClipsError),
    /// The hub did not give them.
    #[error(transparent)]
    Source(#[from] Box<SourceError>),
    /// The synthesiser's configuration makes no sense.
    #[error(transparent)]
    Cw(#[from] CwError),
    /// A registered source refuses its options, or is not there.
    #[error(transparent)]
    Registered(#[from] undertone_data::source::SourceError),
    /// A registered source has no samples.
    #[error("source `{0}` has no samples: an epoch needs at least 1")]
    Empty(String),
    /// A stage of the curriculum makes no sense.
    #[error(transparent)]
    Stage(#[from] ConfigError),
    /// Recordings for augmentation cannot be used.
    #[error("`data.augment`: {0}")]
    Augment(#[from] AugmentError),
    /// The cache cannot be used.
    #[error("`data.cache`: {0}")]
    Cache(#[from] CacheError),
    /// The model's mel bins are none that Whisper has.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// A text does not fit the vocabulary or the decoder.
    #[error("sample `{name}`: {source}")]
    Text {
        /// The sample.
        name: String,
        /// Why.
        source: TokenizerError,
    },
    /// The device on which the model would hear cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Several texts do not fit.
    #[error(
        "texts that the model cannot write: {listed}; correct or remove them, or leave them out with data.on_bad_sample=skip"
    )]
    Texts {
        /// Which, and why.
        listed: Listed,
    },
    /// Several long recordings cannot be read.
    #[error("more recordings than `data.max_bad_share` allows cannot be used: {listed}; repair or remove them")]
    Unreadable {
        /// Which, and why.
        listed: Listed,
    },
    /// All was left out.
    #[error(
        "nothing is left of {of} recordings, for the reasons above: correct them, or the texts that they come with"
    )]
    Nothing {
        /// How many there were.
        of: usize,
    },
    /// No recording says anything.
    #[error(
        "none of {of} recordings has a text, so that silence is all there is to learn: give their texts as `text`, or name the column that has them under `columns`"
    )]
    NoText {
        /// How many there are.
        of: usize,
    },
    /// The times of a recording's text cannot be used.
    #[error("recording `{name}`: {source}")]
    Segments {
        /// The recording.
        name: String,
        /// Why.
        source: SegmentError,
    },
    /// Audio longer than the model's window whose text has no times.
    #[error(
        "recordings longer than the {window:.2} s that the model hears at once, without times for their text: {listed}; cut them, give segments with start and end, or let the model find out what is said where with data.long_audio=align"
    )]
    TooLong {
        /// Which.
        listed: Listed,
        /// The model's window.
        window: f64,
    },
    /// The model cannot be asked what it hears.
    #[error(transparent)]
    Transcribe(#[from] Box<TranscribeError>),
    /// A long recording cannot be read.
    #[error("recording `{name}` cannot be cut: {source}")]
    Align {
        /// The recording.
        name: String,
        /// Why.
        source: SampleError,
    },
    /// The user's wish, while the model was asked what it hears.
    #[error(
        "interrupted: what is said where is on record for {aligned} of {of} long recordings, and the same command goes on from there"
    )]
    Interrupted {
        /// The recordings that need not be listened to again.
        aligned: usize,
        /// All that are longer than the window.
        of: usize,
    },
    /// Something was asked for that recordings or model cannot give.
    #[error("`data.{key}` cannot be: {reason}; leave it out")]
    Option {
        /// The key.
        key: &'static str,
        /// Why not.
        reason: String,
    },
}

/// How many of how many, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub(super) count: usize,
    of: usize,
    first: Vec<String>,
}

impl Listed {
    /// So many as there are, `of` all.
    pub(super) fn new(items: impl IntoIterator<Item = String>, of: usize) -> Self {
        let mut items = items.into_iter();
        let first: Vec<String> = items.by_ref().take(3).collect();
        Self { count: first.len() + items.count(), of, first }
    }
}

impl std::fmt::Display for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}: {}", self.count, self.of, self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A sample that no model with this window can hear.
pub(super) fn too_long(name: &str, samples: usize, window: usize) -> SpeechError {
    let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
    let listed = Listed::new([format!("`{name}` ({:.2} s)", seconds(samples))], 1);
    SpeechError::TooLong { listed, window: seconds(window) }
}
