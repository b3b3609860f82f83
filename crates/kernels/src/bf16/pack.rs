//! Rounds operands to bfloat16, in the order in which tiles read them.
#![allow(unsafe_code)]

use super::instructions::{Instructions, has_avx512_bf16};
use super::operand::Operand;
use super::strips::{Kept, LANES, Line, Packed, stride};
use super::{avx2, avx512};
use half::bf16;
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Strips that one task rounds: it reads 512 contiguous bytes at a time at least.
const PACK: usize = 8;

/// Packs a right operand of `[depth, columns]` for several products.
///
/// # Safety
/// As [`pack_strips`], for its columns.
pub(super) unsafe fn packed(by: Instructions, from: Operand, columns: usize, depth: usize) -> Packed {
    let mut lines = Vec::new();
    // SAFETY: the caller guarantees it.
    unsafe { pack_strips(by, &mut lines, from.transposed(), columns, depth, None, false) };
    Packed { lines, stride: stride(depth), columns, depth }
}

/// Packs `count` rows of `from` in strips, and writes them to `kept` as they are rounded.
///
/// # Safety
/// The instructions are there, `count` × `depth` elements of `from` may be read, and as many of `kept` written.
pub(super) unsafe fn pack_strips(
    by: Instructions,
    to: &mut Vec<Line>,
    from: Operand,
    count: usize,
    depth: usize,
    kept: Option<Kept>,
    parallel: bool,
) {
    let lines = count.div_ceil(LANES) * stride(depth);
    if to.len() < lines {
        to.resize(lines, Line([0; LANES]));
    }
    let to = &mut to[..lines];
    let group = PACK * LANES;
    let pack_group = |(i, to): (usize, &mut [Line])| {
        let (count, kept) = (group.min(count - i * group), kept.map(|kept| kept.skip(i * group, 0)));
        // SAFETY: these rows lie inside `from`, and the caller guarantees the rest.
        unsafe {
            match (by_avx512(by), from.skip(i * group, 0)) {
                (true, Operand::F32(from)) => avx512::pack(to, from, count, depth, kept),
                (true, Operand::Bf16(from)) => avx512::pack(to, from, count, depth, kept),
                (false, Operand::F32(from)) => avx2::pack(to, from, count, depth, kept),
                (false, Operand::Bf16(from)) => avx2::pack(to, from, count, depth, kept),
            }
        }
    };
    if parallel {
        to.par_chunks_mut(PACK * stride(depth)).enumerate().with_max_len(1).for_each(pack_group);
    } else {
        to.chunks_mut(PACK * stride(depth)).enumerate().for_each(pack_group);
    }
}

/// Rounds numbers as [`pack_strips`] does.
///
/// # Safety
/// The instructions are there.
pub(super) unsafe fn round(by: Instructions, from: &[f32], to: &mut [MaybeUninit<bf16>]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match by_avx512(by) {
            true => avx512::round(from, to),
            false => avx2::round(from, to),
        }
    }
}

/// Whether numbers are rounded with AVX512-BF16. Strips are the same either way.
fn by_avx512(by: Instructions) -> bool {
    match by {
        Instructions::Avx512Bf16 => true,
        Instructions::Avx512 => has_avx512_bf16(),
        Instructions::Avx2 => false,
    }
}
