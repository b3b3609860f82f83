//! What one clip is like: drawn before anything is synthesised, and handed out with the clip.

use super::{CwConfig, CwSource, keying::Fist, text};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use undertone_data::radio::{DrawnDrift, DrawnFading, DrawnStatic, DrawnStation};
use undertone_data::random::{between, chance, either_way};

/// How a clip was made. An effect that the clip does not have is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CwInfo {
    /// What kind of text was sent; `None` when nobody sends, and then nothing below about the sender is audible.
    pub source: Option<CwSource>,
    /// Speed of the characters, in words per minute.
    pub wpm: f32,
    /// Speed of the text, in words per minute: lower than `wpm` with Farnsworth spacing.
    pub effective_wpm: f32,
    /// Timing of the hand.
    pub hand: Option<CwHandInfo>,
    /// Rise and fall time, in milliseconds.
    pub rise_ms: f32,
    /// Pitch of the carrier at the start, in hertz.
    pub pitch_hz: f32,
    /// Wandering of the carrier.
    pub drift: Option<DrawnDrift>,
    /// Pull at key-down.
    pub chirp: Option<CwChirpInfo>,
    /// Fading.
    pub qsb: Option<DrawnFading>,
    /// Static.
    pub qrn: Option<DrawnStatic>,
    /// The other stations.
    pub qrm: Vec<DrawnStation>,
    /// Power of the unfaded carrier over that of the noise in `snr_bandwidth_hz`, in decibels; `None` without noise.
    pub snr_db: Option<f32>,
    /// Bandwidth that `snr_db` is stated in, in hertz.
    pub snr_bandwidth_hz: f32,
    /// Width of the receiver's filter, in hertz.
    pub filter_hz: Option<f32>,
    /// Level of the loudest instant, in decibels relative to full scale.
    pub level_dbfs: f32,
    /// Amplitude of the unfaded carrier in the clip, full scale being 1.
    pub carrier_amplitude: f32,
}

/// Timing of a hand in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CwHandInfo {
    /// Standard deviation of marks, as a fraction.
    pub mark_jitter: f32,
    /// Standard deviation of gaps, as a fraction.
    pub gap_jitter: f32,
    /// Share of a dit in a dit and its gap.
    pub weighting: f32,
    /// Lengthening of dahs, as a fraction.
    pub swing: f32,
}

/// Chirp in one clip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CwChirpInfo {
    /// Pitch at key-down above where it settles, in hertz.
    pub hz: f32,
    /// Time constant, in milliseconds.
    pub settle_ms: f32,
}

impl CwInfo {
    /// Draws everything but the text.
    pub(super) fn draw(config: &CwConfig, rng: &mut ChaCha8Rng) -> Self {
        let c = config;
        let silent = chance(rng, c.noise_only);
        let clean = chance(rng, c.clean) && !silent;
        let source = text::draw_source(c.task, &c.text, rng);
        let wpm = between(rng, c.wpm);
        let ratio = if chance(rng, c.farnsworth.probability) { between(rng, c.farnsworth.ratio) } else { 1.0 };
        let pitch_hz = between(rng, c.pitch_hz);
        Self {
            source: (!silent).then_some(source),
            wpm,
            effective_wpm: wpm * ratio,
            hand: chance(rng, c.hand.probability).then(|| CwHandInfo {
                mark_jitter: between(rng, c.hand.mark_jitter),
                gap_jitter: between(rng, c.hand.gap_jitter),
                weighting: between(rng, c.hand.weighting),
                swing: between(rng, c.hand.swing),
            }),
            rise_ms: between(rng, c.rise_ms),
            pitch_hz,
            drift: DrawnDrift::draw(&c.drift, rng),
            chirp: chance(rng, c.chirp.probability)
                .then(|| CwChirpInfo { hz: either_way(rng, c.chirp.hz), settle_ms: between(rng, c.chirp.settle_ms) }),
            qsb: if clean { None } else { DrawnFading::draw(&c.qsb, rng) },
            qrn: if clean { None } else { DrawnStatic::draw(&c.qrn, rng) },
            // Where nobody sends, another station would be the one to copy, and the empty text would be wrong.
            qrm: if clean || silent { Vec::new() } else { DrawnStation::draw(&c.qrm, pitch_hz, rng) },
            snr_db: (!clean).then(|| between(rng, c.snr_db)),
            snr_bandwidth_hz: c.snr_bandwidth_hz,
            filter_hz: (!clean && chance(rng, c.filter.probability)).then(|| between(rng, c.filter.width_hz)),
            level_dbfs: between(rng, c.level_dbfs),
            carrier_amplitude: 1.0,
        }
    }

    pub(super) fn fist(&self) -> Fist {
        let machine = Fist::machine(self.wpm.into(), self.effective_wpm.into());
        match self.hand {
            None => machine,
            Some(hand) => Fist {
                mark_jitter: hand.mark_jitter.into(),
                gap_jitter: hand.gap_jitter.into(),
                weighting: hand.weighting.into(),
                swing: hand.swing.into(),
                ..machine
            },
        }
    }
}
