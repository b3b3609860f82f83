//! Parts of parameters and gradients, by rank, if the optimizer state is sharded.

use std::ops::Range;

/// A rank's part of every larger parameter, which it updates and keeps the state of (ZeRO, stage 1; Rajbhandari et al.,
/// 2020). Parts are contiguous ranges of elements in rank order, of sizes as equal as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub rank: usize,
    pub count: usize,
}

/// Minimum size of a parameter that is divided. Every rank updates smaller ones whole: biases and norms are a
/// thousandth of a model, and each would be a message.
const SMALLEST: usize = 4096;

impl Shard {
    /// Whether a parameter of so many elements is divided.
    pub fn divides(self, size: usize) -> bool {
        size >= SMALLEST.max(self.count)
    }

    /// Number of elements of each rank's part of such a parameter.
    pub fn lengths(self, size: usize) -> Vec<usize> {
        (0..self.count).map(|rank| Self { rank, ..self }.part(size).len()).collect()
    }

    /// Range that this rank updates of a parameter of so many elements.
    pub fn range(self, size: usize) -> Range<usize> {
        if self.divides(size) { self.part(size) } else { 0..size }
    }

    fn part(self, size: usize) -> Range<usize> {
        let start = |rank: usize| size / self.count * rank + rank.min(size % self.count);
        start(self.rank)..start(self.rank + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_of_a_larger_parameter_is_one_ranks(size in SMALLEST..20_000, count in 1usize..9) {
            let parts: Vec<Range<usize>> = (0..count).map(|rank| Shard { rank, count }.range(size)).collect();
            prop_assert_eq!((parts[0].start, parts[count - 1].end), (0, size));
            prop_assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            prop_assert!(lengths.iter().max().expect("some") - lengths.iter().min().expect("some") <= 1);
            prop_assert_eq!(Shard { rank: 0, count }.lengths(size), lengths);
        }
    }

    #[test]
    fn a_small_parameter_is_moved_by_all() {
        assert_eq!(Shard { rank: 1, count: 2 }.range(SMALLEST - 1), 0..SMALLEST - 1);
        assert!(!Shard { rank: 0, count: 8192 }.divides(5000));
    }
}
