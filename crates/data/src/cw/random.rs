//! Draws, all from one generator per clip.

use super::Range;
use rand::{RngExt, SeedableRng, distr::uniform::SampleRange};
use rand_chacha::ChaCha8Rng;

/// The generator of one clip. ChaCha's streams are independent of each other, so clips are too.
pub(crate) fn stream(seed: u64, index: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index);
    rng
}

pub(crate) fn between(rng: &mut ChaCha8Rng, [low, high]: Range) -> f32 {
    (low + (high - low) * rng.random::<f32>()).clamp(low, high)
}

/// A size from the range, and either sign.
pub(super) fn either_way(rng: &mut ChaCha8Rng, range: Range) -> f32 {
    let size = between(rng, range);
    if rng.random() { size } else { -size }
}

pub(super) fn whole<R: SampleRange<usize>>(rng: &mut ChaCha8Rng, range: R) -> usize {
    rng.random_range(range)
}

pub(crate) fn chance(rng: &mut ChaCha8Rng, probability: f32) -> bool {
    rng.random::<f32>() < probability
}

/// One of a list that must not be empty.
pub(super) fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// The place of one weight, drawn in proportion. The sum must be positive.
pub(super) fn weighted(rng: &mut ChaCha8Rng, weights: impl Iterator<Item = f32> + Clone) -> usize {
    let sum: f64 = weights.clone().map(f64::from).sum();
    let mut left = sum * rng.random::<f64>();
    let mut last = 0;
    for (place, weight) in weights.map(f64::from).enumerate().filter(|(_, weight)| *weight > 0.0) {
        last = place;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}
