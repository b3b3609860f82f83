//! Products with a matrix of few columns, for low-rank updates.
//!
//! A general product packs its factors to use them many times; here each element of the large factor is used 8 to 32
//! times, so it is read once, where it lies. These kernels wait for memory more than for arithmetic, so there is nothing
//! to gain from bfloat16: they compute in f32 at any [`Precision`](crate::matrix::Precision).
//!
//! The few columns are padded with zeros to a `width` that registers hold: 8, 16 or 32.

use crate::simd::{Isa, simd_fn};
use crate::vector::Uninit;

/// The width that `columns` are padded to; none where they are too many to be slim.
pub(crate) fn width(columns: usize) -> Option<usize> {
    [8, 16, 32].into_iter().find(|width| *width >= columns)
}

/// Elements of a row that are computed at once, of four rows: two registers of AVX-512 each.
const CHUNK: usize = 32;

/// Rows that are computed at once.
const BLOCK: usize = 4;

simd_fn! {
    /// `out = x · tall`: `x` is `[rows, d]`, `tall` `[d, width]`, `out` `[rows, width]`.
    pub(crate) fn narrow<S>(x: &[f32], tall: &[f32], d: usize, width: usize, out: &mut [f32]) {
        match width {
            8 => narrow_to::<S, 8, 8>(x, tall, d, out),
            16 => narrow_to::<S, 16, 8>(x, tall, d, out),
            32 => narrow_to::<S, 32, 4>(x, tall, d, out),
            _ => unreachable!("no slim width"),
        }
    }
}

/// `N` columns of `R` rows at a time: as many sums as the multiply-adds in flight.
#[inline(always)]
fn narrow_to<S: Isa, const N: usize, const R: usize>(x: &[f32], tall: &[f32], d: usize, out: &mut [f32]) {
    let tall = &tall.as_chunks::<N>().0[..d];
    for (x, out) in x.chunks(R * d).zip(out.chunks_mut(R * N)) {
        if out.len() == R * N {
            narrow_rows::<S, N, R>(x, tall, out);
        } else {
            for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(N)) {
                narrow_rows::<S, N, 1>(x, tall, out);
            }
        }
    }
}

#[inline(always)]
fn narrow_rows<S: Isa, const N: usize, const R: usize>(x: &[f32], tall: &[[f32; N]], out: &mut [f32]) {
    let d = tall.len();
    let rows: [&[f32]; R] = std::array::from_fn(|r| &x[r * d..][..d]);
    let mut sums = [[0.0_f32; N]; R];
    for i in 0..d {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            for (sum, factor) in sums.iter_mut().zip(&tall[i]) {
                *sum = S::fma(row[i], *factor, *sum);
            }
        }
    }
    for (out, sums) in out.chunks_exact_mut(N).zip(&sums) {
        out.copy_from_slice(sums);
    }
}

simd_fn! {
    /// `out = low · flat`: `low` is `[rows, width]`, of which `flat`'s rows count; `flat` is `[columns, d]`, `out`
    /// `[rows, d]`.
    pub(crate) fn widen<S>(low: &[f32], flat: &[f32], d: usize, width: usize, out: &mut [Uninit]) {
        for (low, out) in low.chunks(BLOCK * width).zip(out.chunks_mut(BLOCK * d)) {
            if out.len() == BLOCK * d {
                widen_rows::<S, BLOCK>(low, flat, d, width, out);
            } else {
                for (low, out) in low.chunks_exact(width).zip(out.chunks_exact_mut(d)) {
                    widen_rows::<S, 1>(low, flat, d, width, out);
                }
            }
        }
    }
}

