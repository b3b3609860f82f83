//! Random draws of samples: every sample has a generator of its own, so none depends on another or on a thread.

use rand::{RngExt, SeedableRng, distr::uniform::SampleRange};
use rand_chacha::ChaCha8Rng;

/// The least and the most a drawn value may be; twice the same number fixes it.
pub type Range = [f32; 2];

/// The generator of the sample at `index`. ChaCha's streams are independent of each other, so samples are too.
pub fn stream(seed: u64, index: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index);
    rng
}

/// A value from the range, each equally likely.
pub fn between(rng: &mut ChaCha8Rng, [low, high]: Range) -> f32 {
    (low + (high - low) * rng.random::<f32>()).clamp(low, high)
}

/// A size from the range, with either sign.
pub fn either_way(rng: &mut ChaCha8Rng, range: Range) -> f32 {
    let size = between(rng, range);
    if rng.random() { size } else { -size }
}

/// A whole number from the range, each equally likely. The range must not be empty.
pub fn whole<R: SampleRange<usize>>(rng: &mut ChaCha8Rng, range: R) -> usize {
    rng.random_range(range)
}

/// Whether something of this probability happens.
pub fn chance(rng: &mut ChaCha8Rng, probability: f32) -> bool {
    rng.random::<f32>() < probability
}

/// One of a list that must not be empty.
pub fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// The index of one weight, drawn in proportion. The sum must be positive.
pub fn weighted(rng: &mut ChaCha8Rng, weights: impl Iterator<Item = f32> + Clone) -> usize {
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
