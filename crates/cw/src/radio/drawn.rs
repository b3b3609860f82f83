//! Fading and other stations of one clip, drawn from the ranges of the configuration.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{Fading, Interference};
use undertone_data::random::{between, chance, either_way, whole};

/// Fading in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnFading {
    /// Depth, in decibels.
    pub depth_db: f32,
    /// Time from peak to peak, in seconds.
    pub period_s: f32,
    /// Position in that period at which the clip starts, from 0 (a peak) to 1.
    pub phase: f32,
}

/// One other station in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnStation {
    /// Pitch, in hertz.
    pub pitch_hz: f32,
    /// Speed, in words per minute.
    pub wpm: f32,
    /// Level relative to the wanted carrier, in decibels.
    pub level_db: f32,
}

impl Fading {
    /// Draws whether a clip has this effect, and its strength.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> Option<DrawnFading> {
        chance(rng, self.probability).then(|| DrawnFading {
            depth_db: between(rng, self.depth_db),
            period_s: between(rng, self.period_s),
            phase: between(rng, [0.0, 1.0]),
        })
    }
}

impl Interference {
    /// Draws the other stations of a clip, if it has any, around the wanted pitch.
    pub fn draw(&self, wanted_hz: f32, rng: &mut ChaCha8Rng) -> Vec<DrawnStation> {
        if !chance(rng, self.probability) {
            return Vec::new();
        }
        let stations = whole(rng, self.stations[0]..=self.stations[1]);
        (0..stations).map(|_| self.draw_one(wanted_hz, rng)).collect()
    }

    fn draw_one(&self, wanted_hz: f32, rng: &mut ChaCha8Rng) -> DrawnStation {
        let offset = either_way(rng, self.offset_hz);
        // A receiver's audio ends at 100 Hz; a station below that is moved to the same distance above the wanted pitch.
        let pitch_hz = if wanted_hz + offset < 100.0 { wanted_hz - offset } else { wanted_hz + offset };
        DrawnStation { pitch_hz, wpm: between(rng, self.wpm), level_db: between(rng, self.level_db) }
    }
}
