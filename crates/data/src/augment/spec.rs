//! SpecAugment.

use std::ops::Range;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::SpecAugmentConfig;
use super::stream::Stream;
use crate::random::chance;

/// Masks the first `valid` columns of `[bins, frames]` with the configured probability.
pub(super) fn mask(config: &SpecAugmentConfig, features: &mut [f32], frames: usize, valid: usize, draw: u64) {
    if valid == 0 || !chance(&mut Stream::SpecAugment.of(draw), config.p) {
        return;
    }
    let bins = features.len() / frames;
    let rows = || (0..bins).map(|bin| bin * frames..bin * frames + valid);
    let sum: f64 = rows().flat_map(|row| &features[row]).map(|value| f64::from(*value)).sum();
    let mean = (sum / (bins * valid) as f64) as f32;

    let widest = config.time_width.min((config.time_share * valid as f32) as usize);
    let mut rng = Stream::TimeMasks.of(draw);
    for _ in 0..config.time_masks {
        let masked = stripe(widest, valid, &mut rng);
        rows().for_each(|row| features[row][masked.clone()].fill(mean));
    }
    let mut rng = Stream::FrequencyMasks.of(draw);
    for _ in 0..config.freq_masks {
        let masked = stripe(config.freq_width.min(bins), bins, &mut rng);
        rows().skip(masked.start).take(masked.len()).for_each(|row| features[row].fill(mean));
    }
}

/// Returns a stripe of 0 to `widest` out of `length`, at a random position.
fn stripe(widest: usize, length: usize, rng: &mut ChaCha8Rng) -> Range<usize> {
    let width = rng.random_range(0..=widest);
    let start = rng.random_range(0..=length - width);
    start..start + width
}
