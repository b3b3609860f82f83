//! Product of a few rows with a matrix of weights, as a decoder computes for each token that it writes.
//!
//! A general product first copies its factors into strips in the order its inner loop reads them. Each weight is used
//! once per row of `x`, so for a few rows that copy takes longer than the arithmetic. Here each result is the dot product
//! of two contiguous rows; a tile of [`TILE_OUTPUTS`] weight rows and a few rows of `x` shares what it loads. Weights in half
//! precision are widened in registers, so that half as much is read. The order of additions is the same whatever the number of
//! rows and the type of the weights, so a sequence gets the same bits in any batch of 1 to [`MOST_ROWS`].
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use crate::matrix::MatrixMut;
use crate::numbers::Numbers;
use crate::vector::Uninit;
use rayon::prelude::*;

/// Most rows: there it is 1.1 to 2.8 times as fast as a general product of matrices that lie the same way, at the widths of
/// Whisper's layers on Zen 4. With more, what a general product copies is used often enough.
pub(crate) const MOST_ROWS: usize = 64;

/// Weight rows of a tile: one result each in a register of 128 bits.
const TILE_OUTPUTS: usize = 4;

/// Multiplications of one task: 10 µs of a core, several times what it takes to wake a thread.
const TASK: usize = 1 << 18;

/// Whether this processor has the instructions.
pub(crate) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        crate::simd::level() != crate::simd::Level::Baseline
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Writes all of `out = x · weightᵀ + bias`, `[rows, d_out]`: `x` is `[rows, d_in]`, `weight` `[d_out, d_in]`.
///
/// # Panics
/// If it is not [`available`], or the length of a slice differs from its shape.
pub(crate) fn product(out: &mut [Uninit], x: &[f32], weight: Numbers, bias: Option<&[f32]>, d_in: usize) {
    let (rows, d_out) = (x.len() / d_in, weight.len() / d_in);
    let outputs = (TASK / (rows * d_in)).max(1).next_multiple_of(TILE_OUTPUTS);
    let blocks = MatrixMut::unwritten(out, rows, d_out).split(rows, outputs);
    blocks.into_par_iter().enumerate().for_each(|(block, mut out)| {
        let first = block * outputs;
        let last = d_out.min(first + outputs);
        dot_products(&mut out, x, weight.slice(first * d_in..last * d_in), d_in);
        if let Some(bias) = bias {
            add_to_rows(&mut out, &bias[first..last]);
        }
    });
}

