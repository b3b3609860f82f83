//! Reasons why audio cannot be transcribed.

use crate::reading::ReaderError;
use undertone_data::audio::AudioError;
use undertone_data::features::FeatureError;
use undertone_model::whisper::TokenizerError;

/// Reason why audio cannot be transcribed.
#[derive(Debug, thiserror::Error)]
pub enum TranscribeError {
    /// Whisper has no features with the model's number of mel bins.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The language or task is not in the model's vocabulary, or a prompt cannot be written in it.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The audio cannot be read.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// The model cannot read what its folder says that it reads.
    #[error(transparent)]
    Reader(#[from] ReaderError),
    /// The model has no timestamps.
    #[error("the model's vocabulary has no timestamps: use another segmentation than `timestamps`")]
    NoTimestamps,
    /// A model that reads something other than speech was asked for something that only speech has.
    #[error("the model reads `{reader}` and no speech: leave out {option}")]
    NotSpeech {
        /// Name of the reader.
        reader: String,
        /// What was asked for.
        option: &'static str,
    },
    /// A window does not fit the model.
    #[error("a window of {seconds} s does not fit this model: give 1 to {most} seconds")]
    Window {
        /// Its length.
        seconds: f64,
        /// Length of the model's window.
        most: f64,
    },
    /// The model knows one language, and another one or a translation was asked for.
    #[error("this model knows one language and no tasks: leave out {0}")]
    OneLanguage(String),
    /// A prompt is too long.
    #[error("the {option} has {tokens} tokens, and this model has room for {room}: shorten it")]
    LongPrompt {
        /// Which prompt.
        option: &'static str,
        /// Number of its tokens.
        tokens: usize,
        /// Number of tokens there is room for.
        room: usize,
    },
    /// An option has a value that makes no sense.
    #[error("{option} is {value}: {advice}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        advice: &'static str,
    },
}
