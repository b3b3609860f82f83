//! What is keyed in a recording of Morse code.

use undertone::cw::listen::{KeyedTone, keyed_tone};

/// Signal-to-noise ratio, in dB, that counts as noiseless: more than the 16 bits of a file hold.
const CLEAN_DB: f64 = 96.0;

/// Describes the keyed tone in the audio.
pub fn keying(audio: &[f32]) -> String {
    match keyed_tone(audio) {
        Some(KeyedTone { pitch_hz, wpm, snr_db }) if snr_db < CLEAN_DB => {
            format!(
                "a tone of {pitch_hz:.0} Hz keyed at {wpm:.0} words per minute, {snr_db:.0} dB over the noise in 500 Hz"
            )
        }
        Some(KeyedTone { pitch_hz, wpm, .. }) => {
            format!("a tone of {pitch_hz:.0} Hz keyed at {wpm:.0} words per minute, without noise")
        }
        None => "there is no tone that is keyed".into(),
    }
}
