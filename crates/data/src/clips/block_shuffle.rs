use std::ops::Range;

use undertone_kernels::seeds;

use crate::loader::{Order, epoch_order};

/// An order that is nearly random and reads nearly sequentially, for samples that are stored in blocks: the row groups
/// of Parquet files, or tar shards.
///
/// The blocks are shuffled, and then the samples within every few blocks. Reading needs only those few blocks at a
/// time, and a batch contains samples of all of them. As every order, it depends on seed and epoch alone.
#[derive(Clone, Debug)]
pub struct BlockShuffle {
    blocks: Vec<Range<usize>>,
    window: usize,
    seed: u64,
}

impl BlockShuffle {
    /// Returns an order that shuffles within `window` blocks at a time (at least 1). The blocks are those of
    /// [`Clips::blocks`](super::Clips::blocks): together they contain each sample once.
    pub fn new(blocks: &[Range<usize>], window: usize, seed: u64) -> Self {
        Self { blocks: blocks.to_vec(), window: window.max(1), seed }
    }
}

impl Order for BlockShuffle {
    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let blocks = epoch_order(self.blocks.len(), self.seed, epoch);
        let mut order = Vec::with_capacity(self.blocks.iter().map(Range::len).sum());
        for (number, window) in (1u64..).zip(blocks.chunks(self.window)) {
            let samples: Vec<usize> = window.iter().flat_map(|block| self.blocks[*block].clone()).collect();
            let seed = seeds::of_number(self.seed, number);
            order.extend(epoch_order(samples.len(), seed, epoch).into_iter().map(|at| samples[at]));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(lengths: &[usize]) -> Vec<Range<usize>> {
        let mut start = 0;
        let block = |length: &usize| {
            start += length;
            start - length..start
        };
        lengths.iter().map(block).collect()
    }

    #[test]
    fn a_window_holds_its_blocks_alone_and_mixes_them() {
        let blocks = blocks(&[100; 12]);
        let order = BlockShuffle::new(&blocks, 3, 7).epoch(0);
        for window in order.chunks(300) {
            let mut seen: Vec<_> = window.iter().map(|sample| sample / 100).collect();
            // Of 30 samples in a row out of three blocks, one block has none with a chance of 3 · (2/3)^30 = 2e-5.
            for part in seen.chunks(30) {
                assert_eq!(part.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 3);
        }
    }

    #[test]
    fn seed_and_epoch_alone_decide() {
        let blocks = blocks(&[50; 8]);
        let order = |seed, epoch| BlockShuffle::new(&blocks, 2, seed).epoch(epoch);
        assert_eq!(order(1, 5), order(1, 5));
        assert_ne!(order(1, 5), order(2, 5));
        assert_ne!(order(1, 5), order(1, 6));
    }

    proptest! {
        #[test]
        fn every_sample_comes_once(lengths in prop::collection::vec(0..40usize, 0..20), window in 0..6usize, epoch in any::<u64>()) {
            let mut order = BlockShuffle::new(&blocks(&lengths), window, 3).epoch(epoch);
            order.sort_unstable();
            prop_assert_eq!(order, (0..lengths.iter().sum()).collect::<Vec<_>>());
        }
    }
}
