//! Settings for the augmentation of training samples. A pair of numbers is a range: each sample draws its own value
//! from it, uniformly.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::AugmentError;
use super::effect::Effects;
use crate::bounds::number;
use crate::effect;
use crate::random::Range;
use crate::records::Paths;

/// Augmentation of training samples. Everything is off by default: an effect is on when its probability `p` is above 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(extend("additionalProperties" = false))]
pub struct AugmentConfig {
    /// Changes of speed.
    pub speed: SpeedConfig,
    /// Reverberation of a room.
    pub reverb: ReverbConfig,
    /// Background noise.
    pub noise: NoiseConfig,
    /// Effects that other crates have registered, each under its name.
    #[serde(flatten)]
    pub effects: Effects,
    /// Changes of level.
    pub volume: VolumeConfig,
    /// Masking of the features.
    pub spec_augment: SpecAugmentConfig,
    /// Changes of the transcript.
    pub text: TextConfig,
}

effect! {
    /// Speed perturbation: the clip is resampled, so its length, its tempo and its pitch change together (Ko et al., "Audio
    /// Augmentation for Speech Recognition", Interspeech 2015; Kaldi and torchaudio do the same).
    pub struct SpeedConfig at "speed" {
        /// Probability that a clip is resampled.
        pub p: f32 = 0.0, number(0.0, 1.0);
        /// Range of the factor: above 1 is faster, shorter and higher. It is rounded to hundredths, which keeps the
        /// resampler's ratio small. A clip that would exceed the model's window is left as it is.
        pub range: Range = [0.9, 1.1], range(0.5, 2.0);
    }
}

impl SpeedConfig {
    /// Returns the largest factor by which a clip may become longer.
    pub fn stretch(&self) -> f64 {
        let slowest = (f64::from(self.range[0]) * 100.0).round() / 100.0;
        if self.p > 0.0 { (1.0 / slowest).max(1.0) } else { 1.0 }
    }
}

effect! {
    /// Change of level. A clip is raised to full scale at most, so nothing is ever clipped.
    pub struct VolumeConfig at "volume" {
        /// Probability that the level changes.
        pub p: f32 = 0.0, number(0.0, 1.0);
        /// Range of the change, in decibels.
        pub db: Range = [-6.0, 6.0], range(-60.0, 60.0);
    }
}

effect! {
    /// Background noise, generated or from recordings.
    pub struct NoiseConfig at "noise" {
        /// Probability that noise is added.
        pub p: f32 = 0.0, number(0.0, 1.0);
        /// Power of the signal over the power of the noise, in decibels. Pauses do not count: the signal's power is the
        /// mean over the pieces of 20 ms that are at most 30 dB below the loudest one. Noise is not added to silence.
        pub snr_db: Range = [5.0, 30.0], range(-40.0, 100.0);
        /// Colour of generated noise; `white` if neither this nor `path` is given.
        pub kind: Option<NoiseColour> = None;
        /// Recordings of noise to use instead: an audio file, a folder (subfolders included), or a list of both. A
        /// recording longer than the clip is cut at a random place; a shorter one is repeated from a random place on.
        pub path: Option<Paths> = None;
    }
}

/// Slope of the noise power over frequency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoiseColour {
    /// Constant: hiss.
    #[default]
    White,
    /// Falls by 3 dB per octave, with equal power in every octave: rain.
    Pink,
    /// Falls by 6 dB per octave: rumble.
    Brown,
}

effect! {
    /// Reverberation. The clip keeps its length and its energy, and the direct sound keeps its position in time.
    pub struct ReverbConfig at "reverb" {
        /// Probability that a clip is reverberated.
        pub p: f32 = 0.0, number(0.0, 1.0);
        /// Impulse responses of rooms: an audio file, a folder (subfolders included), or a list of both. Without any, rooms
        /// are generated: after the direct sound comes Gaussian noise that decays exponentially (Polack's model of late
        /// reverberation, 1988), with the parameters `rt60_s` and `direct_db`.
        pub path: Option<Paths> = None;
        /// Time in which the echo of a generated room decays by 60 dB, in seconds.
        pub rt60_s: Range = [0.2, 0.6], range(0.05, 5.0);
        /// Energy of the direct sound over that of the echo in a generated room, in decibels.
        pub direct_db: Range = [0.0, 12.0], range(-20.0, 60.0);
    }
}

