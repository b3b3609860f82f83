//! Settings for the augmentation of training samples. A pair of numbers is a range: each sample draws its own value
//! from it, uniformly.

use crate::bounds::{self, BoundsError, range};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::AugmentError;
use super::effect::Effects;
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

/// Speed perturbation: the clip is resampled, so its length, its tempo and its pitch change together (Ko et al., "Audio
/// Augmentation for Speech Recognition", Interspeech 2015; Kaldi and torchaudio do the same).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpeedConfig {
    /// Probability that a clip is resampled.
    pub p: f32,
    /// Range of the factor: above 1 is faster, shorter and higher. It is rounded to hundredths, which keeps the
    /// resampler's ratio small. A clip that would exceed the model's window is left as it is.
    pub range: Range,
}

impl SpeedConfig {
    /// Returns the largest factor by which a clip may become longer.
    pub fn stretch(&self) -> f64 {
        let slowest = (f64::from(self.range[0]) * 100.0).round() / 100.0;
        if self.p > 0.0 { (1.0 / slowest).max(1.0) } else { 1.0 }
    }
}

/// Change of level. A clip is raised to full scale at most, so nothing is ever clipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeConfig {
    /// Probability that the level changes.
    pub p: f32,
    /// Range of the change, in decibels.
    pub db: Range,
}

/// Background noise, generated or from recordings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NoiseConfig {
    /// Probability that noise is added.
    pub p: f32,
    /// Power of the signal over the power of the noise, in decibels. Pauses do not count: the signal's power is the
    /// mean over the pieces of 20 ms that are at most 30 dB below the loudest one. Noise is not added to silence.
    pub snr_db: Range,
    /// Colour of generated noise; `white` if neither this nor `path` is given.
    pub kind: Option<NoiseColour>,
    /// Recordings of noise to use instead: an audio file, a folder (subfolders included), or a list of both. A
    /// recording longer than the clip is cut at a random place; a shorter one is repeated from a random place on.
    pub path: Option<Paths>,
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

/// Reverberation. The clip keeps its length and its energy, and the direct sound keeps its position in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReverbConfig {
    /// Probability that a clip is reverberated.
    pub p: f32,
    /// Impulse responses of rooms: an audio file, a folder (subfolders included), or a list of both. Without any, rooms
    /// are generated: after the direct sound comes Gaussian noise that decays exponentially (Polack's model of late
    /// reverberation, 1988), with the parameters `rt60_s` and `direct_db`.
    pub path: Option<Paths>,
    /// Time in which the echo of a generated room decays by 60 dB, in seconds.
    pub rt60_s: Range,
    /// Energy of the direct sound over that of the echo in a generated room, in decibels.
    pub direct_db: Range,
}

/// SpecAugment without time warping (Park et al., Interspeech 2019): stripes of the log-mel features are set to the
/// mean of the clip's features. The defaults are the paper's policy LD, and its bound `time_share` from policy SM.
///
/// The paper normalises its features to mean zero and masks with zero, which is the mean. Whisper's features do not
/// have mean zero: 0 is a level above most of a quiet clip, and masking with it would add an audible signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpecAugmentConfig {
    /// Probability that a clip is masked.
    pub p: f32,
    /// Number of stripes across time; they may overlap.
    pub time_masks: usize,
    /// Maximum width of a stripe across time, in frames of 10 ms. Widths are drawn uniformly from 0 on.
    pub time_width: usize,
    /// Maximum width of a stripe across time as a share of the clip without its padding; the smaller of both bounds
    /// applies.
    pub time_share: f32,
    /// Number of stripes across frequency; they may overlap.
    pub freq_masks: usize,
    /// Maximum width of a stripe across frequency, in mel bins. Widths are drawn uniformly from 0 on.
    pub freq_width: usize,
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

impl Default for SpeedConfig {
    fn default() -> Self {
        Self { p: 0.0, range: [0.9, 1.1] }
    }
}

impl Default for VolumeConfig {
    fn default() -> Self {
        Self { p: 0.0, db: [-6.0, 6.0] }
    }
}

impl Default for NoiseConfig {
    fn default() -> Self {
        Self { p: 0.0, snr_db: [5.0, 30.0], kind: None, path: None }
    }
}

impl Default for ReverbConfig {
    fn default() -> Self {
        Self { p: 0.0, path: None, rt60_s: [0.2, 0.6], direct_db: [0.0, 12.0] }
    }
}

impl Default for SpecAugmentConfig {
    fn default() -> Self {
        Self { p: 0.0, time_masks: 2, time_width: 100, time_share: 0.2, freq_masks: 2, freq_width: 27 }
    }
}

impl AugmentConfig {
    /// Checks everything that can be checked without the files.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), AugmentError> {
        let Self { speed, reverb, noise, effects, volume, spec_augment: spec, text } = self;
        share("speed.p", speed.p)?;
        range("speed.range", speed.range, 0.5, 2.0)?;
        share("volume.p", volume.p)?;
        range("volume.db", volume.db, -60.0, 60.0)?;
        share("noise.p", noise.p)?;
        range("noise.snr_db", noise.snr_db, -40.0, 100.0)?;
        paths("noise.path", noise.path.as_ref())?;
        if noise.kind.is_some() && noise.path.is_some() {
            return Err(AugmentError::KindAndPath);
        }
        share("reverb.p", reverb.p)?;
        paths("reverb.path", reverb.path.as_ref())?;
        range("reverb.rt60_s", reverb.rt60_s, 0.05, 5.0)?;
        range("reverb.direct_db", reverb.direct_db, -20.0, 60.0)?;
        let usual = ReverbConfig::default();
        let made = [("rt60_s", reverb.rt60_s != usual.rt60_s), ("direct_db", reverb.direct_db != usual.direct_db)];
        if let Some((key, _)) = made.iter().find(|(_, given)| *given && reverb.path.is_some()) {
            return Err(AugmentError::RoomAndPath { key });
        }
        effects.open()?;
        spec.validate()?;
        share("text.lowercase", text.lowercase)?;
        Ok(share("text.strip_punctuation", text.strip_punctuation)?)
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

impl SpecAugmentConfig {
    fn validate(&self) -> Result<(), AugmentError> {
        share("spec_augment.p", self.p)?;
        share("spec_augment.time_share", self.time_share)?;
        count("spec_augment.time_masks", self.time_masks, 0, 100)?;
        count("spec_augment.time_width", self.time_width, 1, 3000)?;
        count("spec_augment.freq_masks", self.freq_masks, 0, 100)?;
        count("spec_augment.freq_width", self.freq_width, 1, 128)?;
        if self.p > 0.0 && self.time_masks + self.freq_masks == 0 {
            return Err(AugmentError::NoMasks);
        }
        Ok(())
    }
}

fn share(key: &'static str, value: f32) -> Result<(), BoundsError> {
    bounds::number(key, value, 0.0, 1.0)
}

fn count(key: &'static str, value: usize, least: u16, most: u16) -> Result<(), BoundsError> {
    bounds::number(key, value as f32, least.into(), most.into())
}

fn paths(key: &'static str, paths: Option<&Paths>) -> Result<(), AugmentError> {
    let given = paths.map(Paths::as_slice).unwrap_or(&[]);
    let empty = |path: &PathBuf| path.as_os_str().is_empty();
    if paths.is_some() && (given.is_empty() || given.iter().any(empty)) {
        return Err(AugmentError::EmptyPath { key });
    }
    Ok(())
}
