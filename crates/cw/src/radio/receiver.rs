//! The receiver, from its filter to the loudspeaker.

use serde::{Deserialize, Serialize};

use super::channel::amplitude;
use super::stream::Stream;
use super::{
    Agc, AudioBand, DrawnAgc, DrawnAudioBand, DrawnBand, DrawnFloor, DrawnGate, DrawnHum, Floor, Gate, Hum, SteepBand,
};
use undertone_data::bounds::BoundsError;
use undertone_data::effect;
use undertone_data::random::Range;

/// Effects of a receiver on everything it receives (`receiver`), in this order. Every effect is off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Receiver {
    /// A steep filter.
    pub band: SteepBand,
    /// Automatic gain control.
    pub agc: Agc,
    /// Noise of the receiver itself.
    pub floor: Floor,
    /// Hum of the mains.
    pub hum: Hum,
    /// A noise gate.
    pub gate: Gate,
    /// An overloaded amplifier.
    pub overload: Overload,
    /// Lower and upper limit of its sound.
    pub audio: AudioBand,
}

effect! {
    /// An amplifier that clips (`receiver.overload`), with an optional offset.
    pub struct Overload at "receiver.overload" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Level of the carrier above the clipping point, in decibels.
        pub drive_db: Range = [-3.0, 20.0], range(-20.0, 60.0) => between;
        /// Constant that is added before clipping, relative to the carrier's amplitude, upwards or downwards.
        pub offset: Range = [0.0, 0.2], range(0.0, 1.0) => either_way;
    }

    /// Overload in one clip.
    pub struct DrawnOverload;
}

/// The receiver of one clip.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DrawnReceiver {
    /// A steep filter.
    pub band: Option<DrawnBand>,
    /// Automatic gain control.
    pub agc: Option<DrawnAgc>,
    /// Noise of the receiver itself.
    pub floor: Option<DrawnFloor>,
    /// Hum of the mains.
    pub hum: Option<DrawnHum>,
    /// A noise gate.
    pub gate: Option<DrawnGate>,
    /// An overloaded amplifier.
    pub overload: Option<DrawnOverload>,
    /// Lower and upper limit of its sound.
    pub audio: Option<DrawnAudioBand>,
}

impl Receiver {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `receiver`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        self.band.validate()?;
        self.agc.validate()?;
        self.floor.validate()?;
        self.hum.validate()?;
        self.gate.validate()?;
        self.overload.validate()?;
        self.audio.validate()
    }

    /// Draws the receiver of a clip whose carrier has this pitch.
    pub fn draw(&self, pitch_hz: f32, draw: u64) -> DrawnReceiver {
        DrawnReceiver {
            band: self.band.draw(pitch_hz, &mut Stream::Band.of(draw)),
            agc: self.agc.draw(&mut Stream::Agc.of(draw)),
            floor: self.floor.draw(&mut Stream::Floor.of(draw)),
            hum: self.hum.draw(&mut Stream::Hum.of(draw)),
            gate: self.gate.draw(&mut Stream::Gate.of(draw)),
            overload: self.overload.draw(&mut Stream::Overload.of(draw)),
            audio: self.audio.draw(pitch_hz, &mut Stream::Audio.of(draw)),
        }
    }
}

impl DrawnReceiver {
    /// Returns whether it leaves a signal unchanged.
    pub fn is_perfect(&self) -> bool {
        *self == Self::default()
    }

    /// Applies the receiver to a signal whose carrier has amplitude 1; `draw` is that of the clip.
    pub fn apply(&self, draw: u64, audio: &mut [f32]) {
        let noise = &mut Stream::Noise.of(draw);
        if let Some(band) = self.band {
            band.apply(audio);
        }
        if let Some(agc) = self.agc {
            agc.apply(audio);
        }
        if let Some(floor) = self.floor {
            floor.add(noise, audio);
        }
        if let Some(hum) = self.hum {
            hum.add(noise, audio);
        }
        if let Some(gate) = self.gate {
            gate.apply(audio);
        }
        if let Some(overload) = self.overload {
            overload.apply(audio);
        }
        if let Some(band) = self.audio {
            band.apply(audio);
        }
    }
}

impl DrawnOverload {
    fn apply(&self, audio: &mut [f32]) {
        let most = amplitude(-self.drive_db) as f32;
        for sample in audio {
            *sample = (*sample + self.offset).clamp(-most, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_clips_where_it_says() {
        let overload = Overload { probability: 1.0, drive_db: [6.0, 6.0], offset: [0.1, 0.1] };
        let receiver = Receiver { overload, ..Receiver::default() };
        let mut audio: Vec<f32> = (0..1600).map(|n| (0.3 * f64::from(n)).sin() as f32).collect();
        receiver.draw(700.0, 1).apply(1, &mut audio);
        let peak = audio.iter().fold(0f32, |peak, sample| peak.max(sample.abs()));
        assert!((peak - 0.501).abs() < 1e-3, "{peak}");
        assert!((audio.iter().sum::<f32>() / 1600.0).abs() > 0.02);
    }

    #[test]
    fn one_effect_leaves_the_draws_of_others() {
        let mut receiver = Receiver::default();
        receiver.floor.probability = 1.0;
        let alone = receiver.draw(700.0, 9);
        receiver.hum.probability = 1.0;
        receiver.agc.probability = 1.0;
        assert_eq!(receiver.draw(700.0, 9).floor, alone.floor);
        assert!((0..100).all(|draw| Receiver::default().draw(700.0, draw).is_perfect()));
    }

    #[test]
    fn refusals_name_the_key() {
        let mut receiver = Receiver::default();
        receiver.agc.release_ms = [9.0, 1.0];
        assert!(receiver.validate().unwrap_err().to_string().starts_with("receiver.agc.release_ms is [9, 1]"));
    }
}
