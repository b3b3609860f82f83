//! Packing and multiplying with AVX512-BF16.
//!
//! `vdpbf16ps` multiplies and adds 32 pairs of bfloat16 where an FMA handles 16 pairs of `f32`: twice the peak. A tile of 8 × 48 sums
//! stays in 24 registers: 3 lines of `b` and 8 broadcast pairs of `a` are 11 loads for 24 instructions, and Zen 4 starts one of either
//! per cycle. Subnormal numbers count as zero.
#![allow(unsafe_code)]

use super::operand::Strided;
use super::strips::{self, Block, Kept, LANES, Line, Lines, Strips, groups, steps};
use crate::transpose;
use half::bf16;
use std::arch::x86_64::*;
use std::array;
use std::mem::{MaybeUninit, transmute};

/// Rows of a tile: half a strip of `a`.
const TILE_ROWS: usize = 8;
/// Strips of `b` in a tile.
const TILE_STRIPS: usize = 3;
/// Longest stretch of k: 16 rows of it are 24 KB in the L1 cache, a piece's 192 columns 288 KB in the L2 cache, and
/// `out` is read and written again 1/768 as often as it is added to.
pub(super) const DEPTH: usize = 768;

/// Index vector that selects pairs from two halves.
const PAIRS: [u16; 2 * LANES] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
    31,
];

/// Mask of the lanes below `n`.
fn mask(n: usize) -> __mmask16 {
    if n < LANES { (1 << n) - 1 } else { !0 }
}

/// Rounds `count` rows of `from` into strips.
///
/// # Safety
/// As [`strips::pack`], and the features are there.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn pack<T: Element>(
    to: &mut [Line],
    from: Strided<T>,
    count: usize,
    depth: usize,
    kept: Option<Kept>,
) {
    // SAFETY: the caller guarantees it.
    unsafe { strips::pack::<Avx512, T>(to, from, count, depth, kept) }
}

struct Avx512;

impl<T: Element> Lines<T> for Avx512 {
    #[inline(always)]
    unsafe fn interleave(from: Strided<T>, rows: usize, columns: usize) -> Line {
        // SAFETY: masked lanes are not read; a prefetch of any address is harmless, and one of eight columns ahead
        // gains 3 %.
        unsafe {
            for ahead in [8, 9] {
                _mm_prefetch::<_MM_HINT_T0>(from.at(0, ahead).cast());
            }
            let second = if columns > 1 { rows } else { 0 };
            let halves = T::halves([(from.data, mask(rows)), (from.at(0, 1), mask(second))]);
            transmute::<__m512i, Line>(_mm512_permutexvar_epi16(transmute::<[u16; 2 * LANES], __m512i>(PAIRS), halves))
        }
    }

    #[inline(always)]
    unsafe fn across(from: Strided<T>, rows: usize, columns: usize, kept: Option<Kept>, to: &mut [Line; LANES]) {
        let masks = [mask(columns), mask(columns.saturating_sub(LANES))];
        // SAFETY: masked lanes are neither read nor written. A line is a register, by its bits.
        unsafe {
            let mut x = [_mm512_setzero_si512(); LANES];
            for (i, x) in x.iter_mut().enumerate() {
                let [low, high] = if i < rows { masks } else { [0, 0] };
                *x = T::halves([(from.at(i, 0), low), (from.at(i, LANES), high)]);
                if let Some(kept) = kept {
                    let mask = low as u32 | (high as u32) << LANES;
                    _mm512_mask_storeu_epi16(kept.skip(i, 0).first.cast(), mask, *x);
                }
            }
            *to = transmute::<[__m512i; LANES], [Line; LANES]>(transpose::registers(x));
        }
    }
}

/// Element of an operand.
pub(super) trait Element: Copy {
    /// Loads lanes of 16 elements at each of two places, as bfloat16 in the halves of a register; other lanes are zeros.
    ///
    /// # Safety
    /// The features are there, and the lanes of the masks may be read.
    unsafe fn halves(parts: [(*const Self, __mmask16); 2]) -> __m512i;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn halves([(low, low_mask), (high, high_mask)]: [(*const Self, __mmask16); 2]) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe {
            let low = _mm512_maskz_loadu_ps(low_mask, low);
            let high = _mm512_maskz_loadu_ps(high_mask, high);
            transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
        }
    }
}