/// Adds `bias` to each row of `out`, whose elements have been written.
#[allow(unsafe_code)]
fn add_to_rows(out: &mut MatrixMut, bias: &[f32]) {
    for row in 0..out.rows() {
        // SAFETY: `dot_products` has written the whole block.
        let row = unsafe { crate::vector::assume_written(out.row(row)) };
        row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
}

/// Writes the dot product of each row of `x` with each of `weights`, on the calling thread.
///
/// # Panics
/// As for [`product`].
#[allow(unsafe_code)]
pub(crate) fn dot_products(out: &mut MatrixMut, x: &[f32], weights: Numbers, d_in: usize) {
    assert_eq!(x.len(), out.rows() * d_in, "a row of x per row of the output");
    #[cfg(target_arch = "x86_64")]
    match crate::simd::level() {
        // SAFETY: `level` has just found these features on this processor.
        crate::simd::Level::Avx512 => unsafe { x86::avx512(out, x, weights, d_in) },
        // SAFETY: as above.
        crate::simd::Level::Avx2 => unsafe { x86::avx2(out, x, weights, d_in) },
        crate::simd::Level::Baseline => panic!("no AVX2 here"),
    }
    #[cfg(not(target_arch = "x86_64"))]
    panic!("no AVX2 here, for {} weights", weights.len());
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{MatrixMut, TILE_OUTPUTS};
    use crate::numbers::{Numbers, with_slice};
    use crate::registers::{Number, Register};
    use std::arch::x86_64::*;

    /// Four rows of `x` at a time: 16 sums and 5 numbers to multiply in 32 registers.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub(super) fn avx512(out: &mut MatrixMut, x: &[f32], weights: Numbers, d_in: usize) {
        // SAFETY: this function has the features.
        with_slice!(weights, |weights| unsafe { blocks::<__m512, _, 4>(out, x, weights, d_in) });
    }

    /// Two rows of `x` at a time: 8 sums and 5 numbers to multiply in 16 registers.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2(out: &mut MatrixMut, x: &[f32], weights: Numbers, d_in: usize) {
        // SAFETY: as above.
        with_slice!(weights, |weights| unsafe { blocks::<__m256, _, 2>(out, x, weights, d_in) });
    }

    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn blocks<V: Register, N: Number, const ROWS: usize>(
        out: &mut MatrixMut,
        x: &[f32],
        weights: &[N],
        d_in: usize,
    ) {
        let rows = out.rows();
        for (tile, weights) in weights.chunks(TILE_OUTPUTS * d_in).enumerate() {
            let first = tile * TILE_OUTPUTS;
            let whole = weights.len() == TILE_OUTPUTS * d_in;
            let mut row = 0;
            while row < rows {
                // SAFETY: the caller guarantees the features.
                row += match rows - row {
                    _ if !whole => unsafe { rest_of::<V, N>(out, [row, first], x, weights, d_in) },
                    left if left >= ROWS => unsafe {
                        tile_of::<V, N, ROWS, TILE_OUTPUTS>(out, [row, first], x, weights, d_in)
                    },
                    2.. => unsafe { tile_of::<V, N, 2, TILE_OUTPUTS>(out, [row, first], x, weights, d_in) },
                    _ => unsafe { tile_of::<V, N, 1, TILE_OUTPUTS>(out, [row, first], x, weights, d_in) },
                };
            }
        }
    }

    /// One row of `x` with the last weight rows, fewer than a tile. Returns 1.
    ///
    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn rest_of<V: Register, N: Number>(
        out: &mut MatrixMut,
        [row, first]: [usize; 2],
        x: &[f32],
        weights: &[N],
        d_in: usize,
    ) -> usize {
        for (i, weights) in weights.chunks_exact(d_in).enumerate() {
            // SAFETY: the caller guarantees the features.
            unsafe { tile_of::<V, N, 1, 1>(out, [row, first + i], x, weights, d_in) };
        }
        1
    }

    /// Writes `ROWS` × `OUTPUTS` results from element `[row, first]` of `out`. Returns `ROWS`.
    ///
    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn tile_of<V: Register, N: Number, const ROWS: usize, const OUTPUTS: usize>(
        out: &mut MatrixMut,
        [row, first]: [usize; 2],
        x: &[f32],
        weights: &[N],
        d_in: usize,
    ) -> usize {
        const { assert!(OUTPUTS <= TILE_OUTPUTS) };
        let x = &x[row * d_in..][..ROWS * d_in];
        assert_eq!(weights.len(), OUTPUTS * d_in, "weight rows of a tile");
        let whole = d_in / V::LANES * V::LANES;
        // SAFETY: the caller guarantees the features; both factors have their rows, as was just checked.
        let sums = unsafe { sums_of::<V, N, ROWS, OUTPUTS>(x.as_ptr(), weights.as_ptr(), d_in, whole) };
        for i in 0..ROWS {
            // SAFETY: as above.
            let results = unsafe { horizontal(&sums[i]) };
            let x = &x[i * d_in..][whole..d_in];
            for (output, y) in out.row(row + i)[first..][..OUTPUTS].iter_mut().enumerate() {
                let mut sum = results[output];
                for (k, x) in x.iter().enumerate() {
                    sum = x.mul_add(weights[output * d_in + whole + k].wide(), sum);
                }
                y.write(sum);
            }
        }
        ROWS
    }

    /// Returns the sums of a tile over the first `whole` of the `d_in` columns, lane by lane. The loops have indices, because
    /// the compiler keeps registers that iterators hand out in memory.
    ///
    /// # Safety
    /// The processor has the features of `V`. The rows of both factors may be read, `ROWS` and `OUTPUTS` of them; `whole` is
    /// a multiple of the lanes.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    unsafe fn sums_of<V: Register, N: Number, const ROWS: usize, const OUTPUTS: usize>(
        x: *const f32,
        weights: *const N,
        d_in: usize,
        whole: usize,
    ) -> [[V; OUTPUTS]; ROWS] {
        // SAFETY: the caller guarantees all of it. What is fetched ahead need not exist.
        unsafe {
            let mut sums = [[V::zero(); OUTPUTS]; ROWS];
            let mut k = 0;
            while k < whole {
                let mut numbers = [V::zero(); OUTPUTS];
                for output in 0..OUTPUTS {
                    numbers[output] = N::load(weights.add(output * d_in + k));
                    // The same place of the next tile: rows are too short for the processor to foresee them.
                    let next = weights.wrapping_add((OUTPUTS + output) * d_in + k);
                    _mm_prefetch::<_MM_HINT_T0>(next.cast());
                }
                for i in 0..ROWS {
                    let x = V::load(x.add(i * d_in + k));
                    for output in 0..OUTPUTS {
                        sums[i][output] = V::fma(x, numbers[output], sums[i][output]);
                    }
                }
                k += V::LANES;
            }
            sums
        }
    }

    /// Returns the sum of each register's lanes.
    ///
    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    unsafe fn horizontal<V: Register, const OUTPUTS: usize>(sums: &[V; OUTPUTS]) -> [f32; TILE_OUTPUTS] {
        let mut results = [0.0; TILE_OUTPUTS];
        // SAFETY: the caller guarantees the features.
        unsafe {
            let mut folded = [_mm_setzero_ps(); TILE_OUTPUTS];
            for output in 0..OUTPUTS {
                folded[output] = sums[output].fold();
            }
            let [a, b, c, d] = folded;
            _mm_storeu_ps(results.as_mut_ptr(), _mm_hadd_ps(_mm_hadd_ps(a, b), _mm_hadd_ps(c, d)));
        }
        results
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random, wide};
    use half::{bf16, f16};

    type DotProducts = unsafe fn(&mut MatrixMut, &[f32], Numbers, usize);

    #[test]
    fn each_instruction_set_computes_all_dot_products() {
        let mut kernels: Vec<DotProducts> = Vec::new();
        if crate::simd::level() != crate::simd::Level::Baseline {
            kernels.push(x86::avx2);
        }
        if crate::simd::level() == crate::simd::Level::Avx512 {
            kernels.push(x86::avx512);
        }
        for (rows, d_in, d_out) in [(2, 64, 8), (7, 31, 10), (1, 5, 3), (9, 100, 13)] {
            let (x, weights) = (random(rows * d_in, 1), random(d_out * d_in, 2));
            let brain: Vec<bf16> = weights.iter().map(|w| bf16::from_f32(*w)).collect();
            let half: Vec<f16> = weights.iter().map(|w| f16::from_f32(*w)).collect();
            let [from_brain, from_half] =
                [Numbers::Bf16(&brain), Numbers::F16(&half)].map(|weights| weights.rows(0..d_out, d_in).into_owned());
            let held = [
                (Numbers::F32(&weights), &weights),
                (Numbers::Bf16(&brain), &from_brain),
                (Numbers::F16(&half), &from_half),
            ];
            for (kernel, (weights, same)) in kernels.iter().flat_map(|kernel| held.map(|held| (kernel, held))) {
                let computed = |weights| {
                    let mut out = vec![f32::NAN; rows * d_out];
                    // SAFETY: `level` has found the features of both.
                    unsafe { kernel(&mut MatrixMut::new(&mut out, rows, d_out), &x, weights, d_in) };
                    out
                };
                let out = computed(weights);
                assert_close(&out, &by_definition(&x, same, d_in), 1e-5);
                assert_eq!(out, computed(Numbers::F32(same)), "the bits of the same numbers in f32");
            }
        }
    }

    fn by_definition(x: &[f32], weights: &[f32], d_in: usize) -> Vec<f64> {
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        let (x, weights) = (wide(x), wide(weights));
        x.chunks(d_in).flat_map(|x| weights.chunks(d_in).map(move |w| dot(x, w)).collect::<Vec<_>>()).collect()
    }
}