effect! {
    /// SpecAugment without time warping (Park et al., Interspeech 2019): stripes of the log-mel features are set to the
    /// mean of the clip's features. The defaults are the paper's policy LD, and its bound `time_share` from policy SM.
    ///
    /// The paper normalises its features to mean zero and masks with zero, which is the mean. Whisper's features do not
    /// have mean zero: 0 is a level above most of a quiet clip, and masking with it would add an audible signal.
    pub struct SpecAugmentConfig at "spec_augment" {
        /// Probability that a clip is masked.
        pub p: f32 = 0.0, number(0.0, 1.0);
        /// Number of stripes across time; they may overlap.
        pub time_masks: usize = 2, whole(0, 100);
        /// Maximum width of a stripe across time, in frames of 10 ms. Widths are drawn uniformly from 0 on.
        pub time_width: usize = 100, whole(1, 3000);
        /// Maximum width of a stripe across time as a share of the clip without its padding; the smaller of both bounds
        /// applies.
        pub time_share: f32 = 0.2, number(0.0, 1.0);
        /// Number of stripes across frequency; they may overlap.
        pub freq_masks: usize = 2, whole(0, 100);
        /// Maximum width of a stripe across frequency, in mel bins. Widths are drawn uniformly from 0 on.
        pub freq_width: usize = 27, whole(1, 128);
    }
}

/// Changes of the transcript, for a model that is to write with and without capitals and punctuation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TextConfig {
    /// Probability that a transcript is written in lower case.
    pub lowercase: f32,
    /// Probability that punctuation is removed from a transcript, except within a word or number: `don't`,
    /// `well-known`, `3.5`.
    pub strip_punctuation: f32,
}

impl AugmentConfig {
    /// Checks everything that can be checked without the files.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), AugmentError> {
        let Self { speed, reverb, noise, effects, volume, spec_augment: spec, text } = self;
        speed.validate()?;
        volume.validate()?;
        noise.validate()?;
        paths("noise.path", noise.path.as_ref())?;
        if noise.kind.is_some() && noise.path.is_some() {
            return Err(AugmentError::KindAndPath);
        }
        reverb.validate()?;
        paths("reverb.path", reverb.path.as_ref())?;
        let usual = ReverbConfig::default();
        let made = [("rt60_s", reverb.rt60_s != usual.rt60_s), ("direct_db", reverb.direct_db != usual.direct_db)];
        if let Some((key, _)) = made.iter().find(|(_, given)| *given && reverb.path.is_some()) {
            return Err(AugmentError::RoomAndPath { key });
        }
        effects.open()?;
        spec.validate()?;
        if spec.p > 0.0 && spec.time_masks + spec.freq_masks == 0 {
            return Err(AugmentError::NoMasks);
        }
        number("text.lowercase", text.lowercase, 0.0, 1.0)?;
        Ok(number("text.strip_punctuation", text.strip_punctuation, 0.0, 1.0)?)
    }

    /// Returns the keys that have no effect because the probability of their effect is 0, like `noise.path`.
    pub fn without_effect(&self) -> Vec<String> {
        let [given, usual] = [self, &Self::default()].map(|config| serde_json::to_value(config).unwrap_or_default());
        let effects = given.as_object().into_iter().flatten().filter(|(_, keys)| keys["p"].as_f64() == Some(0.0));
        let keys =
            effects.flat_map(|(effect, keys)| keys.as_object().into_iter().flatten().map(move |key| (effect, key)));
        let differing = keys.filter(|(effect, (key, value))| usual[*effect][*key] != **value);
        differing.map(|(effect, (key, _))| format!("{effect}.{key}")).collect()
    }

    /// Returns whether any effect can change a clip's audio; if so, its features cannot come from a cache.
    pub fn changes_audio(&self) -> bool {
        [self.speed.p, self.reverb.p, self.noise.p, self.volume.p].iter().any(|p| *p > 0.0)
            || self.effects.open().is_ok_and(|effects| !effects.is_empty())
    }
}

fn paths(key: &'static str, paths: Option<&Paths>) -> Result<(), AugmentError> {
    let given = paths.map(Paths::as_slice).unwrap_or(&[]);
    let empty = |path: &PathBuf| path.as_os_str().is_empty();
    if paths.is_some() && (given.is_empty() || given.iter().any(empty)) {
        return Err(AugmentError::EmptyPath { key });
    }
    Ok(())
}
