//! Random generators of the effects.

use rand_chacha::ChaCha8Rng;

use crate::random;

/// Generators that one draw is split into. Their numbers never change, because a seed's results depend on them.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Speed = 1,
    Reverb = 2,
    Noise = 3,
    Volume = 4,
    TimeMasks = 5,
    FrequencyMasks = 6,
    SpecAugment = 7,
    Lowercase = 8,
    StripPunctuation = 9,
}

impl Stream {
    /// Returns the effect's generator for a draw.
    pub fn of(self, draw: u64) -> ChaCha8Rng {
        random::stream(draw, self as u64)
    }
}
