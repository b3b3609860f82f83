//! The kernels.

use super::slices::{Source, keep, left_fragment, places, read, right_fragment};
use super::tile::{DEPTH, Tile, area, reads};
use crate::cube::fragments::multiply;
use crate::cube::launch::wide_stride;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;

/// Sizes in numbers, and distances in vectors of 16 bytes; those of the product in numbers.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
pub(super) struct Sizes {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// Numbers of each sum that a cube adds, a multiple of [`DEPTH`].
    pub share: usize,
    /// Distances of rows, or of columns where those are contiguous.
    pub lhs_pitch: usize,
    pub rhs_pitch: usize,
    pub y_pitch: usize,
    pub base_pitch: usize,
    /// Distances of matrices.
    pub lhs_batch: usize,
    pub rhs_batch: usize,
    pub y_batch: usize,
    /// Factor of the products.
    pub scale: f32,
}

#[cube(launch)]
pub(super) fn product_of_tiles<T: Numeric, O: Numeric, W: Size, P: Size, Q: Size>(
    lhs: &Tensor<Vector<T, W>>,
    rhs: &Tensor<Vector<T, W>>,
    bias: &Tensor<f32>,
    base: &Tensor<Vector<f32, Q>>,
    y: &mut Tensor<Vector<O, Q>>,
    sizes: Sizes,
    #[comptime] tile: Tile,
    #[comptime] by_rows: [bool; 2],
    #[comptime] ragged: [bool; 2],
    #[comptime] added: [bool; 2],
    #[define(T)] _low: ElemType,
    #[define(O)] _out: ElemType,
) {
    let across = sizes.columns.div_ceil(comptime!(tile.columns));
    let first_row = CUBE_POS_X as usize / across * comptime!(tile.rows);
    let first_column = CUBE_POS_X as usize % across * comptime!(tile.columns);
    let start = CUBE_POS_Y as usize * sizes.share;
    let end = min(start + sizes.share, sizes.depth);
    let of_left = Source {
        offset: CUBE_POS_Z as usize * sizes.lhs_batch,
        first: first_row,
        count: sizes.rows,
        start,
        end,
        pitch: sizes.lhs_pitch,
        along_depth: comptime!(by_rows[0]),
        side: comptime!(tile.rows),
        ragged: comptime!(ragged[0]),
        tile,
    };
    let of_right = Source {
        offset: CUBE_POS_Z as usize * sizes.rhs_batch,
        first: first_column,
        count: sizes.columns,
        start,
        end,
        pitch: sizes.rhs_pitch,
        along_depth: comptime!(!by_rows[1]),
        side: comptime!(tile.columns),
        ragged: comptime!(ragged[1]),
        tile,
    };
    let left_area = comptime!(area(by_rows[0], tile.rows));
    let right_area = comptime!(area(!by_rows[1], tile.columns));
    let mut left = Shared::<[Vector<T, W>]>::new_slice(comptime!(2 * left_area));
    let mut right = Shared::<[Vector<T, W>]>::new_slice(comptime!(2 * right_area));
    let mut next_left = Array::<Vector<T, W>>::new(comptime!(reads(tile.rows, tile)));
    let mut next_right = Array::<Vector<T, W>>::new(comptime!(reads(tile.columns, tile)));
    let [part_rows, part_columns] = comptime!(tile.part);
    let (tall, wide) = (comptime!(part_rows / 16), comptime!(part_columns / 16));
    let row = UNIT_POS_Y as usize / comptime!(tile.across()) * part_rows;
    let column = UNIT_POS_Y as usize % comptime!(tile.across()) * part_columns;
    let mut sums = Array::<Vector<f32, P>>::new(comptime!(4 * tall * wide));
    #[unroll]
    for at in 0..comptime!(4 * tall * wide) {
        sums[at] = Vector::new(0.0f32);
    }

    let (left_places, left_limits) = places(&of_left);
    let (right_places, right_limits) = places(&of_right);
    read::<T, W>(&mut next_left, lhs, &left_places, &left_limits, 0usize, &of_left);
    read::<T, W>(&mut next_right, rhs, &right_places, &right_limits, 0usize, &of_right);
    keep::<T, W>(&next_left, &mut left, 0usize, 0usize, &of_left);
    keep::<T, W>(&next_right, &mut right, 0usize, 0usize, &of_right);
    sync_cube();
    let steps = (end - start).div_ceil(DEPTH);
    for step in 0..steps {
        let side = step % 2;
        // Beyond the last slice there are zeros.
        read::<T, W>(&mut next_left, lhs, &left_places, &left_limits, step + 1, &of_left);
        read::<T, W>(&mut next_right, rhs, &right_places, &right_limits, step + 1, &of_right);
        #[unroll]
        for part in 0..comptime!(DEPTH / 16) {
            let mut factors = Array::<Vector<T, P>>::new(comptime!(4 * tall));
            #[unroll]
            for i in 0..tall {
                let of_row = row + comptime!(16 * i);
                let found = left_fragment::<T, W, P>(
                    &left,
                    side * left_area,
                    of_row,
                    comptime!(16 * part),
                    by_rows[0],
                    tile.rows,
                );
                #[unroll]
                for e in 0..4usize {
                    factors[comptime!(4 * i + e)] = found[e];
                }
            }
            #[unroll]
            for j in 0..wide {
                let of_column = column + comptime!(16 * j);
                let found = right_fragment::<T, W, P>(
                    &right,
                    side * right_area,
                    of_column,
                    comptime!(16 * part),
                    comptime!(!by_rows[1]),
                    tile.columns,
                );
                #[unroll]
                for i in 0..tall {
                    #[unroll]
                    for half in 0..2usize {
                        let at = comptime!(4 * (i * wide + j) + 2 * half);
                        multiply::<T, P>(&mut sums, at, &factors, comptime!(4 * i), &found, comptime!(2 * half));
                    }
                }
            }
        }
        let other = (step + 1) % 2;
        keep::<T, W>(&next_left, &mut left, other * left_area, step + 1, &of_left);
        keep::<T, W>(&next_right, &mut right, other * right_area, step + 1, &of_right);
        sync_cube();
    }

    let of_y = (CUBE_POS_Y as usize * CUBE_COUNT_Z as usize + CUBE_POS_Z as usize) * sizes.y_batch;
    #[unroll]
    for i in 0..tall {
        #[unroll]
        for j in 0..wide {
            #[unroll]
            for e in 0..4usize {
                let of_row = first_row + row + comptime!(16 * i + e % 2 * 8) + UNIT_POS_X as usize / 4;
                let of_column = first_column + column + comptime!(16 * j + e / 2 * 8) + UNIT_POS_X as usize % 4 * 2;
                let mut pair = sums[comptime!(4 * (i * wide + j) + e)] * Vector::new(sizes.scale);
                if comptime!(added[0]) {
                    #[unroll]
                    for n in 0..2usize {
                        if of_column + n < sizes.columns {
                            pair.insert(n, pair.extract(n) + bias[of_column + n]);
                        }
                    }
                }
                if comptime!(added[1]) {
                    pair = plus::<P, Q>(pair, base, of_row, of_column, &sizes);
                }
                write::<O, P, Q>(y, pair, of_y + of_row * sizes.y_pitch, of_row, of_column, &sizes);
            }
        }
    }
}

