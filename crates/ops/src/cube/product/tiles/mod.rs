//! Products of half-precision matrices on matrix units, for CUDA cards since compute capability 7.5: f32 sums, factors in either layout, and
//! sums over many numbers split among cubes.
//!
//! A cube computes a tile of the product, each of its planes a part of it. While it multiplies one slice of the factors in shared memory, it
//! reads the next one from the card's memory into registers. Cards with warpgroups have a [kernel](warpgroup) of their own, which also adds up to
//! three products.

mod kernel;
mod launch;
mod matrices;
mod slices;
mod tile;
mod warpgroup;

use crate::cube::fragments::{LANES, has_fragments};
use crate::cube::launch::{element, empty, wide_grid};
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use kernel::{SizesLaunch, product_of_tiles, sum_of_shares};
use launch::{Launch, Term};
use matrices::Matrices;
use tile::{DEPTH, RESIDENT, Tile, WIDTH, shares};

/// What becomes of products.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a> {
    /// Factor of the products.
    pub scale: f32,
    /// Bias that is added, one number for each column.
    pub bias: Option<&'a CubeTensor>,
    /// Numbers that are added, in f32 and in the product's shape.
    pub base: Option<&'a CubeTensor>,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, base: None }
    }
}

/// Writes the sum of products, each of two factors, after the epilogue to `y`; false if the factors are not of a type and layout that the kernels
/// take.
pub(super) fn launch_tiles(factors: &[[&CubeTensor; 2]], epilogue: Epilogue, y: &CubeTensor) -> bool {
    let Epilogue { scale, bias, base } = epilogue;
    let client = y.client.clone();
    let terms: Option<Vec<Term>> = factors.iter().map(|[lhs, rhs]| Term::of(lhs, rhs)).collect();
    let (Some(terms), Some(product)) = (terms, Matrices::of(y)) else { return false };
    let (low, Term { left, right, .. }) = (factors[0][0].dtype, &terms[0]);
    let alike = terms.iter().all(|term| term.is_like(&terms[0])) && factors.iter().flatten().all(|x| x.dtype == low);
    if !alike || !has_fragments(client.properties(), low) || !product.by_rows {
        return false;
    }
    // Of a grid's third axis, and of the kernels' indices.
    if left.batch > usize::from(u16::MAX) || u32::try_from(y.meta.num_elements()).is_err() {
        return false;
    }
    let on_warpgroups = warpgroup::takes(client.properties(), &terms, [low, y.dtype]);
    if !on_warpgroups && terms.len() > 1 {
        return false;
    }
    let (tile, slice, resident) = match on_warpgroups {
        true => {
            let tile = warpgroup::tile(left.rows, right.columns);
            (tile, warpgroup::DEPTH, warpgroup::resident(tile))
        }
        false => (Tile::of(left.rows, right.columns), DEPTH, RESIDENT),
    };
    let count = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns);
    let multiprocessors = client.properties().hardware.num_streaming_multiprocessors.map_or(32, |n| n as usize);
    let (starts, depth) = places(&terms, slice);
    let shares = shares(depth, count * left.batch, resident * multiprocessors);
    let share = depth.div_ceil(shares).next_multiple_of(slice);
    let shares = depth.div_ceil(share);
    let base_pitch = match base.map(Matrices::of) {
        None => 0,
        Some(Some(base)) if base.by_rows && base.batch == 1 && shares == 1 => base.pitch,
        Some(_) => return false,
    };
    // Shares of sums are added by another kernel, always in the same order.
    let partial = (shares > 1).then(|| empty(y, [shares, left.batch, left.rows, right.columns]));
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
    let added = bias.cloned().map_or_else(|| empty(y, [1]), into_contiguous);
    let launch = Launch {
        terms: &terms,
        bias: &added,
        base: base.unwrap_or(target),
        y: target,
        cubes: [count, shares, left.batch],
        starts,
        depth,
        share,
        scale,
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

/// Where the terms begin among the numbers of a sum, each with a slice of its own, and where the last one ends.
fn places(terms: &[Term], slice: usize) -> (Vec<usize>, usize) {
    let mut end = 0;
    let mut start = |term: &Term| {
        let start = usize::next_multiple_of(end, slice);
        end = start + term.left.columns;
        start
    };
    (terms.iter().map(&mut start).collect(), end)
}

/// Launches the kernel that multiplies fragments.
fn launch_fragments(launch: &Launch, tile: Tile) {
    let Term { lhs, rhs, left, right } = &launch.terms[0];
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
        launch.scale,
    );
    let tensor = |x: &CubeTensor| x.clone().into_tensor_arg();
    product_of_tiles::launch(
        &launch.y.client,
        launch.cube_count(),
        CubeDim::new_2d(LANES as u32, tile.planes() as u32),
        WIDTH,
        2,
        if launch.pairs { 2 } else { 1 },
        tensor(lhs),
        tensor(rhs),
        tensor(launch.bias),
        tensor(launch.base),
        tensor(launch.y),
        sizes,
        tile,
        [left.by_rows, right.by_rows],
        [left.is_ragged(), right.is_ragged()],
        launch.adds,
        element(lhs.dtype),
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
