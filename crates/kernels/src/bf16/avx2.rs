//! Packing and multiplying with AVX2, which has no products of bfloat16: factors are rounded to it, and multiplied as `f32`.
//!
//! A tile of 6 × 16 sums stays in 12 registers: two of `b` and 6 broadcast numbers of `a` are 8 loads for 12 instructions, of which
//! Zen 3 starts two of either per cycle. Lines hold pairs of bfloat16, so that operands take half the room in the caches; those of `b` are
//! widened for every tile, 4 instructions for 24, and those of `a` once for all columns of a piece.
#![allow(unsafe_code)]

use super::operand::Strided;
use super::strips::{self, Block, Kept, LANES, Line, Lines, Strips, steps};
use crate::transpose;
use half::bf16;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Longest stretch of k: 16 rows of it in `f32` and a strip of `b` are 24 KB in the L1 cache.
pub(super) const DEPTH: usize = 256;
/// Numbers in a register.
const HALF: usize = LANES / 2;
/// Bits of the second number of a pair.
const UPPER: u32 = 0xffff_0000;
/// Bit of a NaN that is not lost with the lower half.
const QUIET: u32 = 0x40_0000;
/// Elements of a row that are fetched before they are read.
const AHEAD: usize = 2 * LANES;

/// Rounds `count` rows of `from` into strips.
///
/// # Safety
/// As [`strips::pack`], and the features are there.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn pack<T: Element>(
    to: &mut [Line],
    from: Strided<T>,
    count: usize,
    depth: usize,
    kept: Option<Kept>,
) {
    // SAFETY: the caller guarantees it.
    unsafe { strips::pack::<Avx2, T>(to, from, count, depth, kept) }
}

struct Avx2;

impl<T: Element> Lines<T> for Avx2 {
    #[inline(always)]
    unsafe fn interleave(from: Strided<T>, rows: usize, columns: usize) -> Line {
        let mut line = Line([0; LANES]);
        // SAFETY: the caller guarantees that these elements may be read.
        unsafe {
            let (first, second) = (from.data, from.at(0, 1));
            if rows >= LANES && columns > 1 {
                for i in 0..LANES {
                    line.0[i] = pair(first.add(i).read(), second.add(i).read());
                }
            } else {
                for (i, word) in line.0.iter_mut().enumerate().take(rows) {
                    *word = pair(first.add(i).read(), if columns > 1 { second.add(i).read() } else { T::ZERO });
                }
            }
        }
        line
    }

    #[inline(always)]
    unsafe fn across(from: Strided<T>, rows: usize, columns: usize, kept: Option<Kept>, to: &mut [Line; LANES]) {
        for first in [0, HALF] {
            // SAFETY: the caller guarantees the features.
            let mut words = [[unsafe { _mm256_setzero_si256() }; HALF]; 2];
            for (i, at) in (first..rows.min(first + HALF)).enumerate() {
                let row = from.skip(at, 0).data;
                // SAFETY: the caller guarantees that these elements may be read, and as many of `kept` written. A prefetch of any
                // address is harmless.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(AHEAD).cast());
                    let pairs = if columns == 2 * LANES { T::pairs(row) } else { first_pairs(row, columns) };
                    [words[0][i], words[1][i]] = pairs;
                    if let Some(kept) = kept {
                        keep(pairs, kept.skip(at, 0).first, columns);
                    }
                }
            }
            for (words, lines) in words.into_iter().zip(to.as_chunks_mut::<HALF>().0) {
                // SAFETY: the caller guarantees the features; a register holds 8 words.
                unsafe {
                    for (line, column) in lines.iter_mut().zip(transpose::half_registers(words)) {
                        _mm256_storeu_si256(line.0[first..][..HALF].as_mut_ptr().cast(), column);
                    }
                }
            }
        }
    }
}

/// As [`Element::pairs`], of fewer elements; the others are zeros.
///
/// # Safety
/// The features are there, and `count` elements, fewer than 32, may be read.
#[inline(always)]
unsafe fn first_pairs<T: Element>(from: *const T, count: usize) -> [__m256i; 2] {
    let mut row = [T::ZERO; 2 * LANES];
    // SAFETY: the caller guarantees it.
    unsafe {
        row.as_mut_ptr().copy_from_nonoverlapping(from, count);
        T::pairs(row.as_ptr())
    }
}

