//! Parameters of one clip, drawn from the ranges of the configuration.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{Drift, Fading, Interference, Static};
use undertone_data::random::{between, chance, either_way, whole};

/// Drift of the frequency in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnDrift {
    /// Steady drift, in hertz per second.
    pub hz_per_s: f32,
    /// Random walk: standard deviation after a second, in hertz.
    pub walk_hz: f32,
}

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

/// Static in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnStatic {
    /// Bursts per second on average.
    pub rate_per_s: f32,
    /// Level at the start of a burst relative to the carrier, in decibels.
    pub level_db: f32,
    /// Time constant of a burst, in milliseconds.
    pub decay_ms: f32,
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

impl DrawnDrift {
    /// Draws whether a clip has this effect, and its strength.
    pub fn draw(drift: &Drift, rng: &mut ChaCha8Rng) -> Option<Self> {
        chance(rng, drift.probability)
            .then(|| Self { hz_per_s: either_way(rng, drift.hz_per_s), walk_hz: between(rng, drift.walk_hz) })
    }
}

impl DrawnFading {
    /// Draws whether a clip has this effect, and its strength.
    pub fn draw(qsb: &Fading, rng: &mut ChaCha8Rng) -> Option<Self> {
        chance(rng, qsb.probability).then(|| Self {
            depth_db: between(rng, qsb.depth_db),
            period_s: between(rng, qsb.period_s),
            phase: between(rng, [0.0, 1.0]),
        })
    }
}

impl DrawnStatic {
    /// Draws whether a clip has this effect, and its strength.
    pub fn draw(qrn: &Static, rng: &mut ChaCha8Rng) -> Option<Self> {
        chance(rng, qrn.probability).then(|| Self {
            rate_per_s: between(rng, qrn.rate_per_s),
            level_db: between(rng, qrn.level_db),
            decay_ms: between(rng, qrn.decay_ms),
        })
    }
}

impl DrawnStation {
    /// Draws the other stations of a clip, if it has any, around the wanted pitch.
    pub fn draw(qrm: &Interference, wanted_hz: f32, rng: &mut ChaCha8Rng) -> Vec<Self> {
        if !chance(rng, qrm.probability) {
            return Vec::new();
        }
        let stations = whole(rng, qrm.stations[0]..=qrm.stations[1]);
        (0..stations).map(|_| Self::draw_one(qrm, wanted_hz, rng)).collect()
    }

    fn draw_one(qrm: &Interference, wanted_hz: f32, rng: &mut ChaCha8Rng) -> Self {
        let offset = either_way(rng, qrm.offset_hz);
        // A receiver's audio ends at 100 Hz; a station below that is moved to the same distance above the wanted pitch.
        let pitch_hz = if wanted_hz + offset < 100.0 { wanted_hz - offset } else { wanted_hz + offset };
        Self { pitch_hz, wpm: between(rng, qrm.wpm), level_db: between(rng, qrm.level_db) }
    }
}