#[inline(always)]
fn widen_rows<S: Isa, const R: usize>(low: &[f32], flat: &[f32], d: usize, width: usize, out: &mut [Uninit]) {
    let low: [&[f32]; R] = std::array::from_fn(|r| &low[r * width..][..width]);
    let whole = d / CHUNK * CHUNK;
    for start in (0..whole).step_by(CHUNK) {
        let mut sums = [[0.0_f32; CHUNK]; R];
        for (j, flat) in flat.chunks_exact(d).enumerate() {
            let flat: &[f32; CHUNK] = flat[start..][..CHUNK].try_into().expect("a chunk");
            for (sums, low) in sums.iter_mut().zip(&low) {
                for (sum, factor) in sums.iter_mut().zip(flat) {
                    *sum = S::fma(low[j], *factor, *sum);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            out[r * d + start..][..CHUNK].write_copy_of_slice(sums);
        }
    }
    for (r, low) in low.iter().enumerate() {
        for i in whole..d {
            let products = flat.chunks_exact(d).zip(*low);
            out[r * d + i].write(products.fold(0.0, |sum, (flat, low)| S::fma(*low, flat[i], sum)));
        }
    }
}

simd_fn! {
    /// `sums += lowᵀ · x`: `low` is `[rows, width]`, of which `sums`' rows count; `x` is `[rows, d]`, `sums`
    /// `[columns, d]`.
    pub(crate) fn add_outer<S>(low: &[f32], x: &[f32], d: usize, width: usize, sums: &mut [f32]) {
        for (block, sums) in sums.chunks_mut(BLOCK * d).enumerate() {
            let low = &low[block * BLOCK..];
            if sums.len() == BLOCK * d {
                add_outer_columns::<S, BLOCK>(low, x, d, width, sums);
            } else {
                for (j, sums) in sums.chunks_exact_mut(d).enumerate() {
                    add_outer_columns::<S, 1>(&low[j..], x, d, width, sums);
                }
            }
        }
    }
}

#[inline(always)]
fn add_outer_columns<S: Isa, const C: usize>(low: &[f32], x: &[f32], d: usize, width: usize, all: &mut [f32]) {
    let whole = d / CHUNK * CHUNK;
    for start in (0..whole).step_by(CHUNK) {
        let mut sums: [[f32; CHUNK]; C] =
            std::array::from_fn(|j| all[j * d + start..][..CHUNK].try_into().expect("a chunk"));
        for (low, x) in low.chunks(width).zip(x.chunks_exact(d)) {
            let low: &[f32; C] = low[..C].try_into().expect("columns");
            let x: &[f32; CHUNK] = x[start..][..CHUNK].try_into().expect("a chunk");
            for (sums, low) in sums.iter_mut().zip(low) {
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = S::fma(*low, *x, *sum);
                }
            }
        }
        for (j, sums) in sums.iter().enumerate() {
            all[j * d + start..][..CHUNK].copy_from_slice(sums);
        }
    }
    for j in 0..C {
        for i in whole..d {
            let products = low.chunks(width).zip(x.chunks_exact(d));
            all[j * d + i] = products.fold(all[j * d + i], |sum, (low, x)| S::fma(low[j], x[i], sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random, wide};
    use crate::vector::written;
    use proptest::prelude::*;

    /// `a · b`: `[rows, depth]` times `[depth, columns]`.
    fn by_definition(a: &[f64], b: &[f64], depth: usize, columns: usize) -> Vec<f64> {
        let element = |a: &[f64], c: usize| a.iter().enumerate().map(|(k, a)| a * b[k * columns + c]).sum();
        a.chunks(depth).flat_map(|a| (0..columns).map(|c| element(a, c)).collect::<Vec<_>>()).collect()
    }

    fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
        (0..columns).flat_map(|c| x.iter().skip(c).step_by(columns).copied().collect::<Vec<_>>()).collect()
    }

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn equal_their_definitions(rows in 1_usize..20, d in 1_usize..80, columns in 1_usize..33) {
            let width = width(columns).expect("a slim width");
            // Padding counts in `tall` alone, so it may hold anything elsewhere.
            let (x, tall, flat) = (random(rows * d, 1), random(d * width, 2), random(columns * d, 3));
            let mut low = vec![7.0; rows * width];
            narrow(&x, &tall, d, width, &mut low);
            assert_close(&low, &by_definition(&wide(&x), &wide(&tall), d, width), 1e-5);

            let low = random(rows * width, 4);
            let counted: Vec<f64> = low.chunks(width).flat_map(|low| wide(&low[..columns])).collect();
            // SAFETY: `widen` writes all of its output, as the comparison would find out.
            let out = unsafe { written(rows * d, |out| widen(&low, &flat, d, width, out)) };
            assert_close(&out, &by_definition(&counted, &wide(&flat), columns, d), 1e-5);

            let mut sums = flat.clone();
            add_outer(&low, &x, d, width, &mut sums);
            let product = by_definition(&transposed(&counted, columns), &wide(&x), rows, d);
            let expected: Vec<f64> = product.iter().zip(wide(&flat)).map(|(product, before)| product + before).collect();
            assert_close(&sums, &expected, 1e-5);
        }
    }

    #[test]
    fn more_than_32_columns_are_not_slim() {
        assert_eq!([1, 8, 9, 32, 33].map(width), [Some(8), Some(8), Some(16), Some(32), None]);
    }
}
