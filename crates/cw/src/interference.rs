//! Other stations, which interfere with the wanted one.

use super::{
    CwSource, CwText,
    carrier::Carrier,
    keying::{self, Fist, JITTER_LIMIT, Keyed},
    morse, text,
};
use crate::radio::{DrawnStation, OtherStations, RATE, channel};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use undertone_data::random::pick;

/// Rise and fall time of the stations that [`MorseStations`] keys, in milliseconds.
const RISE_MS: f32 = 5.0;

/// Synthesiser of Morse stations, for the interference that augmentation adds to recordings.
#[derive(Debug, Clone, Copy, Default)]
pub struct MorseStations;

impl OtherStations for MorseStations {
    fn add(&self, stations: &[DrawnStation], rng: &mut ChaCha8Rng, audio: &mut [f32]) {
        add_others(stations, &CwText::default(), RISE_MS, rng, audio);
    }
}

/// Adds the other stations to the audio, each with its own text from `text`.
pub(super) fn add_others(
    others: &[DrawnStation],
    text: &CwText,
    rise_ms: f32,
    rng: &mut ChaCha8Rng,
    audio: &mut [f32],
) {
    for other in others {
        let fist = Fist::machine(other.wpm.into(), other.wpm.into());
        // They have started before the clip, and continue until it ends.
        let start = -2.0 * rng.random::<f64>();
        let seconds = audio.len() as f64 / RATE - start;
        let source = pick(rng, &[CwSource::Words, CwSource::Qso, CwSource::Cqww, CwSource::Cqwpx]);
        let text = text::fill(source, text, seconds / fist.effective_unit_s(), rng);
        let keyed = key(&text, &fist, start..f64::INFINITY, rng);
        let rise_s = (f64::from(rise_ms) / 1000.0).min(fist.unit_s());
        let envelope = keying::envelope(&keyed.elements, rise_s, RATE, audio.len());
        let carrier = Carrier {
            pitch_hz: other.pitch_hz.into(),
            amplitude: channel::amplitude(other.level_db),
            drift: None,
            chirp: None,
            qsb: None,
        };
        carrier.add(&envelope, &keyed.elements, rng, audio);
    }
}

/// Keys a text that must be keyable.
pub(super) fn key(text: &str, fist: &Fist, time: std::ops::Range<f64>, rng: &mut ChaCha8Rng) -> Keyed {
    let words = morse::parse(text).unwrap_or_default();
    keying::key(&words, fist, time, || channel::normal(rng).clamp(-JITTER_LIMIT, JITTER_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::super::{CwConfig, CwSynth, tests::plain};
    use super::*;
    use crate::radio::testing::{off, tone};
    use crate::radio::{Interference, Static, carrier_pitch};

    #[test]
    fn a_recording_tells_its_pitch() {
        let config = CwConfig { pitch_hz: [615.0, 615.0], clean: 0.0, ..plain() };
        let clip = CwSynth::new(config, 3).unwrap().sample(1);
        assert!((carrier_pitch(&clip.audio) - 615.0).abs() < 10.0, "{}", carrier_pitch(&clip.audio));
    }

    #[test]
    fn static_and_others_are_relative_to_the_carrier() {
        let mut channel = off();
        channel.qrm =
            Interference { probability: 1.0, stations: [1, 1], level_db: [0.0, 0.0], ..Interference::default() };
        channel.qrm.offset_hz = [500.0, 500.0];
        channel.qrn = Static { probability: 1.0, rate_per_s: [20.0, 20.0], ..Static::default() };
        for scale in [1.0, 0.01] {
            let clean: Vec<f32> = tone(900.0, 8.0).iter().map(|sample| scale * sample).collect();
            let mut audio = clean.clone();
            assert!(channel.transmit(Some(&MorseStations), &mut audio, 9));
            let added: Vec<f32> = audio.iter().zip(&clean).map(|(a, b)| (a - b) / scale).collect();
            let loudest = added.iter().fold(0f32, |peak, sample| peak.max(sample.abs()));
            assert!((0.1..1.0).contains(&loudest), "{loudest}");
            let added = carrier_pitch(&added);
            assert!((added - 400.0).abs() < 30.0 || (added - 1400.0).abs() < 30.0, "{added}");
        }
    }
}
