use std::path::PathBuf;

use crate::audio::AudioError;
use crate::bounds::BoundsError;
use crate::options::OptionsError;

/// Error of an augmentation that cannot be set up; keys are given relative to `augment`.
#[derive(Debug, thiserror::Error)]
pub enum AugmentError {
    /// A number is out of bounds.
    #[error("augment.{0}")]
    Bounds(#[from] BoundsError),
    /// Both generated and recorded noise are configured.
    #[error(
        "augment.noise has both a kind and a path: leave out kind for recorded noise, or path for noise of that kind"
    )]
    KindAndPath,
    /// Recorded rooms are configured together with parameters of generated ones.
    #[error("augment.reverb has both a path and {key}: leave out {key} for recorded rooms, or path for made-up ones")]
    RoomAndPath {
        /// The key.
        key: &'static str,
    },
    /// SpecAugment is on, but its settings mask nothing.
    #[error("augment.spec_augment.p is above 0, but time_masks and freq_masks are both 0: raise one, or set p to 0")]
    NoMasks,
    /// The settings of a registered effect are invalid.
    #[error("augment.{name}.{source}")]
    Effect {
        /// Name of the effect.
        name: String,
        /// Reason.
        source: OptionsError,
    },
    /// A path is empty.
    #[error("augment.{key} is empty: name an audio file, a folder, or a list of them, or leave it out")]
    EmptyPath {
        /// The key.
        key: &'static str,
    },
    /// A path holds no audio.
    #[error("augment.{key}: {path} holds no audio: put .wav, .flac, .mp3 or .ogg files there, or leave {key} out")]
    NoFiles {
        /// The key.
        key: &'static str,
        /// The file or folder.
        path: PathBuf,
    },
    /// A file cannot be decoded, or a folder cannot be read.
    #[error("augment.{key}: {source}")]
    Audio {
        /// The key.
        key: &'static str,
        /// Which file, and why.
        source: AudioError,
    },
    /// A recording contains only zeros.
    #[error("augment.{key}: {path} is silent, every sample is 0; remove it")]
    Silent {
        /// The key.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// An impulse response decays too slowly.
    #[error(
        "augment.{key}: {path} lasts {seconds:.1} s, too long for an impulse response; remove files that are not impulse responses"
    )]
    NotARoom {
        /// The key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Time in which it decays by 60 dB, in seconds.
        seconds: f64,
    },
    /// The recordings exceed the limit of memory.
    #[error("augment.{key}: the files last more than {hours} h together, too much to keep in memory; name fewer")]
    TooMuch {
        /// The key.
        key: &'static str,
        /// Maximum length that is kept, in hours.
        hours: usize,
    },
}