/// Writes the first `count` of 32 elements: a word is two of them, the first in its lower half.
///
/// # Safety
/// The features are there, and as many elements may be written.
#[inline(always)]
unsafe fn keep(words: [__m256i; 2], to: *mut bf16, count: usize) {
    let mut row = [bf16::ZERO; 2 * LANES];
    // SAFETY: the caller guarantees it.
    unsafe {
        let at = if count < 2 * LANES { row.as_mut_ptr() } else { to };
        _mm256_storeu_si256(at.cast(), words[0]);
        _mm256_storeu_si256(at.add(LANES).cast(), words[1]);
        if count < 2 * LANES {
            to.copy_from_nonoverlapping(at, count);
        }
    }
}

/// A word of two elements, rounded to bfloat16: the first in the lower half.
#[inline(always)]
fn pair<T: Element>(first: T, second: T) -> u32 {
    first.upper_half() >> 16 | second.upper_half() & UPPER
}

/// Element of an operand.
pub(super) trait Element: Copy {
    const ZERO: Self;

    /// Rounded to bfloat16: its bits in the upper half, anything in the lower one.
    fn upper_half(self) -> u32;

    /// Returns the words of 32 elements.
    ///
    /// # Safety
    /// The features are there, and the elements may be read.
    unsafe fn pairs(from: *const Self) -> [__m256i; 2];
}

impl Element for f32 {
    const ZERO: Self = 0.0;

    /// To nearest, ties to even. NaN stays NaN: a carry would make infinity, or 0, of some.
    #[inline(always)]
    fn upper_half(self) -> u32 {
        let bits = self.to_bits();
        let even = bits >> 16 & 1;
        if self.is_nan() { bits | QUIET } else { bits.wrapping_add(0x7fff + even) }
    }

    #[inline(always)]
    unsafe fn pairs(from: *const Self) -> [__m256i; 2] {
        // SAFETY: the caller guarantees it.
        unsafe { [sixteen(from), sixteen(from.add(LANES))] }
    }
}

/// Returns the words of 16 numbers.
///
/// # Safety
/// The features are there, and the numbers may be read.
#[inline(always)]
unsafe fn sixteen(from: *const f32) -> __m256i {
    // SAFETY: the caller guarantees it.
    unsafe {
        let a = _mm256_loadu2_m128(from.add(8), from);
        let b = _mm256_loadu2_m128(from.add(12), from.add(4));
        // Elements at even and at odd places, in order.
        let first = upper_halves(_mm256_shuffle_ps::<0x88>(a, b));
        let second = upper_halves(_mm256_shuffle_ps::<0xdd>(a, b));
        _mm256_blend_epi16::<0xaa>(_mm256_srli_epi32::<16>(first), second)
    }
}

/// As [`Element::upper_half`], of 8 numbers.
///
/// # Safety
/// The features are there.
#[inline(always)]
unsafe fn upper_halves(x: __m256) -> __m256i {
    // SAFETY: the caller guarantees it.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let even = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(QUIET as i32));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        _mm256_blendv_epi8(rounded, quiet, nan)
    }
}

impl Element for bf16 {
    const ZERO: Self = Self::ZERO;

    #[inline(always)]
    fn upper_half(self) -> u32 {
        u32::from(self.to_bits()) << 16
    }

    #[inline(always)]
    unsafe fn pairs(from: *const Self) -> [__m256i; 2] {
        // SAFETY: the caller guarantees it.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(LANES).cast())] }
    }
}

/// Rounds numbers as [`pack`] does.
///
/// # Safety
/// The features are there.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn round(from: &[f32], to: &mut [MaybeUninit<bf16>]) {
    for (from, to) in from.iter().zip(to) {
        to.write(bf16::from_bits((from.upper_half() >> 16) as u16));
    }
}

