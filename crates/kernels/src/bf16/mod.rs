//! Products of `f32` matrices that are rounded to bfloat16 first and summed in `f32`.
//!
//! A factor is rounded to 8 bits, to nearest even, so a product of two is off by at most 2⁻⁷ of itself; its 16 bits are
//! exact in `f32`. Infinities and NaN propagate.
//!
//! The structure is that of BLIS (Van Zee & van de Geijn, 2015). Both operands are rounded into *strips*, 16 rows of
//! `a` or 16 columns of `b` wide. Line `p` of a strip has elements `2p` and `2p + 1` of each along k, as
//! `vdpbf16ps` requires them. Processors on which that instruction is missing or slow widen the same lines in registers.
//!
//! All threads share the strips, so that each element is read and rounded once per block of 2²⁰. Packing reads memory more slowly than
//! tiles are computed, so what several products read is packed once ([`Packed`]), and what the backward pass will read is kept rounded.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod blocks;
mod instructions;
mod operand;
#[cfg(target_arch = "x86_64")]
mod pack;
mod product;
mod strips;
#[cfg(target_arch = "x86_64")]
mod widened;

use half::bf16;
use instructions::Instructions;
use std::mem::MaybeUninit;

pub(crate) use operand::{Operand, Strided};
pub(crate) use product::{Product, Right};
pub(crate) use strips::Packed;

/// Whether this processor has instructions for them.
pub(crate) fn available() -> bool {
    Instructions::all().next().is_some()
}

/// Returns the best instructions of this processor.
///
/// # Panics
/// If products in bf16 are not [`available`].
fn best() -> Instructions {
    Instructions::all().next().expect("a processor with AVX2")
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
    // SAFETY: the instructions are there, and the caller guarantees the rest.
    unsafe { product_by(best(), p) };
}

/// Computes `p` with these instructions.
///
/// # Safety
/// As [`product`], and the instructions are there.
#[allow(unsafe_code)]
unsafe fn product_by(by: Instructions, p: &Product) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees it.
    unsafe {
        blocks::product(by, p);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{p:?} by {by:?}");
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
    let by = best();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions are there, and the caller guarantees the rest.
    return unsafe { pack::packed(by, b, columns, depth) };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{columns} columns, {depth} deep, of {b:?} by {by:?}");
}

/// Rounds numbers as products do, and writes all of `to`.
///
/// # Panics
/// If products in bf16 are not [`available`], or the lengths differ.
pub(crate) fn round(from: &[f32], to: &mut [MaybeUninit<bf16>]) {
    let by = best();
    assert_eq!(from.len(), to.len(), "a place for each number");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions are there.
    #[allow(unsafe_code)]
    unsafe {
        pack::round(by, from, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{by:?}");
}

#[cfg(test)]
mod tests;
