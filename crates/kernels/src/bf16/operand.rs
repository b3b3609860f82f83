//! Products, their operands as they lie in memory, and as tiles read them.

use half::bf16;
use std::fmt;

/// `f32`s, or pairs of bfloat16, in a register: the width of a strip.
pub(super) const LANES: usize = 16;

/// A matrix to read: element `(i, j)` lies at `i · row_stride + j · column_stride`. One of the two strides is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<T> {
    pub(crate) data: *const T,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

// SAFETY: operands are only read, and whoever multiplies promises that nothing writes their memory meanwhile.
#[allow(unsafe_code)]
unsafe impl<T> Sync for Strided<T> {}

impl<T> Strided<T> {
    pub(super) fn transposed(self) -> Self {
        Self { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
    }

    /// The same matrix without its first rows and columns.
    pub(super) fn skip(self, rows: usize, columns: usize) -> Self {
        Self { data: self.at(rows, columns), ..self }
    }

    pub(super) fn at(&self, i: usize, j: usize) -> *const T {
        self.data.wrapping_add(i.wrapping_mul(self.row_stride)).wrapping_add(j.wrapping_mul(self.column_stride))
    }
}

/// Operand of a product, in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    F32(Strided<f32>),
    /// Rounded before.
    Bf16(Strided<bf16>),
}

impl Operand {
    pub(super) fn transposed(self) -> Self {
        match self {
            Self::F32(matrix) => Self::F32(matrix.transposed()),
            Self::Bf16(matrix) => Self::Bf16(matrix.transposed()),
        }
    }

    /// The same matrix without its first rows and columns.
    pub(super) fn skip(self, rows: usize, columns: usize) -> Self {
        match self {
            Self::F32(matrix) => Self::F32(matrix.skip(rows, columns)),
            Self::Bf16(matrix) => Self::Bf16(matrix.skip(rows, columns)),
        }
    }
}

/// Register of 16 pairs of bfloat16.
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

/// Right operand of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right<'a> {
    /// As it lies in memory.
    Plain(Operand),
    /// Packed before.
    Packed(&'a Packed),
}

/// `out = scale · a · b`, or `out += scale · a · b`, for `a` of `[rows, depth]` and `b` of `[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product<'a> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    /// Rows of `columns` contiguous elements, `out_stride` apart.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    pub(crate) a: Operand,
    pub(crate) b: Right<'a>,
    /// Memory for `a` as it is rounded, row after row, if it is wanted. `a` must have contiguous rows of more than one element then,
    /// or nothing is written.
    pub(crate) kept: Option<*mut bf16>,
    pub(crate) scale: f32,
    pub(crate) accumulate: bool,
    /// Whether to use all threads of rayon's current pool. The result has the same bits either way.
    pub(crate) parallel: bool,
}

// SAFETY: whoever calls `product` promises that nothing else uses the memory meanwhile; threads that share a `Product`
// write blocks of `out` that share no element.
#[allow(unsafe_code)]
unsafe impl Sync for Product<'_> {}