/// Multiplies one piece, tile by tile. A strip of `a` stays in the L1 cache while all of `b` passes.
///
/// # Safety
/// The features are there, the operands are packed for `out`, which is at most [`DEPTH`] deep and may be written, and read to
/// accumulate.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(out: Block, a: Strips, b: Strips) {
    let mut wide = [const { MaybeUninit::uninit() }; DEPTH];
    let lines = out.depth.div_ceil(2);
    for rows in steps(out.rows, LANES) {
        // SAFETY: a strip has this many lines.
        let strip = unsafe { std::slice::from_raw_parts(a.skip(rows.start).first, lines) };
        for (pair, line) in wide.as_chunks_mut::<2>().0.iter_mut().zip(strip) {
            pair[0].write(line.0.map(|word| f32::from_bits(word << 16)));
            pair[1].write(line.0.map(|word| f32::from_bits(word & UPPER)));
        }
        for columns in steps(out.columns, LANES) {
            let (out, b) = (out.part(&rows, &columns), b.skip(columns.start).first);
            // SAFETY: the lines of `a` were just widened; the caller guarantees the rest.
            unsafe {
                let a = wide.as_ptr().cast();
                multiply_tile::<6>(out, a, 0, b);
                if out.rows > 6 {
                    multiply_tile::<5>(out, a, 6, b);
                }
                if out.rows > 11 {
                    multiply_tile::<5>(out, a, 11, b);
                }
            }
        }
    }
}

/// Multiplies `ROWS` rows from `first` of a strip by another strip.
///
/// # Safety
/// The features are there, both strips are as deep as `out`, which may be written, and read to accumulate.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_tile<const ROWS: usize>(out: Block, a: *const [f32; LANES], first: usize, b: *const Line) {
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    let upper = _mm256_set1_epi32(UPPER as i32);
    for line in 0..out.depth.div_ceil(2) {
        // SAFETY: both strips have this line.
        unsafe {
            let a = a.add(2 * line).cast::<f32>().add(first);
            let [low, high] = halves(b.add(line));
            add_products(&mut sums, a, [_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high)]);
            // Read again: with the pairs kept beside 12 sums there are not enough registers.
            let [low, high] = halves(b.add(forgotten(line)));
            let odd = [_mm256_and_si256(low, upper), _mm256_and_si256(high, upper)];
            add_products(&mut sums, a.add(LANES), odd);
        }
    }
    let scale = _mm256_set1_ps(out.scale);
    for (i, sums) in sums.iter().enumerate().take(out.rows.saturating_sub(first)) {
        let to = out.first.wrapping_add((first + i) * out.stride);
        let sums = [_mm256_mul_ps(sums[0], scale), _mm256_mul_ps(sums[1], scale)];
        // SAFETY: the row is inside of `out`, of which only its columns are touched.
        unsafe { write(to, out.columns, sums, out.accumulate) };
    }
}

/// Reads the two registers of a line.
///
/// # Safety
/// The features are there, and the line may be read.
#[inline(always)]
unsafe fn halves(line: *const Line) -> [__m256i; 2] {
    // SAFETY: the caller guarantees it.
    unsafe { [_mm256_load_si256(line.cast()), _mm256_load_si256(line.cast::<__m256i>().add(1))] }
}

/// Adds the products of numbers at `a` with 16 others, which are `f32` by their bits.
///
/// # Safety
/// The features are there, and `ROWS` numbers may be read.
#[inline(always)]
unsafe fn add_products<const ROWS: usize>(sums: &mut [[__m256; 2]; ROWS], a: *const f32, b: [__m256i; 2]) {
    for (i, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        unsafe {
            let number = _mm256_broadcast_ss(&*a.add(i));
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = _mm256_fmadd_ps(number, _mm256_castsi256_ps(b), *sum);
            }
        }
    }
}

/// Returns the index, about which the compiler knows nothing more: what was read at it is not kept.
#[inline(always)]
fn forgotten(mut index: usize) -> usize {
    // SAFETY: there is no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) index, options(pure, nomem, nostack, preserves_flags)) };
    index
}

/// Writes or adds the first `count` of 16 numbers.
///
/// # Safety
/// The features are there, and as many elements of `out` may be written, and read to accumulate.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn write(out: *mut f32, count: usize, x: [__m256; 2], accumulate: bool) {
    let mut row = [0.0; LANES];
    // SAFETY: the caller guarantees it.
    unsafe {
        let to = if count < LANES { row.as_mut_ptr() } else { out };
        if accumulate && count < LANES {
            to.copy_from_nonoverlapping(out, count);
        }
        for (s, x) in x.into_iter().enumerate() {
            let to = to.add(s * HALF);
            _mm256_storeu_ps(to, if accumulate { _mm256_add_ps(x, _mm256_loadu_ps(to)) } else { x });
        }
        if count < LANES {
            out.copy_from_nonoverlapping(to, count);
        }
    }
}