/// Writes two neighbours of a row, which begins at `offset`.
#[cube]
fn write<O: Numeric, P: Size, Q: Size>(
    y: &mut Tensor<Vector<O, Q>>,
    pair: Vector<f32, P>,
    offset: usize,
    row: usize,
    column: usize,
    sizes: &Sizes,
) {
    let width = y.vector_size();
    if row < sizes.rows {
        if comptime!(width == 2) {
            if column < sizes.columns {
                y[(offset + column) / 2] = Vector::cast_from(pair);
            }
        } else {
            #[unroll]
            for e in 0..2usize {
                if column + e < sizes.columns {
                    y[offset + column + e] = Vector::cast_from(pair.extract(e));
                }
            }
        }
    }
}

/// Adds the base to two neighbours of a row.
#[cube]
fn plus<P: Size, Q: Size>(
    pair: Vector<f32, P>,
    base: &Tensor<Vector<f32, Q>>,
    row: usize,
    column: usize,
    sizes: &Sizes,
) -> Vector<f32, P> {
    let width = base.vector_size();
    let mut sums = pair;
    if row < sizes.rows {
        let at = row * sizes.base_pitch + column;
        #[unroll]
        for n in 0..2usize {
            if column + n < sizes.columns {
                if comptime!(width == 2) {
                    sums.insert(n, sums.extract(n) + base[at / 2].extract(n));
                } else {
                    sums.insert(n, sums.extract(n) + base[at + n].extract(0usize));
                }
            }
        }
    }
    sums
}

/// Adds shares, `[shares, batch, rows, columns]`, in order. Sizes and distances are in vectors, but for the number of rows.
#[cube(launch)]
pub(super) fn sum_of_shares<O: Numeric, N: Size>(
    from: &Tensor<Vector<f32, N>>,
    bias: &Tensor<Vector<f32, N>>,
    to: &mut Tensor<Vector<O, N>>,
    numbers: usize,
    shares: usize,
    rows: usize,
    columns: usize,
    pitch: usize,
    distance: usize,
    #[comptime] biased: bool,
    #[define(O)] _out: ElemType,
) {
    let mut at = ABSOLUTE_POS;
    while at < numbers {
        let mut sum = from[at];
        for share in 1..shares {
            sum += from[share * numbers + at];
        }
        let (row, column) = (at / columns, at % columns);
        if biased {
            sum += bias[column];
        }
        to[row / rows * distance + row % rows * pitch + column] = Vector::cast_from(sum);
        at += wide_stride();
    }
}
