//! Operands of products as they lie in memory.

use half::bf16;

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
