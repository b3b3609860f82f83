//! Products, block by block and piece by piece.
#![allow(unsafe_code)]

use super::instructions::Instructions;
use super::pack::pack_strips;
use super::product::{Product, Right};
use super::strips::{Block, Kept, LANES, Line, Strips, steps, stride};
use super::{avx2, avx512, widened};
use crate::pool;
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

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

/// # Safety
/// As [`super::product`], and the instructions are there.
pub(super) unsafe fn product(by: Instructions, p: &Product) {
    if p.depth == 0 {
        for row in 0..if p.accumulate { 0 } else { p.rows } {
            // SAFETY: the row lies inside of `out`.
            unsafe { p.out.wrapping_add(row * p.out_stride).write_bytes(0, p.columns) };
        }
    } else if p.parallel && p.rows * p.columns * p.depth >= WORTH_THREADS {
        // SAFETY: the caller guarantees it.
        pool::within(|| unsafe { blocks(by, p) });
    } else {
        // SAFETY: as above.
        unsafe { blocks(by, &Product { parallel: false, ..*p }) };
    }
}

/// Most elements of k that one pass over `out` adds.
fn longest_stretch(by: Instructions) -> usize {
    match by {
        Instructions::Avx512Bf16 => avx512::DEPTH,
        Instructions::Avx512 => widened::DEPTH,
        Instructions::Avx2 => avx2::DEPTH,
    }
}

/// Computes a product whose depth is not 0. Its stretches depend on the depth alone, and their contributions to an
/// element are added in order: hence the same bits on any number of threads.
///
/// # Safety
/// As [`product`].
unsafe fn blocks(by: Instructions, p: &Product) {
    let [mut left, mut right] = BUFFERS.take();
    let Product { rows, columns, depth, scale, accumulate, .. } = *p;
    let out = Block { first: p.out, stride: p.out_stride, rows, columns, depth, scale, accumulate };
    let stretch = depth.div_ceil(depth.div_ceil(longest_stretch(by))).next_multiple_of(2 * LANES);
    let side = BLOCK / stretch / PIECE[1] * PIECE[1];
    for columns in steps(columns, side) {
        for depth in steps(depth, stretch) {
            // SAFETY: the ranges lie inside the matrices; the caller guarantees the rest.
            let b = unsafe { columns_of(by, &mut right, p, &columns, &depth) };
            for rows in steps(rows, side) {
                let out = out.part(&rows, &columns);
                let out = Block { depth: depth.len(), accumulate: accumulate || depth.start > 0, ..out };
                // SAFETY: as above, and both operands are packed for this block.
                unsafe {
                    let a = p.a.skip(rows.start, depth.start);
                    let kept = p.kept.map(|first| Kept { first, stride: p.depth }.skip(rows.start, depth.start));
                    pack_strips(by, &mut left, a, rows.len(), depth.len(), kept, p.parallel);
                    let a = Strips { first: left.as_ptr(), stride: stride(depth.len()) };
                    multiply_all(by, out, a, b, p.parallel);
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
unsafe fn columns_of(
    by: Instructions,
    buffer: &mut Vec<Line>,
    p: &Product,
    columns: &Range<usize>,
    depth: &Range<usize>,
) -> Strips {
    match p.b {
        Right::Plain(b) => {
            let b = b.skip(depth.start, columns.start).transposed();
            // SAFETY: the caller guarantees it.
            unsafe { pack_strips(by, buffer, b, columns.len(), depth.len(), None, p.parallel) };
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
/// As [`product`], for a block no deeper than [`longest_stretch`].
unsafe fn multiply_all(by: Instructions, out: Block, a: Strips, b: Strips, parallel: bool) {
    let [height, width] = PIECE;
    let across = out.columns.div_ceil(width);
    let piece = |i: usize| {
        let (row, column) = (i / across * height, i % across * width);
        let rows = row..out.rows.min(row + height);
        let columns = column..out.columns.min(column + width);
        let (out, a, b) = (out.part(&rows, &columns), a.skip(row), b.skip(column));
        // SAFETY: pieces share no element of `out`, and begin with a strip; the caller guarantees the rest.
        unsafe {
            match by {
                Instructions::Avx512Bf16 => avx512::multiply(out, a, b),
                Instructions::Avx512 => widened::multiply(out, a, b),
                Instructions::Avx2 => avx2::multiply(out, a, b),
            }
        }
    };
    let pieces = 0..out.rows.div_ceil(height) * across;
    if parallel { pieces.into_par_iter().with_max_len(1).for_each(piece) } else { pieces.for_each(piece) }
}
