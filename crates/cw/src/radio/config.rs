//! Settings of the effects of a radio path. A pair of numbers is a range: each clip draws its own value from it,
//! uniformly. Keys are the Q-codes of amateur radio: QSB is fading, QRN static, QRM other stations.

use serde::{Deserialize, Serialize};

use undertone_data::bounds::{BoundsError, count, probability, range};
use undertone_data::random::Range;

/// Drift of the frequency of a carrier or receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drift {
    /// Probability that a clip has this effect.
    pub probability: f32,
    /// Steady drift, in hertz per second, upwards or downwards.
    pub hz_per_s: Range,
    /// Random walk on top: standard deviation after one second, in hertz.
    pub walk_hz: Range,
}

/// Slow fading (`qsb`): the carrier's level in decibels follows a sine between 0 and minus the depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fading {
    /// Probability that a clip has this effect.
    pub probability: f32,
    /// Depth of the fading, in decibels.
    pub depth_db: Range,
    /// Time from peak to peak, in seconds.
    pub period_s: Range,
}

/// Impulsive static (`qrn`): bursts of noise that start at once and decay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Static {
    /// Probability that a clip has this effect.
    pub probability: f32,
    /// Bursts per second, at random times.
    pub rate_per_s: Range,
    /// Level at the start of a burst relative to the carrier (root mean square each), in decibels.
    pub level_db: Range,
    /// Time constant with which a burst decays, in milliseconds.
    pub decay_ms: Range,
}

/// Interference from other stations (`qrm`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Interference {
    /// Probability that a clip has this effect.
    pub probability: f32,
    /// Minimum and maximum number of stations.
    pub stations: [usize; 2],
    /// Distance of their pitch from the wanted one, in hertz, upwards or downwards.
    pub offset_hz: Range,
    /// Their speed, in words per minute.
    pub wpm: Range,
    /// Their level relative to the wanted carrier, in decibels.
    pub level_db: Range,
}

/// A receiver filter around the wanted pitch. The whole signal passes through it: carrier, noise, static and other
/// stations. The signal-to-noise ratio is that before the filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverFilter {
    /// Probability that a clip has this effect.
    pub probability: f32,
    /// Width between the -3 dB points, in hertz.
    pub width_hz: Range,
}

impl Default for Drift {
    fn default() -> Self {
        Self { probability: 0.2, hz_per_s: [0.0, 3.0], walk_hz: [0.0, 2.0] }
    }
}

impl Default for Fading {
    fn default() -> Self {
        Self { probability: 0.3, depth_db: [3.0, 15.0], period_s: [2.0, 12.0] }
    }
}

impl Default for Static {
    fn default() -> Self {
        Self { probability: 0.2, rate_per_s: [0.3, 5.0], level_db: [-6.0, 12.0], decay_ms: [0.5, 8.0] }
    }
}

impl Default for Interference {
    fn default() -> Self {
        Self {
            probability: 0.2,
            stations: [1, 2],
            offset_hz: [150.0, 1000.0],
            wpm: [15.0, 35.0],
            level_db: [-20.0, 0.0],
        }
    }
}

impl Default for ReceiverFilter {
    fn default() -> Self {
        Self { probability: 0.3, width_hz: [250.0, 1000.0] }
    }
}

impl Drift {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `drift`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("drift.probability", self.probability)?;
        range("drift.hz_per_s", self.hz_per_s, 0.0, 50.0)?;
        range("drift.walk_hz", self.walk_hz, 0.0, 50.0)
    }
}

impl Fading {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `qsb`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("qsb.probability", self.probability)?;
        range("qsb.depth_db", self.depth_db, 0.0, 60.0)?;
        range("qsb.period_s", self.period_s, 0.1, 600.0)
    }
}

impl Static {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `qrn`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("qrn.probability", self.probability)?;
        range("qrn.rate_per_s", self.rate_per_s, 0.0, 50.0)?;
        range("qrn.level_db", self.level_db, -60.0, 40.0)?;
        range("qrn.decay_ms", self.decay_ms, 0.1, 50.0)
    }
}

impl Interference {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `qrm`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("qrm.probability", self.probability)?;
        count("qrm.stations", self.stations, 0, 16)?;
        range("qrm.offset_hz", self.offset_hz, 10.0, 3000.0)?;
        range("qrm.wpm", self.wpm, 5.0, 60.0)?;
        range("qrm.level_db", self.level_db, -60.0, 40.0)
    }
}

impl ReceiverFilter {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns an error that names the invalid key, starting with `filter`.
    pub fn validate(&self) -> Result<(), BoundsError> {
        probability("filter.probability", self.probability)?;
        range("filter.width_hz", self.width_hz, 20.0, 3000.0)
    }
}
