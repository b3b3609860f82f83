//! Random generators of the radio path.

use rand_chacha::ChaCha8Rng;

use undertone_data::random;

/// Generators of one clip's radio path, so that one effect does not change the draws of another. Their numbers are
/// distinct from those of other augmentations, and never change, because a seed's results depend on them.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Channel = 32,
    Drift = 33,
    Qsb = 34,
    Qrm = 35,
    Qrn = 36,
    Filter = 37,
    Flutter = 38,
    Echo = 39,
    Band = 40,
    Agc = 41,
    Floor = 42,
    Hum = 43,
    Gate = 44,
    Overload = 45,
    Audio = 46,
    Rate = 47,
    Codec = 48,
    Ways = 49,
    Noise = 50,
    Dither = 51,
}

impl Stream {
    /// Returns the effect's generator for a draw.
    pub fn of(self, draw: u64) -> ChaCha8Rng {
        random::stream(draw, self as u64)
    }
}
