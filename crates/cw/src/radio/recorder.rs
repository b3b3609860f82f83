//! Equipment that a sound is recorded with: a sample rate, and a codec.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::channel::{RATE, amplitude};
use super::codec::{CodecKinds, DrawnCodec};
use super::stream::Stream;
use undertone_data::bounds::{BoundsError, number};
use undertone_data::effect;
use undertone_data::random::{Range, between, chance, pick};
use undertone_data::{fourier, level};

/// Effects of the recording (`recorder`). Both are off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Recorder {
    /// A sample rate below 16 kHz.
    pub rate: LowRate,
    /// A codec.
    pub codec: Codec,
}

effect! {
    /// A recording at 5512, 6000, 8000, 11025 or 12000 samples per second, which is band-limited to half of that; 8000 is
    /// the most frequent.
    pub struct LowRate at "recorder.rate" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Level of the mirror image above half of that rate that resampling to 16 kHz leaves, in decibels.
        pub image_db: Range = [-100.0, -40.0], range(-120.0, 0.0);
    }
}

effect! {
    /// A codec, at the recording's sample rate.
    pub struct Codec at "recorder.codec" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Peak level of the codec's input, in decibels relative to full scale.
        pub level_dbfs: Range = [-30.0, 0.0], range(-60.0, 0.0);
        /// Weights of the kinds of codecs.
        pub kinds: CodecKinds = CodecKinds::default();
    }
}

/// A low sample rate in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnRate {
    /// Samples per second.
    pub hz: f32,
    /// Level of the mirror image, in decibels.
    pub image_db: f32,
}

/// Recorder of one clip.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DrawnRecorder {
    /// A low sample rate.
    pub rate: Option<DrawnRate>,
    /// A codec, and the peak level of its input, in decibels relative to full scale.
    pub codec: Option<(DrawnCodec, f32)>,
}

/// The lowest rate, half of 11025, still contains every pitch that a carrier may have, 2000 Hz.
const RATES_HZ: [f32; 8] = [5512.5, 6000.0, 8000.0, 8000.0, 8000.0, 8000.0, 11_025.0, 12_000.0];

impl Recorder {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `recorder`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        self.rate.validate()?;
        self.codec.validate()?;
        let weights = self.codec.kinds.weights();
        weights.iter().try_for_each(|(field, weight)| number(field, *weight, 0.0, 1e6))?;
        let sum = weights.iter().map(|(_, weight)| weight).sum();
        // Without a kind, no codec can be drawn.
        if self.codec.probability > 0.0 { number("the sum of recorder.codec.kinds", sum, 1e-3, 4e6) } else { Ok(()) }
    }

    /// Draws the recorder of a clip.
    pub fn draw(&self, draw: u64) -> DrawnRecorder {
        let (slowing, coding) = (&mut Stream::Rate.of(draw), &mut Stream::Codec.of(draw));
        DrawnRecorder {
            rate: chance(slowing, self.rate.probability)
                .then(|| DrawnRate { hz: pick(slowing, &RATES_HZ), image_db: between(slowing, self.rate.image_db) }),
            codec: chance(coding, self.codec.probability)
                .then(|| (self.codec.kinds.draw(coding), between(coding, self.codec.level_dbfs))),
        }
    }
}

impl DrawnRecorder {
    /// Returns whether it leaves a signal unchanged.
    pub fn is_perfect(&self) -> bool {
        self.rate.is_none() && self.codec.is_none()
    }

    /// Records in place; `draw` is that of the clip.
    pub fn apply(&self, draw: u64, audio: &mut [f32]) {
        let dither = &mut Stream::Dither.of(draw);
        match self.rate {
            Some(rate) => rate.apply(audio, |slow| self.code(rate.hz.into(), dither, slow)),
            None => self.code(RATE, dither, audio),
        }
    }

    fn code(&self, rate: f64, dither: &mut ChaCha8Rng, audio: &mut [f32]) {
        let Some((codec, level_dbfs)) = self.codec else { return };
        let peak = f64::from(level::peak(audio));
        if peak > 0.0 {
            let gain = amplitude(level_dbfs) / peak;
            level::scale(audio, gain);
            codec.apply(rate, dither, audio);
            level::scale(audio, 1.0 / gain);
        }
    }
}