impl Element for bf16 {
    #[inline(always)]
    unsafe fn halves([(low, low_mask), (high, high_mask)]: [(*const Self, __mmask16); 2]) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe {
            let low = _mm256_maskz_loadu_epi16(low_mask, low.cast());
            let high = _mm256_maskz_loadu_epi16(high_mask, high.cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }
}

/// Rounds numbers as [`pack`] does.
///
/// # Safety
/// The features are there.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn round(from: &[f32], to: &mut [MaybeUninit<bf16>]) {
    for (from, to) in from.chunks(LANES).zip(to.chunks_mut(LANES)) {
        let mask = mask(from.len());
        // SAFETY: masked lanes are neither read nor written.
        unsafe {
            let rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from.as_ptr()));
            _mm256_mask_storeu_epi16(to.as_mut_ptr().cast(), mask, transmute::<__m256bh, __m256i>(rounded));
        }
    }
}

/// Multiplies one piece, tile by tile. A strip of `a` stays in the L1 cache while all of `b` passes.
///
/// # Safety
/// The features are there, the operands are packed for `out`, and `out` may be written, and read to accumulate.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply(out: Block, a: Strips, b: Strips) {
    for rows in steps(out.rows, TILE_ROWS) {
        let a = a.skip(rows.start).first.cast::<u32>().wrapping_add(rows.start % LANES);
        for (strips, columns) in groups(out.columns, TILE_STRIPS) {
            let (out, b) = (out.part(&rows, &columns), b.skip(columns.start));
            // SAFETY: the caller guarantees it for the whole piece.
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

/// Multiplies at most [`TILE_ROWS`] rows by at most `STRIPS` strips.
///
/// # Safety
/// As [`multiply`]: `a` points to the first row's pair in the first line of its strip.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn multiply_tile<const STRIPS: usize>(out: Block, a: *const u32, b: Strips) {
    let mut sums = [[_mm512_setzero_ps(); STRIPS]; TILE_ROWS];
    // Plain loops: with iterators, a build with assertions keeps the sums in memory, at half the speed.
    let strips: [_; STRIPS] = array::from_fn(|s| b.first.wrapping_add(s * b.stride).cast::<__m512i>());
    for line in 0..out.depth.div_ceil(2) {
        // SAFETY: every strip has this line, and a register is 16 pairs of bfloat16 whatever its type.
        unsafe {
            let pairs = &*a.wrapping_add(line * LANES).cast::<[i32; TILE_ROWS]>();
            let columns = strips.map(|strip| transmute::<__m512i, __m512bh>(*strip.wrapping_add(line)));
            for i in 0..TILE_ROWS {
                let pair = transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pairs[i]));
                for s in 0..STRIPS {
                    sums[i][s] = _mm512_dpbf16_ps(sums[i][s], pair, columns[s]);
                }
            }
        }
    }
    let scale = _mm512_set1_ps(out.scale);
    for (i, sums) in sums.iter().enumerate().take(out.rows) {
        for (s, sum) in sums.iter().enumerate() {
            let to = out.first.wrapping_add(i * out.stride + s * LANES);
            // SAFETY: the row is inside of `out`, and the mask excludes elements beyond its columns.
            unsafe { write(to, mask(out.columns - s * LANES), _mm512_mul_ps(*sum, scale), out.accumulate) };
        }
    }
}

/// Writes or adds the lanes of `mask`.
///
/// # Safety
/// The features are there, and these lanes of `out` may be written, and read to accumulate.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn write(out: *mut f32, mask: __mmask16, mut x: __m512, accumulate: bool) {
    // SAFETY: the caller guarantees it.
    unsafe {
        if accumulate {
            x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, out));
        }
        if mask == !0 { _mm512_storeu_ps(out, x) } else { _mm512_mask_storeu_ps(out, mask, x) }
    }
}
