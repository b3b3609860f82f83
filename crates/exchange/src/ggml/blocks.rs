//! Quantised blocks: 32 values with a common scale.
//!
//! Scale and rounding are those of ggml's own quantisation to the last bit, so that a file is the one that whisper.cpp's
//! tool makes of the same f32 weights.

use half::f16;

/// Number of values with a common scale.
pub(super) const BLOCK: usize = 32;

/// Encodes blocks of a scale and 32 signed bytes. The largest value becomes ±127.
pub(super) fn q8_0(data: &[f32]) -> Vec<u8> {
    let (blocks, _) = data.as_chunks::<BLOCK>();
    let mut bytes = Vec::with_capacity(blocks.len() * (2 + BLOCK));
    for block in blocks {
        let scale = largest(block).abs() / 127.0;
        let inverse = inverse(scale);
        bytes.extend(f16::from_f32(scale).to_le_bytes());
        bytes.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    }
    bytes
}

/// Encodes blocks of a scale, the fifth bits of 32 numbers from 0 to 31, and their lower four bits. The number 16 stands
/// for zero, and 0 for the value of largest magnitude; so the scale's sign is the opposite of that value's.
pub(super) fn q5_0(data: &[f32]) -> Vec<u8> {
    let (blocks, _) = data.as_chunks::<BLOCK>();
    let mut bytes = Vec::with_capacity(blocks.len() * (2 + 4 + BLOCK / 2));
    for block in blocks {
        let scale = largest(block) / -16.0;
        let inverse = inverse(scale);
        let numbers = block.map(|value| ((value * inverse + 16.5) as u8).min(31));
        let fifth_bits =
            numbers.iter().enumerate().fold(0u32, |bits, (at, number)| bits | u32::from(number >> 4) << at);
        bytes.extend(f16::from_f32(scale).to_le_bytes());
        bytes.extend(fifth_bits.to_le_bytes());
        // A byte holds the number at its place, and above it the one half a block further on.
        let (first, second) = numbers.split_at(BLOCK / 2);
        bytes.extend(first.iter().zip(second).map(|(low, high)| (low & 15) | (high & 15) << 4));
    }
    bytes
}

/// Returns the first value of largest magnitude.
fn largest(block: &[f32; BLOCK]) -> f32 {
    block.iter().fold(0.0, |largest: f32, value| if value.abs() > largest.abs() { *value } else { largest })
}

/// Returns 1 / scale; 0 for a block of zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scale(block: &[u8]) -> f32 {
        f16::from_le_bytes([block[0], block[1]]).to_f32()
    }

    fn decode_q8_0(block: &[u8]) -> Vec<f32> {
        block[2..].iter().map(|byte| f32::from(*byte as i8) * scale(block)).collect()
    }

    fn decode_q5_0(block: &[u8]) -> Vec<f32> {
        let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
        let number = |at: usize| {
            let byte = block[6 + at % 16];
            let low = if at < 16 { byte & 15 } else { byte >> 4 };
            f32::from(low) + if high >> at & 1 == 1 { 16.0 } else { 0.0 }
        };
        (0..BLOCK).map(|at| (number(at) - 16.0) * scale(block)).collect()
    }

    #[test]
    fn a_block_of_8_bits_is_the_one_worked_out_by_hand() {
        let mut block = [0.0; BLOCK];
        // The scale is 254 / 127 = 2.
        block[..5].copy_from_slice(&[-254.0, 1.0, -1.0, 0.9, 127.0]);
        let bytes = q8_0(&block);
        assert_eq!(bytes.len(), 34);
        assert_eq!(bytes[..2], f16::from_f32(2.0).to_le_bytes());
        // Halves are rounded away from zero.
        assert_eq!(bytes[2..8], [-127i8, 1, -1, 0, 64, 0].map(|value| value as u8));
    }

    #[test]
    fn a_block_of_5_bits_is_the_one_worked_out_by_hand() {
        let mut block = [0.0; BLOCK];
        // The scale is 16 / -16 = -1: a value v becomes 16 - v, and 31 at most.
        block[..4].copy_from_slice(&[16.0, 1.0, -15.0, -16.0]);
        block[16] = 3.0;
        let bytes = q5_0(&block);
        assert_eq!(bytes.len(), 22);
        assert_eq!(bytes[..2], f16::from_f32(-1.0).to_le_bytes());
        // 0, 15, 31, 31, then 16 for each zero; and 13 at place 16.
        assert_eq!(bytes[2..6], 0b1111_1111_1111_1110_1111_1111_1111_1100u32.to_le_bytes());
        assert_eq!(bytes[6..11], [0xD0, 0x0F, 0x0F, 0x0F, 0x00]);
        assert_eq!(decode_q5_0(&bytes)[..4], [16.0, 1.0, -15.0, -15.0]);
    }

    #[test]
    fn zeros_stay_zeros() {
        assert_eq!(decode_q8_0(&q8_0(&[0.0; BLOCK])), [0.0; BLOCK]);
        assert_eq!(decode_q5_0(&q5_0(&[0.0; BLOCK])), [0.0; BLOCK]);
    }

    proptest! {
        #[test]
        fn no_value_is_off_by_more_than_half_a_step(values in prop::collection::vec(-3.0f32..3.0, BLOCK)) {
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            // The scale itself is rounded to f16, which moves the largest value by one part in 2048.
            let slack = largest / 2048.0 + 1e-6;
            for (value, back) in values.iter().zip(decode_q8_0(&q8_0(&values))) {
                prop_assert!((value - back).abs() <= largest / 254.0 + slack, "{value} {back}");
            }
            for (value, back) in values.iter().zip(decode_q5_0(&q5_0(&values))) {
                // The end of the range opposite to the largest value has 15 steps and not 16.
                let step = largest / 16.0;
                let most = if value.abs() > 15.0 * step { step } else { step / 2.0 };
                prop_assert!((value - back).abs() <= most + slack, "{value} {back}");
            }
        }
    }
}
