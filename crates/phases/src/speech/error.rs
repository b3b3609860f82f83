//! Errors of speech samples.

use crate::{ConfigError, SourceError};
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::augment::AugmentError;
use undertone_data::cache::CacheError;
use undertone_data::clips::ClipsError;
use undertone_data::cut::SegmentError;
use undertone_data::features::FeatureError;
use undertone_data::loader::SampleError;
use undertone_model::whisper::TokenizerError;
use undertone_ops::DeviceError;
use undertone_transcribe::TranscribeError;

/// Reason why a sample or a dataset is unusable.
#[derive(Debug, thiserror::Error)]
pub enum SpeechError {
    /// The recordings cannot be used.
    #[error(transparent)]
    Clips(#[from] ClipsError),
    /// The hub did not provide the recordings.
    #[error(transparent)]
    Source(#[from] Box<SourceError>),
    /// A synthesiser refuses its options.
    #[error(transparent)]
    Registered(#[from] undertone_data::source::SourceError),
    /// A synthesiser has no samples.
    #[error("source `{0}` has no samples: an epoch needs at least 1")]
    Empty(String),
    /// A synthesiser does not exist, or a stage of its curriculum is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A stage of the curriculum has another number of samples.
    #[error(
        "`stages[{stage}]` makes {samples} samples per epoch, and after the stages there are {of}: both must be equal"
    )]
    Stage {
        /// Index of the stage, from 0.
        stage: usize,
        /// Its number of samples.
        samples: usize,
        /// Number of samples after all stages.
        of: usize,
    },
    /// Recordings for augmentation cannot be used.
    #[error("`data.augment`: {0}")]
    Augment(#[from] AugmentError),
    /// The cache cannot be used.
    #[error("`data.cache`: {0}")]
    Cache(#[from] CacheError),
    /// The cache is for the states of an encoder that does not change.
    #[error(
        "`data.cache.what: encoder` keeps what the encoder makes of recordings, and `{0}` is trained: train the decoder alone \
         (`model.trainable: decoder`, or an adapter whose targets are there alone, such as `encoder_attn.q_proj`), or keep `audio` or \
         `features`"
    )]
    TrainedEncoder(String),
    /// The model has a number of mel bins that Whisper does not have.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// A text does not fit the vocabulary or the decoder.
    #[error("sample `{name}`: {source}")]
    Text {
        /// Name of the sample.
        name: String,
        /// Reason.
        source: TokenizerError,
    },
    /// The device of the transcribing model is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Several texts do not fit.
    #[error(
        "texts that the model cannot write: {0}; correct or remove them, or leave them out with data.on_bad_sample=skip"
    )]
    Texts(Listed),
    /// Several long recordings cannot be read.
    #[error("more recordings than `data.max_bad_share` allows cannot be used: {0}; repair or remove them")]
    Unreadable(Listed),
    /// All recordings were left out.
    #[error("nothing is left of {0} recordings, for the reasons above: correct them, or the texts that they come with")]
    Nothing(usize),
    /// No recording has a text.
    #[error(
        "none of {0} recordings has a text, so that the model would only learn to write nothing: give their texts as `text`, or name the column that has them under `columns`"
    )]
    NoText(usize),
    /// The segment times of a recording cannot be used.
    #[error("recording `{name}`: {source}")]
    Segments {
        /// Name of the recording.
        name: String,
        /// Reason.
        source: SegmentError,
    },
    /// Audio is longer than the model's window and its text has no times.
    #[error(
        "recordings longer than the {window:.2} s that the model reads at once, without times for their text: {listed}; cut them, give segments with start and end, or let the model find out what is said where with data.long_audio=align"
    )]
    TooLong {
        /// Recordings.
        listed: Listed,
        /// Window of the model, in seconds.
        window: f64,
    },
    /// The model cannot be used for transcription.
    #[error(transparent)]
    Transcribe(#[from] Box<TranscribeError>),
    /// A long recording cannot be read.
    #[error("recording `{name}` cannot be cut: {source}")]
    Align {
        /// Name of the recording.
        name: String,
        /// Reason.
        source: SampleError,
    },
    /// The user interrupted the alignment.
    #[error("interrupted: {aligned} of {of} long recordings are aligned, and the same command goes on from there")]
    Interrupted {
        /// Number of recordings with a stored alignment.
        aligned: usize,
        /// Number of recordings longer than the window.
        of: usize,
    },
    /// An option is not supported by the recordings or the model.
    #[error("`data.{key}` is not supported here: {reason}; leave it out")]
    Option {
        /// Key of the option.
        key: &'static str,
        /// Reason.
        reason: String,
    },
}

/// Number of items affected out of all, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub(super) count: usize,
    of: usize,
    first: Vec<String>,
}

impl Listed {
    /// Creates a list of `items`, out of `of` in total.
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

/// Returns the error of a sample that is longer than the model's window.
pub(super) fn too_long(name: &str, samples: usize, window: usize) -> SpeechError {
    let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
    let listed = Listed::new([format!("`{name}` ({:.2} s)", seconds(samples))], 1);
    SpeechError::TooLong { listed, window: seconds(window) }
}
