//! Effects that follow the level of a signal: gain control and noise gate.

use super::channel::{RATE, amplitude};
use undertone_data::effect;
use undertone_data::random::Range;

effect! {
    /// Automatic gain control (`receiver.agc`): between marks the noise is amplified, and the next mark attenuates it
    /// again.
    pub struct Agc at "receiver.agc" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Time constant with which the gain falls, in milliseconds.
        pub attack_ms: Range = [1.0, 20.0], range(0.1, 1000.0) => between;
        /// Time constant with which the gain rises again, in milliseconds.
        pub release_ms: Range = [50.0, 2000.0], range(1.0, 10_000.0) => between;
        /// Maximum gain relative to that of the carrier, in decibels.
        pub depth_db: Range = [3.0, 40.0], range(0.0, 100.0) => between;
    }

    /// Gain control in one clip.
    pub struct DrawnAgc;
}

effect! {
    /// A noise gate (`receiver.gate`): a signal below a threshold becomes digital silence.
    pub struct Gate at "receiver.gate" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Level below which it closes, relative to the carrier, in decibels.
        pub threshold_db: Range = [-30.0, -12.0], range(-100.0, 0.0) => between;
        /// Time for which it stays open after the last sound above the threshold, in milliseconds.
        pub hold_ms: Range = [5.0, 300.0], range(0.0, 5000.0) => between;
    }

    /// A noise gate in one clip.
    pub struct DrawnGate;
}

/// Returns the coefficient of a first-order filter with this time constant, per sample.
fn share(time_ms: f32) -> f32 {
    (1.0 - (-1000.0 / (f64::from(time_ms) * RATE)).exp()) as f32
}

impl DrawnAgc {
    /// Applies the gain control. The carrier, of amplitude 1, keeps its level; weaker signals are amplified towards it.
    pub(super) fn apply(&self, audio: &mut [f32]) {
        let (attack, release) = (share(self.attack_ms), share(self.release_ms));
        let least = amplitude(-self.depth_db) as f32;
        let mut level = least;
        for sample in audio {
            let size = sample.abs();
            level += (size - level) * if size > level { attack } else { release };
            *sample /= level.max(least);
        }
    }
}

impl DrawnGate {
    /// Time constants of the measured level, rising and falling, and of the gate's movement, in milliseconds.
    const UP_MS: f32 = 1.0;
    const DOWN_MS: f32 = 10.0;
    const MOVE_MS: f32 = 3.0;

    pub(super) fn apply(&self, audio: &mut [f32]) {
        let (up, down) = (share(Self::UP_MS), share(Self::DOWN_MS));
        let step = 1000.0 / (Self::MOVE_MS * RATE as f32);
        let threshold = amplitude(self.threshold_db) as f32;
        let hold = (f64::from(self.hold_ms) / 1000.0 * RATE) as usize;
        let (mut level, mut gain, mut held) = (0f32, 0f32, 0);
        for sample in audio {
            let size = sample.abs();
            level += (size - level) * if size > level { up } else { down };
            held = if level > threshold { hold + 1 } else { held.saturating_sub(1) };
            gain = if held > 0 { (gain + step).min(1.0) } else { (gain - step).max(0.0) };
            *sample *= gain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second of carrier, half a second of noise 30 dB below it.
    fn carrier_and_gap() -> Vec<f32> {
        let mut audio: Vec<f32> = (0..8000).map(|n| (0.3 * f64::from(n)).sin() as f32).collect();
        audio.extend((0..8000).map(|n| 0.0316 * (0.3 * f64::from(n)).sin() as f32));
        audio
    }

    fn peak(audio: &[f32]) -> f32 {
        audio.iter().fold(0.0, |peak, sample| peak.max(sample.abs()))
    }

    #[test]
    fn gain_control_raises_what_is_weak_up_to_its_depth() {
        let mut audio = carrier_and_gap();
        DrawnAgc { attack_ms: 2.0, release_ms: 60.0, depth_db: 20.0 }.apply(&mut audio);
        assert!((peak(&audio[4000..8000]) - 1.0).abs() < 0.2, "{}", peak(&audio[4000..8000]));
        assert!((peak(&audio[15_000..]) - 0.316).abs() < 0.02, "{}", peak(&audio[15_000..]));
        assert!(peak(&audio[8000..8100]) < 0.06);
    }

    #[test]
    fn a_gate_silences_what_is_below_its_threshold_after_its_hold() {
        let mut audio = carrier_and_gap();
        let clean = audio.clone();
        DrawnGate { threshold_db: -20.0, hold_ms: 100.0 }.apply(&mut audio);
        assert_eq!(audio[200..9600], clean[200..9600]);
        assert_eq!(peak(&audio[12_000..]), 0.0);
    }
}
