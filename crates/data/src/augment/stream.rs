//! What is random, and from where.

use rand_chacha::ChaCha8Rng;

use crate::random;

/// The generators that one draw is split into. Their numbers are part of what a seed means: they never change.
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
    /// Its generator for a draw.
    pub fn of(self, draw: u64) -> ChaCha8Rng {
        random::stream(draw, self as u64)
    }
}