impl DrawnRate {
    /// Changes the audio at the low rate, and returns to 16 kHz with the mirror image that a simple interpolation
    /// leaves: a frequency f appears at the rate less f too.
    fn apply(&self, audio: &mut [f32], change: impl FnOnce(&mut [f32])) {
        let length = fourier::padded(audio.len());
        let slow_length = (length as f64 * f64::from(self.hz) / RATE).round() as usize / 2 * 2;
        let mut padded = audio.to_vec();
        padded.resize(length, 0.0);
        // Anti-aliasing: the gain is zero from 0.49 of the rate on.
        let end = f64::from(self.hz) / RATE;
        fourier::filter(&mut padded, |frequency| ((0.98 * end - frequency) / (0.06 * end)).clamp(0.0, 1.0));
        padded.resize(length, 0.0);
        let mut slow = fourier::resample(&padded, slow_length);
        change(&mut slow);
        let mut bins = fourier::spectrum(&slow, slow_length);
        bins.resize(length / 2 + 1, Default::default());
        let image = amplitude(self.image_db) as f32;
        for at in slow_length / 2 + 1..slow_length.min(length / 2 + 1) {
            bins[at] = bins[slow_length - at].conj() * image;
        }
        let scale = 1.0 / slow_length as f32;
        for (out, sample) in audio.iter_mut().zip(fourier::signal(&mut bins, length)) {
            *out = sample * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::carrier;
    use super::*;

    fn tone(hz: f64) -> Vec<f32> {
        carrier(hz, 1.0, 64_000)
    }

    fn power_db(audio: &[f32], low_hz: f64, high_hz: f64) -> f64 {
        let mut band = audio.to_vec();
        fourier::filter(&mut band, |f| if (low_hz..high_hz).contains(&(f * RATE / 2.0)) { 1.0 } else { 0.0 });
        10.0 * (2.0 * level::energy(&band[8000..56_000]) / 48_000.0).log10()
    }

    #[test]
    fn a_low_rate_ends_below_half_of_it_and_has_an_image() {
        for hz in [5512.5, 8000.0, 11_025.0] {
            let rate = DrawnRate { hz, image_db: -50.0 };
            let mut audio: Vec<f32> = tone(700.0).iter().zip(tone(7000.0)).map(|(a, b)| a + b).collect();
            rate.apply(&mut audio, |_| ());
            assert!(power_db(&audio, 600.0, 800.0).abs() < 0.1);
            assert!(power_db(&audio, 6900.0, 7100.0) < -45.0, "{}", power_db(&audio, 6900.0, 7100.0));
            let image = f64::from(hz) - 700.0;
            if image < 8000.0 {
                assert!((power_db(&audio, image - 50.0, image + 50.0) + 50.0).abs() < 1.0);
            }
        }
    }

    #[test]
    fn a_codec_is_given_its_level() {
        let codec = Codec { probability: 1.0, level_dbfs: [-30.0, -30.0], kinds: CodecKinds::default() };
        let mut recorder = Recorder { codec, ..Recorder::default() };
        recorder.codec.kinds = CodecKinds { logarithmic: 0.0, linear: 1.0, adpcm: 0.0, transform: 0.0 };
        let drawn = recorder.draw(5);
        let Some((DrawnCodec::Linear { bits, .. }, _)) = drawn.codec else { panic!("{drawn:?}") };
        let clean = tone(700.0);
        let mut audio = clean.clone();
        drawn.apply(5, &mut audio);
        let noise: Vec<f32> = audio.iter().zip(&clean).map(|(a, b)| a - b).collect();
        let expected = 30.0 - 6.02 * f64::from(bits) - 1.76;
        let db = 10.0 * (2.0 * level::energy(&noise) / 64_000.0).log10();
        assert!((expected - 6.0..expected + 6.0).contains(&db), "{db} and not {expected}");
    }

    #[test]
    fn by_default_a_recorder_is_perfect() {
        assert!((0..100).all(|draw| Recorder::default().draw(draw).is_perfect()));
    }
}
