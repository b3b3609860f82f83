//! Vectors that are written once, without being zeroed first.

use std::mem::MaybeUninit;

/// Memory that a kernel must write.
pub(crate) type Uninit<T = f32> = MaybeUninit<T>;

/// Returns a vector of `len` elements which `fill` writes. Zeroing every output first would cost one more pass over
/// memory, and a training step writes gigabytes.
///
/// # Safety
/// `fill` writes every element.
#[allow(unsafe_code)]
pub(crate) unsafe fn written<T>(len: usize, fill: impl FnOnce(&mut [Uninit<T>])) -> Vec<T> {
    let mut vector = Vec::with_capacity(len);
    fill(&mut vector.spare_capacity_mut()[..len]);
    // SAFETY: the capacity is at least `len`, and the caller's `fill` has written all of it.
    unsafe { vector.set_len(len) };
    vector
}

/// Returns `slice` as initialised memory.
///
/// # Safety
/// Every element is initialised.
#[allow(unsafe_code)]
pub(crate) unsafe fn assume_written(slice: &mut [Uninit]) -> &mut [f32] {
    // SAFETY: `MaybeUninit<f32>` has f32's layout, and the caller guarantees initialised contents.
    unsafe { &mut *(std::ptr::from_mut(slice) as *mut [f32]) }
}
