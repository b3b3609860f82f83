//! Products of packed operands, tile by tile.
#![allow(unsafe_code)]

use super::operand::{LANES, Line, Product, Right};
use super::pack::{Kept, mask, pack_strips, steps, stride};
use crate::pool;
use rayon::prelude::*;
use std::arch::x86_64::*;
use std::array;
use std::cell::Cell;
use std::mem::transmute;
use std::ops::Range;

/// Rows of a tile: half a strip of `a`.
const TILE_ROWS: usize = 8;
/// Strips of `b` in a tile.
const TILE_STRIPS: usize = 3;
/// Longest stretch of k: 16 rows of it are 24 KB in the L1 cache, `PIECE`'s columns 288 KB in the L2 cache, and
/// `out` is read and written again 1/768 as often as it is added to.
const DEPTH: usize = 768;
/// Rows and columns of one task: 80 µs at full depth, which bounds how long other threads wait for the last one.
const PIECE: [usize; 2] = [64, 192];
/// Elements of each operand in strips at once: 2 MB.
const BLOCK: usize = 1 << 20;
/// Number of multiplications below which threads take longer to wake than to work: 20 µs of one core.
const WORTH_THREADS: usize = 1 << 21;

thread_local! {
    /// Memory of packed `a` and `b`, kept for the next product: new memory costs a page fault per 4 KB. It is removed
    /// while in use, because a waiting thread may run another task that multiplies.
    static BUFFERS: Cell<[Vec<Line>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Packed operand: strips `stride` lines apart.
#[derive(Clone, Copy)]
struct Strips {
    first: *const Line,
    stride: usize,
}

/// Block of `out`.
#[derive(Clone, Copy)]
struct Block {
    first: *mut f32,
    /// Elements from one row to the next.
    stride: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    scale: f32,
    accumulate: bool,
}

// SAFETY: packed operands are only read while tasks share them.
unsafe impl Sync for Strips {}
// SAFETY: tasks that share a block write parts of it that share no element.
unsafe impl Sync for Block {}

impl Strips {
    /// Skips rows of `a`, or columns of `b`: a multiple of [`LANES`].
    fn skip(self, count: usize) -> Self {
        Self { first: self.first.wrapping_add(count / LANES * self.stride), ..self }
    }
}

impl Block {
    /// Returns the block of these rows and columns.
    fn part(self, rows: &Range<usize>, columns: &Range<usize>) -> Self {
        let first = self.first.wrapping_add(rows.start * self.stride + columns.start);
        Self { first, rows: rows.len(), columns: columns.len(), ..self }
    }
}

/// # Safety
/// As [`super::product`], and its features are there.
pub(super) unsafe fn product(p: &Product) {
    if p.depth == 0 {
        for row in 0..if p.accumulate { 0 } else { p.rows } {
            // SAFETY: the row lies inside of `out`.
            unsafe { p.out.wrapping_add(row * p.out_stride).write_bytes(0, p.columns) };
        }
    } else if p.parallel && p.rows * p.columns * p.depth >= WORTH_THREADS {
        // SAFETY: the caller guarantees it.
        pool::within(|| unsafe { blocks(p) });
    } else {
        // SAFETY: as above.
        unsafe { blocks(&Product { parallel: false, ..*p }) };
    }
}

/// Computes a product whose depth is not 0. Its stretches depend on the depth alone, and their contributions to an
/// element are added in order: hence the same bits on any number of threads.
///
/// # Safety
/// As [`product`].
unsafe fn blocks(p: &Product) {
    let [mut left, mut right] = BUFFERS.take();
    let Product { rows, columns, depth, scale, accumulate, .. } = *p;
    let out = Block { first: p.out, stride: p.out_stride, rows, columns, depth, scale, accumulate };
    let stretch = depth.div_ceil(depth.div_ceil(DEPTH)).next_multiple_of(2 * LANES);
    let side = BLOCK / stretch / PIECE[1] * PIECE[1];
    for columns in steps(columns, side) {
        for depth in steps(depth, stretch) {
            // SAFETY: the ranges lie inside the matrices; the caller guarantees the rest.
            let b = unsafe { columns_of(&mut right, p, &columns, &depth) };
            for rows in steps(rows, side) {
                let out = out.part(&rows, &columns);
                let out = Block { depth: depth.len(), accumulate: accumulate || depth.start > 0, ..out };
                // SAFETY: as above, and both operands are packed for this block.
                unsafe {
                    let a = p.a.skip(rows.start, depth.start);
                    let kept = p.kept.map(|first| Kept { first, stride: p.depth }.skip(rows.start, depth.start));
                    pack_strips(&mut left, a, rows.len(), depth.len(), kept, p.parallel);
                    let a = Strips { first: left.as_ptr(), stride: stride(depth.len()) };
                    multiply_all(out, a, b, p.parallel);
                }
            }
        }
    }
    BUFFERS.set([left, right]);
}

/// Returns packed columns of a product's right operand, which may have been packed before.
///
/// # Safety
/// As [`product`].
unsafe fn columns_of(buffer: &mut Vec<Line>, p: &Product, columns: &Range<usize>, depth: &Range<usize>) -> Strips {
    match p.b {
        Right::Plain(b) => {
            let b = b.skip(depth.start, columns.start).transposed();
            // SAFETY: the caller guarantees it.
            unsafe { pack_strips(buffer, b, columns.len(), depth.len(), None, p.parallel) };
            Strips { first: buffer.as_ptr(), stride: stride(depth.len()) }
        }
        Right::Packed(packed) => {
            let first = packed.lines.as_ptr().wrapping_add(depth.start / 2);
            Strips { first, stride: packed.stride }.skip(columns.start)
        }
    }
}

/// Multiplies packed operands, piece by piece.
///
/// # Safety
/// As [`product`], for a block no deeper than [`DEPTH`].
unsafe fn multiply_all(out: Block, a: Strips, b: Strips, parallel: bool) {
    let [height, width] = PIECE;
    let across = out.columns.div_ceil(width);
    let piece = |i: usize| {
        let (row, column) = (i / across * height, i % across * width);
        let rows = row..out.rows.min(row + height);
        let columns = column..out.columns.min(column + width);
        // SAFETY: pieces share no element of `out`, and begin with a strip; the caller guarantees the rest.
        unsafe { multiply(out.part(&rows, &columns), a.skip(row), b.skip(column)) };
    };
    let pieces = 0..out.rows.div_ceil(height) * across;
    if parallel { pieces.into_par_iter().with_max_len(1).for_each(piece) } else { pieces.for_each(piece) }
}

/// Multiplies one piece, tile by tile. A strip of `a` stays in the L1 cache while all of `b` passes.
///
/// # Safety
/// The features are there, the operands are packed for `out`, and `out` may be written, and read to accumulate.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn multiply(out: Block, a: Strips, b: Strips) {
    let strips = out.columns.div_ceil(LANES);
    let groups = strips.div_ceil(TILE_STRIPS);
    for rows in steps(out.rows, TILE_ROWS) {
        let a = a.skip(rows.start).first.cast::<u32>().wrapping_add(rows.start % LANES);
        for group in 0..groups {
            // 4 strips are 2 + 2, not 3 + 1: one strip alone would load more than it multiplies.
            let (first, end) = (group * strips / groups, (group + 1) * strips / groups);
            let columns = first * LANES..out.columns.min(end * LANES);
            let (out, b) = (out.part(&rows, &columns), b.skip(columns.start));
            // SAFETY: the caller guarantees it for the whole piece.
            unsafe {
                match end - first {
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
