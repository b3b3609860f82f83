//! The order of an epoch.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Order of the samples in an epoch; each batch is the next few of them.
pub trait Order: Send + Sync {
    /// Returns the order of an epoch. It depends on the epoch alone, and has the same length for every epoch.
    fn epoch(&self, epoch: u64) -> Vec<usize>;
}

impl<O: Order + ?Sized> Order for Box<O> {
    fn epoch(&self, epoch: u64) -> Vec<usize> {
        (**self).epoch(epoch)
    }
}

/// Returns the indices `0..len` in the order of an epoch, which depends on seed and epoch alone.
///
/// Fisher–Yates from the back: for `i` from `len - 1` down to 1, swap `i` with a `j` from `0..=i`. The generator is
/// ChaCha8 with the key `seed ‖ epoch ‖ "undertone order\0"` (both numbers little-endian), and `j` is the upper word of
/// `next_u64() * (i + 1)`, whose bias is below `len / 2^64`. The algorithm is implemented here, so that the order does
/// not change with the sampling code of a dependency.
pub fn epoch_order(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    shuffle(&mut order, &mut generator(b"undertone order\0", seed, epoch));
    order
}

/// Returns ChaCha8 with the key `seed ‖ epoch ‖ purpose`.
pub(super) fn generator(purpose: &[u8; 16], seed: u64, epoch: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    key[16..].copy_from_slice(purpose);
    ChaCha8Rng::from_seed(key)
}

/// Fisher–Yates from the back, as described at [`epoch_order`].
pub(super) fn shuffle<T>(items: &mut [T], rng: &mut ChaCha8Rng) {
    for i in (1..items.len()).rev() {
        let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
        items.swap(i, j as usize);
    }
}
