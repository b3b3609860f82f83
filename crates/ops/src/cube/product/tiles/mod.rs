//! Products of half-precision matrices on matrix units, for CUDA cards since compute capability 7.5: f32 sums, factors in either layout, and
//! sums over many numbers split among cubes.
//!
//! A cube computes a tile of the product, each of its planes a part of it. While it multiplies one slice of the factors in shared memory, it
//! reads the next one from the card's memory into registers. Cards with warpgroups have a [kernel](warpgroup) of their own for all but narrow
//! products.

mod kernel;
mod launch;
mod matrices;
mod slices;
mod tile;
mod warpgroup;

use crate::cube::fragments::{LANES, has_fragments};
use crate::cube::launch::{element, empty, wide_grid};
use burn::tensor::DType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use kernel::{SizesLaunch, product_of_tiles, sum_of_shares};
use launch::Launch;
use matrices::Matrices;
use tile::{DEPTH, RESIDENT, Tile, WIDTH, shares};

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
    let on_warpgroups = warpgroup::takes(client.properties(), [&left, &right], [lhs.dtype, y.dtype]);
    let (tile, depth, resident) = match on_warpgroups {
        true => (warpgroup::TILE, warpgroup::DEPTH, warpgroup::RESIDENT),
        false => (Tile::of(left.rows, right.columns), DEPTH, RESIDENT),
    };
    let count = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns);
    let multiprocessors = client.properties().hardware.num_streaming_multiprocessors.map_or(32, |n| n as usize);
    let shares = shares(left.columns, count * left.batch, resident * multiprocessors);
    let share = left.columns.div_ceil(shares).next_multiple_of(depth);
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
    // Without a bias or base any tensor will do, because it is not read.
    let added = bias.cloned().map_or_else(|| empty(lhs, [1]), into_contiguous);
    let launch = Launch {
        lhs,
        rhs,
        bias: &added,
        base: base.unwrap_or(target),
        y: target,
        left: &left,
        right: &right,
        cubes: [count, shares, left.batch],
        share,
        y_pitch,
        y_batch,
        base_pitch,
        adds: [bias.is_some() && partial.is_none(), base_pitch > 0],
        pairs,
    };
    match on_warpgroups {
        true => warpgroup::launch(&launch),
        false => launch_fragments(&launch, tile),
    }
    if let Some(partial) = partial {
        add_shares(&partial, bias.is_some(), added, y, &product);
    }
    true
}

/// Launches the kernel that multiplies fragments.
fn launch_fragments(launch: &Launch, tile: Tile) {
    let Launch { left, right, .. } = launch;
    let sizes = SizesLaunch::new(
        left.rows,
        right.columns,
        left.columns,
        launch.share,
        left.pitch / WIDTH,
        right.pitch / WIDTH,
        launch.y_pitch,
        launch.base_pitch,
        left.distance / WIDTH,
        right.distance / WIDTH,
        launch.y_batch,
    );
    let tensor = |x: &CubeTensor| x.clone().into_tensor_arg();
    product_of_tiles::launch(
        &launch.lhs.client,
        launch.cube_count(),
        CubeDim::new_2d(LANES as u32, tile.planes() as u32),
        WIDTH,
        2,
        if launch.pairs { 2 } else { 1 },
        tensor(launch.lhs),
        tensor(launch.rhs),
        tensor(launch.bias),
        tensor(launch.base),
        tensor(launch.y),
        sizes,
        tile,
        [left.by_rows, right.by_rows],
        [left.is_ragged(), right.is_ragged()],
        launch.adds,
        element(launch.lhs.dtype),
        element(launch.y.dtype),
    );
}

/// Writes the sums of shares, `[shares, batch, rows, columns]`, to `y`, plus a bias if there is one.
fn add_shares(partial: &CubeTensor, biased: bool, bias: CubeTensor, y: &CubeTensor, product: &Matrices) {
    let (shares, numbers) = (partial.meta.shape()[0], y.meta.num_elements());
    let Matrices { rows, columns, pitch, distance, .. } = *product;
    let is_whole = [columns, pitch, distance].iter().all(|n| n.is_multiple_of(4))
        && [&bias, y].iter().all(|x| x.handle.offset_start.unwrap_or(0).is_multiple_of(16));
    let width = if is_whole { 4 } else { 1 };
    let (cubes, units) = wide_grid(&y.client, numbers / width);
    let [from, to] = [partial, y].map(|x| x.clone().into_tensor_arg());
    let (bias, out) = (bias.into_tensor_arg(), element(y.dtype));
    let [numbers, columns, pitch, distance] = [numbers, columns, pitch, distance].map(|n| n / width);
    sum_of_shares::launch(
        &y.client, cubes, units, width, from, bias, to, numbers, shares, rows, columns, pitch, distance, biased, out,
    );
}
