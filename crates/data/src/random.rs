//! Random draws for samples. Every sample has a generator of its own, so none depends on another or on a thread.

use rand::{RngExt, SeedableRng, distr::uniform::SampleRange};
use rand_chacha::ChaCha8Rng;

/// Smallest and largest value of a draw; twice the same number fixes it.
pub type Range = [f32; 2];

/// Returns the generator of the sample at `index`. ChaCha's streams are independent of each other, so samples are too.
pub fn stream(seed: u64, index: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index);
    rng
}

/// Returns a value from the range, uniformly distributed.
pub fn between(rng: &mut ChaCha8Rng, [low, high]: Range) -> f32 {
    (low + (high - low) * rng.random::<f32>()).clamp(low, high)
}

/// Returns a magnitude from the range, with a random sign.
pub fn either_way(rng: &mut ChaCha8Rng, range: Range) -> f32 {
    let size = between(rng, range);
    if rng.random() { size } else { -size }
}

/// Returns a whole number from the range, uniformly distributed. The range must not be empty.
pub fn whole<R: SampleRange<usize>>(rng: &mut ChaCha8Rng, range: R) -> usize {
    rng.random_range(range)
}

/// Returns true with this probability.
pub fn chance(rng: &mut ChaCha8Rng, probability: f32) -> bool {
    rng.random::<f32>() < probability
}

/// Returns a random item of a list that must not be empty.
pub fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// Returns the index of a weight, drawn with a probability in proportion to it. The sum must be positive.
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
