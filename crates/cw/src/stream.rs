//! Random generators of the effects.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use undertone_data::random;

/// Generators of a clip's effects beyond its keying and its first channel, which draw from the clip's own generator. So
/// one effect does not change the draws of another. Their numbers are distinct from those of [`crate::radio`],
/// and never change, because a seed's results depend on them.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Noiseless = 128,
    Habits = 129,
    Cut = 130,
    Brief = 131,
    Idle = 132,
    Muting = 133,
    Distortion = 134,
    Ripple = 135,
    Backwave = 136,
    Clicks = 137,
    Sound = 138,
    BriefPlace = 139,
    CutPlace = 140,
    RipplePhase = 141,
    BackwavePhase = 142,
    ClickNoise = 143,
    Narrowed = 144,
}

impl Stream {
    /// Returns the effect's generator for a draw.
    pub fn of(self, draw: u64) -> ChaCha8Rng {
        random::stream(draw, self as u64)
    }
}

/// Returns the draw from which all of a clip's streams are derived.
pub(super) fn of_clip(seed: u64, index: u64) -> u64 {
    // An arbitrary constant separates these generators from those of the clips: the first digits of pi.
    random::stream(seed ^ 0x3141_5926_5358_9793, index).random()
}
