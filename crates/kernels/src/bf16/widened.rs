//! Multiplying with AVX-512's products of `f32`, where `vdpbf16ps` is missing or slow. Strips are those of the other instructions.
//!
//! A core of Emerald Rapids does 80 GFLOP/s with `vdpbf16ps` and 175 with FMAs of `f32`. A tile of 8 × 48 sums stays in 24 registers: of
//! each line, 6 instructions widen `b` for 48 FMAs, and `a` is widened once for all columns of a piece.
#![allow(unsafe_code)]

use super::strips::{Block, LANES, Line, Strips, groups, steps};
use std::arch::x86_64::*;
use std::array;

/// Rows of a tile: half a strip of `a`.
const TILE_ROWS: usize = 8;
/// Strips of `b` in a tile.
const TILE_STRIPS: usize = 3;
/// Longest stretch of k: 16 rows of it in `f32` are 32 KB in the L1 cache, and a piece's 192 columns 192 KB in the L2 cache. On Emerald
/// Rapids products reach 140 of 175 GFLOP/s with it, and 117 with half of it.
pub(super) const DEPTH: usize = 512;

/// Bits of the second number of a pair, in each word.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper() -> __m512i {
    _mm512_set1_epi32(0xffff_0000_u32 as i32)
}

/// Multiplies one piece, tile by tile. A strip of `a` stays in the L1 cache while all of `b` passes.
///
/// # Safety
/// The features are there, the operands are packed for `out`, which is at most [`DEPTH`] deep and may be written, and read to
/// accumulate.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn multiply(out: Block, a: Strips, b: Strips) {
    let mut wide = [Line([0; LANES]); DEPTH];
    for rows in steps(out.rows, LANES) {
        let strip = a.skip(rows.start).first;
        for (at, pair) in wide.as_chunks_mut::<2>().0.iter_mut().enumerate().take(out.depth.div_ceil(2)) {
            // SAFETY: the strip has this line, and a line is a register.
            unsafe {
                let words = _mm512_load_si512(strip.wrapping_add(at).cast());
                _mm512_store_si512((&raw mut pair[0]).cast(), _mm512_slli_epi32::<16>(words));
                _mm512_store_si512((&raw mut pair[1]).cast(), _mm512_and_si512(words, upper()));
            }
        }
        for half in steps(rows.len(), TILE_ROWS) {
            let a = wide.as_ptr().cast::<f32>().wrapping_add(half.start);
            let half = rows.start + half.start..rows.start + half.end;
            for (strips, columns) in groups(out.columns, TILE_STRIPS) {
                let (out, b) = (out.part(&half, &columns), b.skip(columns.start));
                // SAFETY: the lines of `a` were just widened; the caller guarantees the rest.
                unsafe {
                    match strips {
                        1 => multiply_tile::<1>(out, a, b),
                        2 => multiply_tile::<2>(out, a, b),
                        _ => multiply_tile::<TILE_STRIPS>(out, a, b),
                    }
                }
            }
        }
    }
}

/// Multiplies at most [`TILE_ROWS`] rows by at most `STRIPS` strips.
///
/// # Safety
/// As [`multiply`]: `a` points to the first row's number in the first of the widened lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn multiply_tile<const STRIPS: usize>(out: Block, a: *const f32, b: Strips) {
    let mut sums = [[_mm512_setzero_ps(); STRIPS]; TILE_ROWS];
    // Plain loops: with iterators, a build with assertions keeps the sums in memory, at half the speed.
    let strips: [*const Line; STRIPS] = array::from_fn(|s| b.first.wrapping_add(s * b.stride));
    for line in 0..out.depth.div_ceil(2) {
        // SAFETY: every strip has this line, and a register is 16 words whatever its type.
        unsafe {
            let words = strips.map(|strip| _mm512_load_si512(strip.wrapping_add(line).cast()));
            let [first, second] = [0, 1].map(|k| &*a.wrapping_add((2 * line + k) * LANES).cast::<[f32; TILE_ROWS]>());
            let columns = words.map(|words| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)));
            for i in 0..TILE_ROWS {
                let number = _mm512_set1_ps(first[i]);
                for s in 0..STRIPS {
                    sums[i][s] = _mm512_fmadd_ps(number, columns[s], sums[i][s]);
                }
            }
            let columns = words.map(|words| _mm512_castsi512_ps(_mm512_and_si512(words, upper())));
            for i in 0..TILE_ROWS {
                let number = _mm512_set1_ps(second[i]);
                for s in 0..STRIPS {
                    sums[i][s] = _mm512_fmadd_ps(number, columns[s], sums[i][s]);
                }
            }
        }
    }
    let scale = _mm512_set1_ps(out.scale);
    for (i, sums) in sums.iter().enumerate().take(out.rows) {
        for (s, sum) in sums.iter().enumerate() {
            let to = out.first.wrapping_add(i * out.stride + s * LANES);
            let left = out.columns - s * LANES;
            let mask = if left < LANES { (1 << left) - 1 } else { !0 };
            let scaled = _mm512_mul_ps(*sum, scale);
            // SAFETY: the row is inside of `out`, and the mask excludes elements beyond its columns.
            unsafe {
                let before = if out.accumulate { _mm512_maskz_loadu_ps(mask, to) } else { _mm512_setzero_ps() };
                let written = if out.accumulate { _mm512_add_ps(scaled, before) } else { scaled };
                _mm512_mask_storeu_ps(to, mask, written);
            }
        }
    }
}
