//! Products.

use super::operand::Operand;
use super::strips::Packed;
use half::bf16;

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
