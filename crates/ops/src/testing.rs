//! Helpers of this crate's tests.

use burn::tensor::{Device, Tensor};

pub fn device() -> Device {
    Device::flex()
}

pub fn assert_close<const D: usize>(actual: Tensor<D>, expected: &[f32], tolerance: f32) {
    let actual: Vec<f32> = actual.try_into_vec_as().expect("f32 values");
    assert_eq!(actual.len(), expected.len(), "lengths");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "at {i}: {a} is not {e} within {tolerance}");
    }
}

/// `n` values in [-1, 1], the same for the same seed.
pub fn pseudo_random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        })
        .collect()
}
