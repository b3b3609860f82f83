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

/// Decodes a block of a scale and 32 signed bytes.
pub(super) fn eight_bits(block: &[u8]) -> [f32; BLOCK] {
    let scale = half(block, 0);
    std::array::from_fn(|at| f32::from(block[2 + at] as i8) * scale)
}

/// Decodes a block of 4 bits a value: a scale, and the minimum if it has one; without it the number 8 stands for zero.
pub(super) fn four_bits(block: &[u8], has_minimum: bool) -> [f32; BLOCK] {
    let (scale, minimum, numbers) = scaled(block, has_minimum);
    std::array::from_fn(|at| match minimum {
        Some(minimum) => f32::from(nibble(numbers, at)) * scale + minimum,
        None => (f32::from(nibble(numbers, at)) - 8.0) * scale,
    })
}

/// Decodes a block of 5 bits a value: a scale, and the minimum if it has one; without it the number 16 stands for zero.
pub(super) fn five_bits(block: &[u8], has_minimum: bool) -> [f32; BLOCK] {
    let (scale, minimum, rest) = scaled(block, has_minimum);
    let (fifth_bits, numbers) = rest.split_at(4);
    std::array::from_fn(|at| {
        let number = f32::from(nibble(numbers, at) | (fifth_bits[at / 8] >> (at % 8) & 1) << 4);
        match minimum {
            Some(minimum) => number * scale + minimum,
            None => (number - 16.0) * scale,
        }
    })
}

/// Splits a block into scale, minimum if it has one, and the rest.
fn scaled(block: &[u8], has_minimum: bool) -> (f32, Option<f32>, &[u8]) {
    match has_minimum {
        true => (half(block, 0), Some(half(block, 2)), &block[4..]),
        false => (half(block, 0), None, &block[2..]),
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns the lower four bits of the number at a place.
fn nibble(numbers: &[u8], at: usize) -> u8 {
    if at < BLOCK / 2 { numbers[at] & 15 } else { numbers[at - BLOCK / 2] >> 4 }
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
        assert_eq!(five_bits(&bytes, false)[..4], [16.0, 1.0, -15.0, -15.0]);
    }

    #[test]
    fn zeros_stay_zeros() {
        assert_eq!(eight_bits(&q8_0(&[0.0; BLOCK])), [0.0; BLOCK]);
        assert_eq!(five_bits(&q5_0(&[0.0; BLOCK]), false), [0.0; BLOCK]);
    }

    #[test]
    fn blocks_with_a_minimum_are_the_ones_worked_out_by_hand() {
        // Scale 2 and minimum -3; the first number is 5, the one half a block on 9.
        let begin = [f16::from_f32(2.0).to_le_bytes(), f16::from_f32(-3.0).to_le_bytes()].concat();
        let mut numbers = [0; BLOCK / 2];
        numbers[0] = 0x95;
        let four = four_bits(&[begin.as_slice(), &numbers].concat(), true);
        assert_eq!((four[0], four[1], four[16]), (7.0, -3.0, 15.0));
        let five = five_bits(&[begin.as_slice(), &[1, 0, 1, 0], &numbers].concat(), true);
        assert_eq!((five[0], five[1], five[16]), (39.0, -3.0, 47.0));
        let four = four_bits(&[&begin[..2], &numbers].concat(), false);
        assert_eq!((four[0], four[1], four[16]), (-6.0, -16.0, 2.0));
    }

    proptest! {
        #[test]
        fn no_value_is_off_by_more_than_half_a_step(values in prop::collection::vec(-3.0f32..3.0, BLOCK)) {
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            // The scale itself is rounded to f16, which moves the largest value by one part in 2048.
            let slack = largest / 2048.0 + 1e-6;
            for (value, back) in values.iter().zip(eight_bits(&q8_0(&values))) {
                prop_assert!((value - back).abs() <= largest / 254.0 + slack, "{value} {back}");
            }
            for (value, back) in values.iter().zip(five_bits(&q5_0(&values), false)) {
                // The end of the range opposite to the largest value has 15 steps and not 16.
                let step = largest / 16.0;
                let most = if value.abs() > 15.0 * step { step } else { step / 2.0 };
                prop_assert!((value - back).abs() <= most + slack, "{value} {back}");
            }
        }
    }
}
