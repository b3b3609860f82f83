//! Operands as tiles read them: rounded to bfloat16, in strips of 16 rows of `a` or 16 columns of `b`.
#![allow(unsafe_code)]

use super::operand::Strided;
use half::bf16;
use std::fmt;
use std::ops::Range;

/// Pairs of bfloat16 in a line: the width of a strip.
pub(super) const LANES: usize = 16;

/// 16 pairs of bfloat16: one register of AVX-512, or two of AVX2.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u32; LANES]);

/// Right operand of several products, packed once: strips of 16 columns over the whole depth.
pub(crate) struct Packed {
    pub(super) lines: Vec<Line>,
    /// Lines from one strip to the next.
    pub(super) stride: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a packed matrix of {}×{}", self.depth, self.columns)
    }
}

impl Packed {
    /// Whether products may use these of its first rows and columns.
    pub(crate) fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == self.depth && columns <= self.columns
    }
}

/// Strips in memory, `stride` lines apart.
#[derive(Clone, Copy)]
pub(super) struct Strips {
    pub(super) first: *const Line,
    pub(super) stride: usize,
}

// SAFETY: packed operands are only read while tasks share them.
unsafe impl Sync for Strips {}

impl Strips {
    /// Skips rows of `a`, or columns of `b`: a multiple of [`LANES`].
    pub(super) fn skip(self, count: usize) -> Self {
        Self { first: self.first.wrapping_add(count / LANES * self.stride), ..self }
    }
}

/// Block of `out` that tiles compute.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) first: *mut f32,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    pub(super) scale: f32,
    pub(super) accumulate: bool,
}

// SAFETY: tasks that share a block write parts of it that share no element.
unsafe impl Sync for Block {}

impl Block {
    /// Returns the block of these rows and columns.
    pub(super) fn part(self, rows: &Range<usize>, columns: &Range<usize>) -> Self {
        let first = self.first.wrapping_add(rows.start * self.stride + columns.start);
        Self { first, rows: rows.len(), columns: columns.len(), ..self }
    }
}

/// Memory for rounded rows: their first element, and the elements from one row to the next.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) first: *mut bf16,
    pub(super) stride: usize,
}

// SAFETY: threads that share it write rows of their own.
unsafe impl Sync for Kept {}

impl Kept {
    /// The same rows without the first ones and without their first elements.
    pub(super) fn skip(self, rows: usize, elements: usize) -> Self {
        Self { first: self.first.wrapping_add(rows * self.stride + elements), ..self }
    }
}

/// Lines from one strip to the next: whole chunks of 16, plus one so that strips do not share cache sets.
pub(super) fn stride(depth: usize) -> usize {
    depth.div_ceil(2).next_multiple_of(LANES) + 1
}

/// Splits `0..len` into ranges of `step`.
pub(super) fn steps(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(step).map(move |start| start..len.min(start + step))
}

/// Splits columns into tiles of at most `most` strips; returns the number of strips of each and its columns. 4 strips are 2 + 2, not 3 + 1:
/// one strip alone would load more than it multiplies.
pub(super) fn groups(columns: usize, most: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let strips = columns.div_ceil(LANES);
    let groups = strips.div_ceil(most);
    (0..groups).map(move |group| {
        let (first, end) = (group * strips / groups, (group + 1) * strips / groups);
        (end - first, first * LANES..columns.min(end * LANES))
    })
}

/// Instruction set that makes lines of elements of type `T`.
pub(super) trait Lines<T> {
    /// Makes a line of a matrix whose columns are contiguous: of two columns, or of one and zeros.
    ///
    /// # Safety
    /// The instructions are there, and `rows`, of which the first 16 count, × `columns` elements of `from` may be read.
    unsafe fn interleave(from: Strided<T>, rows: usize, columns: usize) -> Line;

    /// Makes sixteen lines of a matrix whose rows are contiguous, and writes its rows to `kept` as they are rounded.
    ///
    /// # Safety
    /// The instructions are there, and `rows`, of which the first 16 count, × `columns`, at most 32, elements of `from` may be
    /// read, and as many of `kept` written.
    unsafe fn across(from: Strided<T>, rows: usize, columns: usize, kept: Option<Kept>, to: &mut [Line; LANES]);
}

/// Rounds `count` rows of `from` into strips. Lanes beyond `count` and the missing partner of an odd depth are zeros.
///
/// # Safety
/// The instructions are there, `count` × `depth` elements of `from` may be read, and as many of `kept` written.
#[inline(always)]
pub(super) unsafe fn pack<L: Lines<T>, T: Copy>(
    to: &mut [Line],
    from: Strided<T>,
    count: usize,
    depth: usize,
    kept: Option<Kept>,
) {
    debug_assert!(from.row_stride == 1 || from.column_stride == 1, "one stride is 1");
    let stride = stride(depth);
    if from.row_stride == 1 {
        // Line by line across all strips, in the order of memory.
        for k in steps(depth, 2) {
            for (s, strip) in to.chunks_mut(stride).enumerate() {
                let from = from.skip(s * LANES, k.start);
                // SAFETY: the elements lie inside of `count` and `depth`; the caller guarantees the rest.
                strip[k.start / 2] = unsafe { L::interleave(from, count - s * LANES, k.len()) };
            }
        }
    } else {
        for (s, strip) in to.chunks_mut(stride).enumerate() {
            for (k, lines) in steps(depth, 2 * LANES).zip(strip.as_chunks_mut().0) {
                let kept = kept.map(|kept| kept.skip(s * LANES, k.start));
                // SAFETY: as above.
                unsafe { L::across(from.skip(s * LANES, k.start), count - s * LANES, k.len(), kept, lines) };
            }
        }
    }
}
