//! Transposition of matrices, in registers where there is AVX2 or AVX-512.
#![allow(unsafe_code)]

use crate::vector::{Uninit, written};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Rows and columns of a square: a cache line, and a register of AVX-512, has 16 numbers.
const SIDE: usize = 16;
/// Numbers in a register of AVX2.
#[cfg(target_arch = "x86_64")]
const HALF: usize = SIDE / 2;

/// Returns the columns of `[rows, columns]`, one after another: `[columns, rows]`. Rows of `from` are `stride` apart.
///
/// # Panics
/// If the last element lies outside of `from`.
pub(crate) fn transposed(from: &[f32], rows: usize, columns: usize, stride: usize) -> Vec<f32> {
    assert!(rows == 0 || (rows - 1) * stride + columns <= from.len(), "{rows}×{columns} reaches outside of its slice");
    // SAFETY: the squares cover the matrix, and each is written completely.
    unsafe {
        written(columns * rows, |to| {
            for row in (0..rows).step_by(SIDE) {
                for column in (0..columns).step_by(SIDE) {
                    let size = [SIDE.min(rows - row), SIDE.min(columns - column)];
                    square(&mut to[column * rows + row..], rows, &from[row * stride + column..], stride, size);
                }
            }
        })
    }
}

/// Transposes a square, of which there may be fewer rows and columns. Rows of `to` and `from` are as far apart as the strides say.
fn square(to: &mut [Uninit], to_stride: usize, from: &[f32], stride: usize, [rows, columns]: [usize; 2]) {
    #[cfg(target_arch = "x86_64")]
    if rows == SIDE && columns == SIDE {
        let last = SIDE - 1;
        assert!(
            last * stride + SIDE <= from.len() && last * to_stride + SIDE <= to.len(),
            "a square inside its matrices"
        );
        let (first, source): (*mut f32, _) = (to.as_mut_ptr().cast(), from.as_ptr());
        match crate::simd::level() {
            // SAFETY: the features are there, and rows of both squares lie inside their slices.
            crate::simd::Level::Avx512 => return unsafe { whole(first, to_stride, source, stride) },
            // SAFETY: as above.
            crate::simd::Level::Avx2 => return unsafe { quarters(first, to_stride, source, stride) },
            crate::simd::Level::Baseline => {}
        }
    }
    for column in 0..columns {
        for row in 0..rows {
            to[column * to_stride + row].write(from[row * stride + column]);
        }
    }
}

/// # Safety
/// The feature is there, and 16 rows of 16 elements may be read and written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn whole(to: *mut f32, to_stride: usize, from: *const f32, stride: usize) {
    let mut rows = [_mm512_setzero_si512(); SIDE];
    // SAFETY: the caller guarantees it.
    unsafe {
        for (i, row) in rows.iter_mut().enumerate() {
            *row = _mm512_loadu_si512(from.add(i * stride).cast());
        }
        for (i, column) in registers(rows).into_iter().enumerate() {
            _mm512_storeu_si512(to.add(i * to_stride).cast(), column);
        }
    }
}

/// As [`whole`], 8 rows and columns at a time.
///
/// # Safety
/// As there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn quarters(to: *mut f32, to_stride: usize, from: *const f32, stride: usize) {
    for [row, column] in [[0, 0], [0, HALF], [HALF, 0], [HALF, HALF]] {
        let mut rows = [_mm256_setzero_si256(); HALF];
        // SAFETY: the caller guarantees it.
        unsafe {
            for (i, x) in rows.iter_mut().enumerate() {
                *x = _mm256_loadu_si256(from.add((row + i) * stride + column).cast());
            }
            for (i, x) in half_registers(rows).into_iter().enumerate() {
                _mm256_storeu_si256(to.add((column + i) * to_stride + row).cast(), x);
            }
        }
    }
}

/// Returns 8 registers of 8 numbers each as the columns of the matrix whose rows they are.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn half_registers(x: [__m256i; HALF]) -> [__m256i; HALF] {
    // Pairs of rows, then fours: `y[4i + c]` has columns c and c + 4 of rows 4i..4i + 4.
    let mut y = x;
    for i in [0, 4] {
        let [a, b, c, d] = [x[i], x[i + 1], x[i + 2], x[i + 3]];
        let [ab, cd] = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
        (y[i], y[i + 1]) = (_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
        let [ab, cd] = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
        (y[i + 2], y[i + 3]) = (_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    }
    let mut z = y;
    for c in 0..HALF / 2 {
        z[c] = _mm256_permute2x128_si256::<0x20>(y[c], y[c + 4]);
        z[c + 4] = _mm256_permute2x128_si256::<0x31>(y[c], y[c + 4]);
    }
    z
}

/// Returns 16 registers of 16 numbers each as the columns of the matrix whose rows they are.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn registers(mut x: [__m512i; SIDE]) -> [__m512i; SIDE] {
    // Within lanes of 128 bits, pairs of rows, then fours: `x[4i + c]` has columns c, c + 4, c + 8, c + 12 of rows
    // 4i..4i + 4.
    let y = x;
    for i in 0..SIDE / 2 {
        x[2 * i] = _mm512_unpacklo_epi32(y[2 * i], y[2 * i + 1]);
        x[2 * i + 1] = _mm512_unpackhi_epi32(y[2 * i], y[2 * i + 1]);
    }
    let y = x;
    for i in (0..SIDE).step_by(4) {
        for c in 0..2 {
            x[i + 2 * c] = _mm512_unpacklo_epi64(y[i + c], y[i + c + 2]);
            x[i + 2 * c + 1] = _mm512_unpackhi_epi64(y[i + c], y[i + c + 2]);
        }
    }
    // Then whole lanes: 0x88 takes the even ones of both registers, 0xdd the odd ones.
    let y = x;
    for c in 0..4 {
        let even = [_mm512_shuffle_i32x4::<0x88>(y[c], y[c + 4]), _mm512_shuffle_i32x4::<0x88>(y[c + 8], y[c + 12])];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(y[c], y[c + 4]), _mm512_shuffle_i32x4::<0xdd>(y[c + 8], y[c + 12])];
        x[c] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        x[c + 4] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        x[c + 8] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        x[c + 12] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_become_rows(rows in 0_usize..50, columns in 0_usize..50, gap in 0_usize..3) {
            let stride = columns + gap;
            let from = random(rows * stride, 1);
            let found = transposed(&from, rows, columns, stride);
            for (i, x) in found.iter().enumerate() {
                prop_assert_eq!(*x, from[i % rows * stride + i / rows]);
            }
            prop_assert_eq!(found.len(), rows * columns);
        }
    }
}
