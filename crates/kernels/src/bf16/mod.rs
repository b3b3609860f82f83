//! Products of `f32` matrices that are rounded to bfloat16 first and summed in `f32`.
//!
//! `vdpbf16ps` multiplies and adds 32 pairs of bfloat16 where an FMA handles 16 pairs of `f32`: twice the peak.
//! A factor is rounded to 8 bits, to nearest even, so a product of two is off by at most 2⁻⁷ of itself; its 16 bits are
//! exact in `f32`. Subnormal numbers count as zero; infinities and NaN propagate.
//!
//! The structure is that of BLIS (Van Zee & van de Geijn, 2015). Both operands are rounded into *strips*, 16 rows of
//! `a` or 16 columns of `b` wide. Line `p` of a strip is a register with elements `2p` and `2p + 1` of each along k, as
//! the instruction requires them. A tile of 8 × 48 sums stays in 24 registers: 3 lines of `b` and 8 broadcast pairs of
//! `a` are 11 loads for 24 instructions, and Zen 4 starts one of either per cycle.
//!
//! All threads share the strips, so that each element is read and rounded once per block of 2²⁰. Packing reads memory more slowly than
//! tiles are computed, so what several products read is packed once ([`Packed`]), and what the backward pass will read is kept rounded.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

mod operand;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(target_arch = "x86_64")]
mod product;

use half::bf16;
use std::mem::MaybeUninit;

pub(crate) use operand::{Operand, Packed, Product, Right, Strided};

/// Whether this processor has the instructions.
pub(crate) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        crate::simd::level() == crate::simd::Level::Avx512 && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Computes `p`.
///
/// # Panics
/// If it is not [`available`].
///
/// # Safety
/// Every element of the three matrices lies inside memory that is valid for the whole call. Nothing else uses the
/// memory of `out` meanwhile, and nothing writes that of `a` and `b`. Rows of `out` do not overlap; with `accumulate`
/// all of its elements are initialised. `kept` has room for all of `a`, and nothing else uses it.
#[allow(unsafe_code)]
pub(crate) unsafe fn product(p: &Product) {
    assert!(available(), "no AVX512-BF16 here for {p:?}");
    // SAFETY: the features are available, and the caller guarantees the rest.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        product::product(p);
    }
}

/// Packs a right operand of `[depth, columns]`, for several products.
///
/// # Panics
/// If products in bf16 are not [`available`].
///
/// # Safety
/// Every element of the matrix lies inside memory that is valid for the whole call, and nothing writes it meanwhile.
#[allow(unsafe_code)]
pub(crate) unsafe fn packed(b: Operand, columns: usize, depth: usize) -> Packed {
    assert!(available(), "no AVX512-BF16 here for {b:?}");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the features are available, and the caller guarantees the rest.
    return unsafe { pack::packed(b, columns, depth) };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{columns} columns, {depth} deep");
}

/// Rounds numbers as products do, and writes all of `to`.
///
/// # Panics
/// If products in bf16 are not [`available`], or the lengths differ.
pub(crate) fn round(from: &[f32], to: &mut [MaybeUninit<bf16>]) {
    assert!(available() && from.len() == to.len(), "AVX512-BF16, and a place for each of {} numbers", from.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the features are available.
    #[allow(unsafe_code)]
    unsafe {
        pack::round(from, to);
    }
}

#[cfg(test)]
mod tests;
