//! Rounds operands to bfloat16, in the order in which tiles read them.
#![allow(unsafe_code)]

use super::operand::{LANES, Line, Operand, Packed};
use crate::transpose;
use rayon::prelude::*;
use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

/// Strips that one task rounds: it reads 512 contiguous bytes at a time at least.
const PACK: usize = 8;

/// Index vector that selects pairs from two halves.
const PAIRS: [u16; 2 * LANES] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
    15, 31,
];

/// Lines from one strip to the next: whole chunks of 16, plus one so that strips do not share cache sets.
pub(super) fn stride(depth: usize) -> usize {
    depth.div_ceil(2).next_multiple_of(LANES) + 1
}

/// Splits `0..len` into ranges of `step`.
pub(super) fn steps(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(step).map(move |start| start..len.min(start + step))
}

/// Mask of the lanes below `n`.
pub(super) fn mask(n: usize) -> __mmask16 {
    if n < LANES { (1 << n) - 1 } else { !0 }
}

/// Packs a right operand of `[depth, columns]` for several products.
///
/// # Safety
/// As [`pack`], for its columns.
pub(super) unsafe fn packed(from: Operand, columns: usize, depth: usize) -> Packed {
    let mut lines = Vec::new();
    // SAFETY: the caller guarantees it.
    unsafe { pack_strips(&mut lines, from.transposed(), columns, depth, false) };
    Packed { lines, stride: stride(depth), columns, depth }
}

/// Packs `count` rows of `from` in strips.
///
/// # Safety
/// As [`pack`].
pub(super) unsafe fn pack_strips(to: &mut Vec<Line>, from: Operand, count: usize, depth: usize, parallel: bool) {
    let lines = count.div_ceil(LANES) * stride(depth);
    if to.len() < lines {
        to.resize(lines, Line([0; LANES]));
    }
    let to = &mut to[..lines];
    let group = PACK * LANES;
    let pack_group = |(i, to): (usize, &mut [Line])| {
        // SAFETY: these rows lie inside `from`, and the caller guarantees the rest.
        unsafe { pack(to, from.skip(i * group, 0), group.min(count - i * group), depth) };
    };
    if parallel {
        to.par_chunks_mut(PACK * stride(depth)).enumerate().with_max_len(1).for_each(pack_group);
    } else {
        to.chunks_mut(PACK * stride(depth)).enumerate().for_each(pack_group);
    }
}

/// Rounds `count` rows of `from` into strips. Lanes beyond `count` and the missing partner of an odd depth are
/// zeros.
///
/// # Safety
/// The features are there, and `count` × `depth` elements of `from` may be read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pack(to: &mut [Line], from: Operand, count: usize, depth: usize) {
    debug_assert!(from.row_stride == 1 || from.column_stride == 1, "one stride is 1");
    let stride = stride(depth);
    if from.row_stride == 1 {
        // Line by line across all strips, in the order of memory.
        for k in steps(depth, 2) {
            for (s, strip) in to.chunks_mut(stride).enumerate() {
                // SAFETY: the masks exclude elements beyond `count` and `depth`.
                strip[k.start / 2] =
                    unsafe { interleave(from.skip(s * LANES, k.start), count - s * LANES, k.len()) };
            }
        }
    } else {
        for (s, strip) in to.chunks_mut(stride).enumerate() {
            for (k, lines) in steps(depth, 2 * LANES).zip(strip.as_chunks_mut().0) {
                // SAFETY: as above.
                *lines = unsafe { across(from.skip(s * LANES, k.start), count - s * LANES, k.len()) };
            }
        }
    }
}

/// Loads a line of a matrix whose columns are contiguous: two columns, or one and zeros.
///
/// # Safety
/// The features are there, and `rows`, at most 16, × `columns` elements of `from` may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn interleave(from: Operand, rows: usize, columns: usize) -> Line {
    // SAFETY: masked lanes are not read; a prefetch of any address is harmless, and one of eight columns ahead
    // gains 3 %.
    unsafe {
        for ahead in [8, 9] {
            _mm_prefetch::<_MM_HINT_T0>(from.at(0, ahead).cast());
        }
        let first = _mm512_maskz_loadu_ps(mask(rows), from.data);
        let second = _mm512_maskz_loadu_ps(mask(if columns > 1 { rows } else { 0 }), from.at(0, 1));
        let halves = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first));
        transmute::<__m512i, Line>(_mm512_permutexvar_epi16(transmute::<[u16; 2 * LANES], __m512i>(PAIRS), halves))
    }
}

/// Loads sixteen lines of a matrix whose rows are contiguous.
///
/// # Safety
/// The features are there, and `rows` × `columns`, at most 32, elements of `from` may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn across(from: Operand, rows: usize, columns: usize) -> [Line; LANES] {
    let masks = [mask(columns), mask(columns.saturating_sub(LANES))];
    let mut x = [_mm512_setzero_si512(); LANES];
    for (i, x) in x.iter_mut().enumerate() {
        let [low, high] = if i < rows { masks } else { [0, 0] };
        // SAFETY: masked lanes are not read.
        unsafe {
            let low = _mm512_maskz_loadu_ps(low, from.at(i, 0));
            let high = _mm512_maskz_loadu_ps(high, from.at(i, LANES));
            *x = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
        }
    }
    // SAFETY: the caller guarantees the feature, and a line is a register, by its bits.
    unsafe { transmute::<[__m512i; LANES], [Line; LANES]>(transpose::registers(x)) }
}
