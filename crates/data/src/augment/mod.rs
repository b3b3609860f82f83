//! Data augmentation: random changes of training samples, on the train split only.
//!
//! A clip passes through its effects in their physical order: somebody speaks faster ([`SpeedConfig`]) in a room
//! ([`ReverbConfig`]) with noise in the background ([`NoiseConfig`]), or over something that another crate simulates (a
//! registered [`Effect`]), and is recorded at some level ([`VolumeConfig`]). Features can be masked
//! ([`SpecAugmentConfig`]), and transcripts can be written in lower case or without punctuation ([`TextConfig`]).
//!
//! All randomness comes from one number per sample and epoch, its `draw`. Each effect derives a generator of its own
//! from it (a stream of ChaCha8). So the same draw gives the same bits on any thread, and a change in the settings of
//! one effect does not change the draws of another.
//!
//! ```
//! use undertone_data::augment::{Augment, AugmentConfig, NoiseConfig};
//!
//! let noise = NoiseConfig { p: 1.0, snr_db: [10.0, 10.0], ..NoiseConfig::default() };
//! let augment = Augment::new(&AugmentConfig { noise, ..AugmentConfig::default() }, 480_000)?;
//! let clip: Vec<f32> = (0..16_000).map(|n| 0.1 * (n as f32 * 0.2).sin()).collect();
//! let mut noisy = clip.clone();
//! augment.audio(&mut noisy, 7);
//! assert_ne!(noisy, clip);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod effect;
mod error;
mod library;
mod noise;
mod reverb;
mod spec;
mod stream;
#[cfg(test)]
mod tests;
mod transcript;

pub use config::{
    AugmentConfig, NoiseColour, NoiseConfig, ReverbConfig, SpecAugmentConfig, SpeedConfig, TextConfig, VolumeConfig,
};
pub use effect::{AudioEffect, Effect, Effects, register};
pub use error::AugmentError;

use noise::Noise;
use rand_chacha::ChaCha8Rng;
use reverb::Reverb;
use stream::Stream;

use crate::audio::{SAMPLE_RATE, to_16k};
use crate::level;
use crate::random::{between, chance};

/// Augments training samples. It is made once, with its recordings in memory, and shared among threads by reference.
pub struct Augment {
    config: AugmentConfig,
    noise: Noise,
    reverb: Reverb,
    effects: Vec<Box<dyn AudioEffect>>,
    max_samples: usize,
}

impl Augment {
    /// Checks the configuration and decodes the recordings of noise and of rooms. After that nothing can fail.
    ///
    /// `max_samples` is the model's window: no clip becomes longer than it.
    ///
    /// # Errors
    /// Names the invalid key, or the file that cannot be used.
    pub fn new(config: &AugmentConfig, max_samples: usize) -> Result<Self, AugmentError> {
        config.validate()?;
        let (noise, reverb) = (Noise::new(&config.noise)?, Reverb::new(&config.reverb)?);
        Ok(Self { config: config.clone(), noise, reverb, effects: config.effects.open()?, max_samples })
    }

    /// Returns the configuration it was made with.
    pub fn config(&self) -> &AugmentConfig {
        &self.config
    }

    /// Applies the effects to a clip of 16 kHz. Returns the factor by which times in it have changed: 1 unless its
    /// speed has changed.
    ///
    /// Nothing is clipped: a clip that an effect takes beyond full scale is scaled down as a whole, to full scale or to
    /// the clip's original peak. Only the change of speed changes the length.
    pub fn audio(&self, audio: &mut Vec<f32>, draw: u64) -> f64 {
        let before = level::peak(audio);
        let times = self.speed(audio, draw);
        let reverberant = self.reverb.apply(audio, &mut Stream::Reverb.of(draw));
        let noisy = self.noise.apply(audio, &mut Stream::Noise.of(draw));
        let changed = self.effects.iter().filter(|effect| effect.apply(audio, draw)).count() > 0;
        let louder = self.volume(audio, &mut Stream::Volume.of(draw));
        if reverberant || noisy || changed || louder {
            level::limit(audio, before.max(1.0));
        }
        times
    }

    /// Masks log-mel features, `[bins, frames]`, of which the first `valid` frames are the clip. The padding after them
    /// is never changed.
    pub fn features(&self, features: &mut [f32], bins: usize, frames: usize, valid: usize, draw: u64) {
        debug_assert_eq!(features.len(), bins * frames, "features are [bins, frames]");
        spec::mask(&self.config.spec_augment, features, frames, valid.min(frames), draw);
    }

    /// Returns the transcript that the model is to write for this draw.
    pub fn text(&self, text: &str, draw: u64) -> String {
        let TextConfig { lowercase, strip_punctuation } = self.config.text;
        let mut text = text.to_owned();
        if chance(&mut Stream::StripPunctuation.of(draw), strip_punctuation) {
            text = transcript::without_punctuation(&text);
        }
        if chance(&mut Stream::Lowercase.of(draw), lowercase) {
            text = text.to_lowercase();
        }
        text
    }

    fn speed(&self, audio: &mut Vec<f32>, draw: u64) -> f64 {
        let rng = &mut Stream::Speed.of(draw);
        if !chance(rng, self.config.speed.p) || audio.is_empty() {
            return 1.0;
        }
        // Played at this sample rate, the clip is faster by the factor. A hundredth is 160 Hz, so the ratio's terms
        // stay below 200 and the resampler's transforms short.
        let step = SAMPLE_RATE / 100;
        let rate = (between(rng, self.config.speed.range) * 100.0).round() as u32 * step;
        let length = (audio.len() as u64 * u64::from(SAMPLE_RATE)).div_ceil(rate.into());
        if length > self.max_samples as u64 {
            return 1.0;
        }
        // Resampling fails only for rates far outside of the range that the configuration allows.
        let Ok(mut resampled) = to_16k(audio.clone(), rate) else { return 1.0 };
        // If the exact length is a whole number, the resampler may round it up by one.
        resampled.truncate(length as usize);
        *audio = resampled;
        f64::from(SAMPLE_RATE) / f64::from(rate)
    }

    fn volume(&self, audio: &mut [f32], rng: &mut ChaCha8Rng) -> bool {
        if !chance(rng, self.config.volume.p) {
            return false;
        }
        let gain = level::ratio(between(rng, self.config.volume.db)).sqrt();
        level::scale(audio, gain);
        true
    }
}
