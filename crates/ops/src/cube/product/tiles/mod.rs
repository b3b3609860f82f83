//! Products of half-precision matrices on matrix units, for CUDA cards since compute capability 8.0: f32 sums, factors in either layout, and
//! sums over many numbers split among cubes.
//!
//! A cube computes a tile of the product, each of its planes a part of it. While it multiplies one slice of the factors in shared memory, it
//! reads the next one from the card's memory into registers.

mod kernel;
mod slices;
mod tile;

use crate::cube::fragments::{LANES, has_fragments};
use crate::cube::launch::{element, empty, wide_grid};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use kernel::{SizesLaunch, product_of_tiles, sum_of_shares};
use tile::{DEPTH, Tile, WIDTH, shares};

/// A factor or product as a batch of matrices.
struct Matrices {
    batch: usize,
    rows: usize,
    columns: usize,
    /// Whether neighbours in a row are neighbours in memory, not those in a column.
    by_rows: bool,
    /// Distance of rows, or of columns, in numbers.
    pitch: usize,
    /// Distance of matrices, in numbers.
    distance: usize,
}

impl Matrices {
    /// `None` if the matrices are not at equal distances, or have neighbours in neither direction.
    fn of(x: &CubeTensor) -> Option<Self> {
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
    fn along(&self) -> usize {
        if self.by_rows { self.columns } else { self.rows }
    }

    /// Whether the last vector of a row or column reaches beyond it.
    fn is_ragged(&self) -> bool {
        !self.along().is_multiple_of(WIDTH)
    }

    /// Whether vectors of 16 bytes can be read along rows or columns.
    fn is_aligned(&self, x: &CubeTensor) -> bool {
        let offset = x.handle.offset_start.unwrap_or(0);
        // The last vector of a row reaches into the space between rows, if there is any.
        let fits = self.pitch >= self.along().next_multiple_of(WIDTH);
        fits && [self.pitch, self.distance].iter().all(|d| d.is_multiple_of(WIDTH)) && offset.is_multiple_of(16)
    }
}

/// Numbers that are added to a product.
#[derive(Clone, Copy, Default)]
pub(super) struct Added<'a> {
    /// One for each column.
    pub bias: Option<&'a CubeTensor>,
    /// Numbers in f32 and in the product's shape.
    pub base: Option<&'a CubeTensor>,
}

/// Writes `lhs · rhs`, plus what is added, to `y`; false if the factors are not of a type and layout that the kernels take.
pub(super) fn launch_tiles(lhs: &CubeTensor, rhs: &CubeTensor, Added { bias, base }: Added, y: &CubeTensor) -> bool {
    let client = lhs.client.clone();
    if lhs.dtype != rhs.dtype || !has_fragments(client.properties(), lhs.dtype) {
        return false;
    }
    let [Some(left), Some(right), Some(product)] = [lhs, rhs, y].map(Matrices::of) else { return false };
    if !left.is_aligned(lhs) || !right.is_aligned(rhs) || !product.by_rows || left.batch != right.batch {
        return false;
    }
    // Of a grid's third axis, and of the kernels' indices.
    if left.batch > usize::from(u16::MAX) || u32::try_from(y.meta.num_elements()).is_err() {
        return false;
    }
    let tile = Tile::of(left.rows, right.columns);
    let tiles = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns) * left.batch;
    let multiprocessors = client.properties().hardware.num_streaming_multiprocessors.map_or(32, |n| n as usize);
    let shares = shares(left.columns, tiles, multiprocessors);
    let share = left.columns.div_ceil(shares).next_multiple_of(DEPTH);
    let shares = left.columns.div_ceil(share);
    let base_pitch = match base.map(Matrices::of) {
        None => 0,
        Some(Some(base)) if base.by_rows && base.batch == 1 && shares == 1 => base.pitch,
        Some(_) => return false,
    };
    // Shares of sums are added by another kernel, always in the same order.
    let partial = (shares > 1).then(|| {
        let shape = [shares, left.batch, left.rows, right.columns].into();
        empty_device_contiguous_dtype(client.clone(), y.device.clone(), shape, DType::F32)
    });
    let target = partial.as_ref().unwrap_or(y);
    let (y_pitch, y_batch) = match &partial {
        Some(_) => (right.columns, left.rows * right.columns),
        None => (product.pitch, product.distance),
    };
    let starts_at_pair = |x: &CubeTensor| x.handle.offset_start.unwrap_or(0).is_multiple_of(8);
    let pairs = [right.columns, y_pitch, y_batch, base_pitch].iter().all(|n| n.is_multiple_of(2))
        && starts_at_pair(target)
        && base.is_none_or(starts_at_pair);
    let sizes = SizesLaunch::new(
        left.rows,
        right.columns,
        left.columns,
        share,
        left.pitch / WIDTH,
        right.pitch / WIDTH,
        y_pitch,
        base_pitch,
        left.distance / WIDTH,
        right.distance / WIDTH,
        y_batch,
    );
    let count = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns);
    let cubes = CubeCount::Static(count as u32, shares as u32, left.batch as u32);
    // Without a bias or base any tensor will do, because it is not read.
    let base = base.unwrap_or(target).clone();
    let added = bias.cloned().map_or_else(|| empty(lhs, [1]), into_contiguous);
    let (of_product, of_base) = (bias.is_some() && partial.is_none(), base_pitch > 0);
    let [a, b, c] = [lhs, rhs, target].map(|x| x.clone().into_tensor_arg());
    let units = CubeDim::new_2d(LANES as u32, tile.planes() as u32);
    let (low, out) = (element(lhs.dtype), element(target.dtype));
    let width = if pairs { 2 } else { 1 };
    product_of_tiles::launch(
        &client,
        cubes,
        units,
        WIDTH,
        2,
        width,
        a,
        b,
        added.clone().into_tensor_arg(),
        base.into_tensor_arg(),
        c,
        sizes,
        tile,
        [left.by_rows, right.by_rows],
        [left.is_ragged(), right.is_ragged()],
        [of_product, of_base],
        low,
        out,
    );
    if let Some(partial) = partial {
        add_shares(&partial, bias.is_some(), added, y, &product);
    }
    true
}

/// Writes the sums of shares, `[shares, batch, rows, columns]`, to `y`, plus a bias if there is one.
fn add_shares(partial: &CubeTensor, biased: bool, bias: CubeTensor, y: &CubeTensor, product: &Matrices) {
    let (shares, numbers) = (partial.shape()[0], y.meta.num_elements());
    let (cubes, units) = wide_grid(&y.client, numbers);
    let [from, to] = [partial, y].map(|x| x.clone().into_tensor_arg());
    let Matrices { rows, columns, pitch, distance, .. } = *product;
    let (bias, out) = (bias.into_tensor_arg(), element(y.dtype));
    sum_of_shares::launch(
        &y.client, cubes, units, from, bias, to, numbers, shares, rows, columns, pitch, distance, biased, out,
    );
}
