//! Matrices as their places in memory.

use super::tile::WIDTH;
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;

/// A factor or product as a batch of matrices.
pub(super) struct Matrices {
    pub batch: usize,
    pub rows: usize,
    pub columns: usize,
    /// Whether neighbours in a row are neighbours in memory, not those in a column.
    pub by_rows: bool,
    /// Distance of rows, or of columns, in numbers.
    pub pitch: usize,
    /// Distance of matrices, in numbers.
    pub distance: usize,
}

impl Matrices {
    /// `None` if the matrices are not at equal distances, or have neighbours in neither direction.
    pub fn of(x: &CubeTensor) -> Option<Self> {
        let (shape, strides) = (x.shape(), x.meta.strides());
        let last = shape.num_dims().checked_sub(1)?;
        let [rows, columns] = [shape[last.checked_sub(1)?], shape[last]];
        let (mut batch, mut distance) = (1, 0);
        for axis in (0..last - 1).rev().filter(|axis| shape[*axis] > 1) {
            if batch == 1 {
                distance = strides[axis];
            } else if strides[axis] != batch * distance {
                return None;
            }
            batch *= shape[axis];
        }
        let by_rows = strides[last] == 1 || columns == 1;
        if !by_rows && strides[last - 1] != 1 {
            return None;
        }
        let pitch = if by_rows { strides[last - 1] } else { strides[last] };
        Some(Self { batch, rows, columns, by_rows, pitch, distance })
    }

    /// Length of what is contiguous: rows or columns.
    pub fn along(&self) -> usize {
        if self.by_rows { self.columns } else { self.rows }
    }

    /// Whether the last vector of a row or column reaches beyond it.
    pub fn is_ragged(&self) -> bool {
        !self.along().is_multiple_of(WIDTH)
    }

    /// Whether vectors of 16 bytes can be read along rows or columns.
    pub fn is_aligned(&self, x: &CubeTensor) -> bool {
        let offset = x.handle.offset_start.unwrap_or(0);
        // The last vector of a row reaches into the space between rows, if there is any.
        let fits = self.pitch >= self.along().next_multiple_of(WIDTH);
        fits && [self.pitch, self.distance].iter().all(|d| d.is_multiple_of(WIDTH)) && offset.is_multiple_of(16)
    }
}
