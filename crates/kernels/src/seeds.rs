//! Derivation of seeds: from one seed of the configuration to different random numbers for every step, epoch, sample
//! and task.
//!
//! The results of these functions determine what a seed means, so they never change. They are in this crate because it
//! is the lowest one on which data, operations, training and phases all depend.

/// Fractional part of the golden ratio in 64 bits, odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Fractional part of √2 in 64 bits.
const ROOT_2: u64 = 0x6A09_E667_F3BC_C908;

/// Returns the seed of a numbered item: an optimizer step, an epoch, a window of a shuffle. Number 0 has the seed
/// itself.
pub fn of_number(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(GOLDEN)
}

/// Returns the seed of a named item, such as a task; it does not depend on other items (FNV-1a).
pub fn of_name(seed: u64, name: &str) -> u64 {
    name.bytes()
        .fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Returns the seed of a sample by its number among all samples of all epochs: neighbouring ones are unrelated.
pub fn of_sample(seed: u64, ordinal: u64) -> u64 {
    mixed(seed ^ mixed(ordinal))
}

/// Returns the seed of the source at this position of a list: the first has the seed itself.
pub fn of_source(seed: u64, place: u64) -> u64 {
    if place == 0 { seed } else { seed.wrapping_add(mixed(place)) }
}

/// Returns the seed of one of the pieces that a sample is composed of.
pub fn of_piece(sample: u64, piece: u64) -> u64 {
    mixed(sample.wrapping_add(piece))
}

/// Returns the seed of one decision about a sample, by its name: random draws of different decisions are independent.
pub fn of_decision(sample: u64, decision: &str) -> u64 {
    decision.bytes().fold(sample, |hash, byte| mixed(hash ^ u64::from(byte)))
}

/// Returns the seed of validation data, different from that of training data.
pub fn of_validation(seed: u64) -> u64 {
    seed ^ GOLDEN
}

/// Returns the seed of test data, different from those of training and validation data.
pub fn of_test(seed: u64) -> u64 {
    seed ^ ROOT_2
}

/// SplitMix64's finaliser (Steele et al., 2014): neighbouring numbers become unrelated ones.
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(GOLDEN);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_never_change() {
        // Computed independently, with integers in Python.
        assert_eq!([0, 1, 2].map(|number| of_number(42, number)), [42, 0x9E37_79B9_7F4A_7C3F, 0x3C6E_F372_FE94_F800]);
        assert_eq!([of_name(42, ""), of_name(42, "copy")], [0xCBF2_9CE4_8422_230F, 0x2738_E0D1_7F82_D31E]);
        assert_eq!([0, 1].map(|ordinal| of_sample(42, ordinal)), [0x4D9B_3F1E_C9CF_6B1B, 0x7EB3_B394_AC9E_FC29]);
        assert_eq!([0, 1].map(|place| of_source(42, place)), [42, 0x910A_2DEC_8902_5CEB]);
        assert_eq!([of_piece(42, 1), of_decision(42, "cut")], [0xBA69_EC90_EB4F_EF88, 0xE497_6574_59E2_3D91]);
        assert_eq!([of_validation(42), of_test(42)], [0x9E37_79B9_7F4A_7C3F, 0x6A09_E667_F3BC_C922]);
        // The first number of SplitMix64 seeded with 0.
        assert_eq!(mixed(0), 0xE220_A839_7B1D_CDAF);
    }
}
