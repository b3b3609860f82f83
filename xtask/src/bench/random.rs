//! Seeded random choices and numbers for benchmarks.

/// A source of choices (SplitMix64; Steele, Lea and Flood, 2014): the same for a seed on every machine.
pub struct Random(u64);

impl Random {
    /// Choices that follow from a seed, a word and a number.
    pub fn new(seed: u64, word: &str, number: u64) -> Self {
        let mut random = Self(seed);
        for part in word.bytes().map(u64::from).chain([number]) {
            random.0 ^= part;
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// At least 0 and below 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
