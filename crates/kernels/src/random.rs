//! Random numbers as a function of seed and index.

/// Returns dropout's factor of the element at `index`: 0 with probability `p`, else `1 / (1 - p)`.
///
/// A counter-based generator needs no state: masks are recomputed in the backward pass instead of being kept, and do
/// not depend on the order of work.
#[inline(always)]
pub(crate) fn kept(seed: u64, index: u64, p: f32) -> f32 {
    // 24 bits, which f32 holds exactly.
    let uniform = (hash(seed, index) >> 8) as f32 * (1.0 / (1_u32 << 24) as f32);
    if uniform < p { 0.0 } else { 1.0 / (1.0 - p) }
}

/// Returns 32 well-mixed bits: two rounds of a 32-bit finaliser, one for each half of the seed, in arithmetic that
/// vectorises.
#[inline(always)]
fn hash(seed: u64, index: u64) -> u32 {
    let (low, high) = (index as u32, (index >> 32) as u32);
    mix(mix(low ^ seed as u32).wrapping_add(high) ^ (seed >> 32) as u32)
}

/// A bijection of 32 bits in which every input bit changes every output bit with probability near a half.
#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_share_that_was_asked_for() {
        for (seed, p) in [(1, 0.1_f32), (u64::MAX, 0.5), (7, 0.9)] {
            let n = 200_000;
            let dropped = (0..n).filter(|i| kept(seed, *i, p) == 0.0).count() as f32 / n as f32;
            assert!((dropped - p).abs() < 0.005, "{dropped} of the elements were dropped, not {p}");
        }
    }

    #[test]
    fn neighbours_and_seeds_are_independent() {
        let n = 100_000_u64;
        let both = |a: &dyn Fn(u64) -> bool, b: &dyn Fn(u64) -> bool| {
            (0..n).filter(|i| a(*i) && b(*i)).count() as f32 / n as f32
        };
        let dropped = |seed: u64, offset: u64| move |i: u64| kept(seed, i + offset, 0.5) == 0.0;
        for (seed, offset) in [(1, 1), (1, 1 << 32), (2, 0), (1 << 32 | 1, 0)] {
            let share = both(&dropped(1, 0), &dropped(seed, offset));
            assert!((share - 0.25).abs() < 0.01, "seed {seed}, offset {offset}: {share}");
        }
    }
}
