//! Properties of decoded recordings: length, loudness and clipping.

use crate::Progress;
use rayon::prelude::*;
use std::collections::HashSet;
use undertone_data::audio::{AudioError, Decoded, SAMPLE_RATE};
use undertone_data::cache::Key;
use undertone_data::clips::Clips;

/// Loudness below which audio counts as silent, in dB of full scale: 16-bit audio ends at -96, and quiet rooms are at
/// -60.
const SILENT_DB: f64 = -60.0;
/// Loudness below which audio counts as quiet: speech is recorded at -30 to -15.
const QUIET_DB: f64 = -45.0;
/// Minimum share of clipped values at which clipping is audible.
const CLIPPED: f64 = 1e-3;

/// Properties of a recording's audio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sound {
    /// Length, in samples at 16 kHz.
    pub samples: usize,
    /// Checksum of the audio at 16 bits; independent of the file format.
    pub key: Key,
    /// Loudness in dB of full scale; negative infinity if all values are zero.
    pub db: f64,
    /// Share of the values that are clipped.
    pub clipped: f64,
    /// Divisor of the values, if they are floats that go far beyond full scale.
    pub divided_by: Option<f32>,
}

impl Sound {
    pub fn of(decoded: &Decoded) -> Self {
        let audio = decoded.samples.as_slice();
        let bytes: Vec<u8> = audio.iter().flat_map(|x| ((x * 32_768.0).round() as i16).to_le_bytes()).collect();
        let power = audio.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / audio.len().max(1) as f64;
        // Floats beyond full scale were not clipped there.
        let whole = decoded.floats.is_some_and(|floats| floats.peak > floats.full_scale);
        Self {
            samples: audio.len(),
            key: Key::new(&[b"sound", &bytes]),
            db: 10.0 * power.log10(),
            clipped: if whole { 0.0 } else { decoded.clipped },
            divided_by: decoded.floats.map(|floats| floats.full_scale).filter(|full_scale| *full_scale > 1.0),
        }
    }

    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(SAMPLE_RATE)
    }

    pub fn is_silent(&self) -> bool {
        self.db < SILENT_DB
    }

    pub fn is_quiet(&self) -> bool {
        !self.is_silent() && self.db < QUIET_DB
    }

    pub fn is_clipped(&self) -> bool {
        self.clipped >= CLIPPED
    }
}

/// Decodes every clip that is not in `without`, and returns its properties.
pub(super) fn listen(
    clips: &Clips,
    without: &HashSet<usize>,
    what: &str,
    progress: &dyn Progress,
) -> Vec<Option<Result<Sound, AudioError>>> {
    progress.begin(what, clips.len());
    let decoded = (0..clips.len()).par_bridge().map(|index| {
        // The order is that of the clips, because neighbours in a file are read together.
        let sound = (!without.contains(&index)).then(|| clips.decode(index).map(|decoded| Sound::of(&decoded)));
        progress.step();
        (index, sound)
    });
    let mut decoded: Vec<_> = decoded.collect();
    progress.end();
    decoded.sort_unstable_by_key(|(index, _)| *index);
    decoded.into_iter().map(|(_, sound)| sound).collect()
}

/// Maximum characters per second of speech: 12 to 17 are usual, and 25 are fast.
const CHARACTERS_PER_SECOND: f64 = 30.0;
/// Number of characters that any clip may have: a word can begin before the clip and end after it.
const ANY: f64 = 10.0;

/// Whether a text is longer than what can be spoken in `seconds`.
pub(super) fn is_crowded(text: &str, seconds: f64) -> bool {
    text.chars().count() as f64 > ANY + CHARACTERS_PER_SECOND * seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_data::audio::FloatRange;

    /// Returns a tone of 600 Hz.
    fn tone(amplitude: f32) -> Vec<f32> {
        (0..16_000).map(|n| amplitude * (0.235_619_45 * n as f32).sin()).collect()
    }

    fn sound(audio: &[f32]) -> Sound {
        Sound::of(&Decoded { samples: audio.to_vec(), floats: None, clipped: 0.0 })
    }

    #[test]
    fn floats_beyond_full_scale_are_not_clipped() {
        let of = |floats| Sound::of(&Decoded { samples: tone(1.0), floats, clipped: 0.01 });
        let range = |peak, full_scale| Some(FloatRange { peak, full_scale });
        assert!(!of(range(1.3, 1.0)).is_clipped());
        assert!(of(range(1.0, 1.0)).is_clipped() && of(None).is_clipped(), "cut off at full scale all the same");
        assert_eq!(of(range(32_767.0, 32_768.0)).divided_by, Some(32_768.0));
    }

    #[test]
    fn what_is_silent_and_quiet_is_told_apart() {
        let is = |audio: &[f32]| {
            let sound = sound(audio);
            (sound.is_silent(), sound.is_quiet())
        };
        assert_eq!(is(&[0.0; 16_000]), (true, false));
        // A sine of amplitude a has a power of a²/2: -63 dB and -47 dB.
        assert_eq!(is(&tone(0.001)), (true, false));
        assert_eq!(is(&tone(0.0063)), (false, true));
        assert_eq!(is(&tone(0.3)), (false, false));
        assert_eq!(is(&[]), (true, false));
    }

    #[test]
    fn the_same_audio_has_the_same_key_in_16_bits() {
        let whole = tone(0.3);
        let rounded: Vec<f32> = whole.iter().map(|x| (x * 32_768.0).round() / 32_768.0).collect();
        assert_ne!(whole, rounded);
        assert_eq!(sound(&whole).key, sound(&rounded).key);
        assert_ne!(sound(&whole).key, sound(&whole[1..]).key);
    }

    #[test]
    fn a_text_is_crowded_when_nobody_can_say_it_in_time() {
        assert!(!is_crowded("seven", 0.1));
        assert!(!is_crowded(&"a".repeat(25), 1.0));
        assert!(is_crowded(&"a".repeat(50), 1.0));
    }
}
