//! Rounds operands to bfloat16, in the order in which tiles read them.
#![allow(unsafe_code)]

use super::operand::{LANES, Line, Operand, Packed, Strided};
use crate::transpose;
use half::bf16;
use rayon::prelude::*;
use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};
use std::ops::Range;

/// Strips that one task rounds: it reads 512 contiguous bytes at a time at least.
const PACK: usize = 8;

/// Index vector that selects pairs from two halves.
const PAIRS: [u16; 2 * LANES] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
    31,
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
    unsafe { pack_strips(&mut lines, from.transposed(), columns, depth, None, false) };
    Packed { lines, stride: stride(depth), columns, depth }
}

/// Memory for rounded rows: their first element, and the elements from one row to the next.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub first: *mut bf16,
    pub stride: usize,
}

// SAFETY: threads that share it write rows of their own.
unsafe impl Sync for Kept {}

impl Kept {
    /// The same rows without the first ones and without their first elements.
    pub fn skip(self, rows: usize, elements: usize) -> Self {
        Self { first: self.first.wrapping_add(rows * self.stride + elements), ..self }
    }
}

/// Packs `count` rows of `from` in strips, and writes them to `kept` as they are rounded.
///
/// # Safety
/// As [`pack`].
pub(super) unsafe fn pack_strips(
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
            match from.skip(i * group, 0) {
                Operand::F32(from) => pack(to, from, count, depth, kept),
                Operand::Bf16(from) => pack(to, from, count, depth, kept),
            }
        }
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
/// The features are there, `count` × `depth` elements of `from` may be read, and as many of `kept` written.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pack<T: Element>(to: &mut [Line], from: Strided<T>, count: usize, depth: usize, kept: Option<Kept>) {
    debug_assert!(from.row_stride == 1 || from.column_stride == 1, "one stride is 1");
    let stride = stride(depth);
    if from.row_stride == 1 {
        // Line by line across all strips, in the order of memory.
        for k in steps(depth, 2) {
            for (s, strip) in to.chunks_mut(stride).enumerate() {
                // SAFETY: the masks exclude elements beyond `count` and `depth`.
                strip[k.start / 2] = unsafe { interleave(from.skip(s * LANES, k.start), count - s * LANES, k.len()) };
            }
        }
    } else {
        for (s, strip) in to.chunks_mut(stride).enumerate() {
            for (k, lines) in steps(depth, 2 * LANES).zip(strip.as_chunks_mut().0) {
                // SAFETY: as above.
                let kept = kept.map(|kept| kept.skip(s * LANES, k.start));
                *lines = unsafe { across(from.skip(s * LANES, k.start), count - s * LANES, k.len(), kept) };
            }
        }
    }
}

/// Loads a line of a matrix whose columns are contiguous: two columns, or one and zeros.
///
/// # Safety
/// The features are there, and `rows`, at most 16, × `columns` elements of `from` may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn interleave<T: Element>(from: Strided<T>, rows: usize, columns: usize) -> Line {
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

/// Loads sixteen lines of a matrix whose rows are contiguous.
///
/// # Safety
/// The features are there, `rows` × `columns`, at most 32, elements of `from` may be read, and as many of `kept` written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn across<T: Element>(from: Strided<T>, rows: usize, columns: usize, kept: Option<Kept>) -> [Line; LANES] {
    let masks = [mask(columns), mask(columns.saturating_sub(LANES))];
    let mut x = [_mm512_setzero_si512(); LANES];
    for (i, x) in x.iter_mut().enumerate() {
        let [low, high] = if i < rows { masks } else { [0, 0] };
        // SAFETY: masked lanes are not read.
        *x = unsafe { T::halves([(from.at(i, 0), low), (from.at(i, LANES), high)]) };
        if let Some(kept) = kept {
            // SAFETY: masked lanes are not written.
            unsafe { _mm512_mask_storeu_epi16(kept.skip(i, 0).first.cast(), low as u32 | (high as u32) << LANES, *x) };
        }
    }
    // SAFETY: the caller guarantees the feature, and a line is a register, by its bits.
    unsafe { transmute::<[__m512i; LANES], [Line; LANES]>(transpose::registers(x)) }
}

/// Element of an operand.
trait Element: Copy {
    /// Loads lanes of 16 elements at each of two places, as bfloat16 in the halves of a register; other lanes are zeros.
    ///
    /// # Safety
    /// The features are there, and the lanes of the masks may be read.
    unsafe fn halves(parts: [(*const Self, __mmask16); 2]) -> __m512i;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn halves(parts: [(*const Self, __mmask16); 2]) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe {
            let [low, high] = parts.map(|(from, mask)| _mm512_maskz_loadu_ps(mask, from));
            transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
        }
    }
}

impl Element for bf16 {
    #[inline(always)]
    unsafe fn halves(parts: [(*const Self, __mmask16); 2]) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe {
            let [low, high] = parts.map(|(from, mask)| _mm256_maskz_loadu_epi16(mask, from.cast()));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }
}

/// Rounds numbers as [`pack_strips`] does.
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
