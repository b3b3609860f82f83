//! Sums in a fixed order.

use super::launch::{
    UNITS, WIDE, element, empty, most_cubes, row_vector_width, sum_of_cube, summed, vector_width, wide_stride,
};
use super::optimizer::grouped;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Number of elements that one cube sums alone.
const FEW: usize = 64 * UNITS;
/// Units along each side of a cube that sums columns: vectors of columns, and rows.
const SIDE: usize = 16;
/// Least rows that a unit of such a cube sums if there are several slabs.
const FEW_ROWS: usize = 8;
/// Rows that one slab takes. A second launch costs the host more than the units of one slab wait for their reads.
const ONE_SLAB: usize = 2048;
/// Reads of a unit under way at a time.
const READS: usize = 4;

/// Returns the sum of all elements, `[1]`.
pub(crate) fn sum(x: CubeTensor) -> CubeTensor {
    let x = if x.meta.num_elements() > FEW { partial_sums(vec![x], false) } else { into_contiguous(x) };
    collected(&x)
}

/// Returns the sum of squares of all elements of all tensors, `[1]`.
pub(crate) fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    collected(&partial_sums(tensors, true))
}

/// Returns the sums of columns, `[columns]` in f32, of `[.., columns]` in any float type. Slabs of many rows are summed in parallel, then their sums.
pub(crate) fn column_sums(x: CubeTensor) -> CubeTensor {
    let x = into_contiguous(x);
    let columns = *x.meta.shape().last().unwrap_or(&1);
    let rows = x.meta.num_elements() / columns.max(1);
    let width = row_vector_width(columns, std::iter::once(&x));
    let across = columns.div_ceil(width * SIDE).max(1);
    let slabs = rows.div_ceil(SIDE * FEW_ROWS).min(most_cubes(&x.client).div_ceil(across));
    if rows <= ONE_SLAB || slabs == 1 {
        return slab_sums(&x, [rows, columns], 1, width);
    }
    slab_sums(&slab_sums(&x, [rows, columns], slabs, width), [slabs, columns], 1, width)
}

/// Returns the sums of columns of each slab of rows, `[slabs · columns]`.
fn slab_sums(x: &CubeTensor, [rows, columns]: [usize; 2], slabs: usize, width: usize) -> CubeTensor {
    let sums = empty(x, [slabs * columns]);
    if columns > 0 {
        let vectors = columns / width;
        let cubes = CubeCount::Static(vectors.div_ceil(SIDE) as u32, slabs as u32, 1);
        let units = CubeDim::new_2d(SIDE as u32, SIDE as u32);
        let (arg, out) = (x.clone().into_tensor_arg(), sums.clone().into_tensor_arg());
        let (client, height) = (sums.client.clone(), rows.div_ceil(slabs));
        slab_sums_kernel::launch(&client, cubes, units, width, arg, out, rows, vectors, height, element(x.dtype));
    }
    sums
}

/// Returns partial sums: for each group of tensors that a kernel takes, one of each cube.
fn partial_sums(tensors: Vec<CubeTensor>, squares: bool) -> CubeTensor {
    let client = tensors.first().expect("something to sum").client.clone();
    let groups = grouped(tensors.into_iter().map(into_contiguous).collect(), &client, 1);
    let like = groups[0][0].clone();
    // As many for every length, so that the order of the additions depends on the device alone.
    let cubes = most_cubes(&client);
    let sums = empty(&like, [groups.len() * cubes]);
    for (index, group) in groups.into_iter().enumerate() {
        let width = vector_width(group.iter());
        let tensors = group.into_iter().map(CubeTensor::into_tensor_arg).collect();
        let (count, units) = (CubeCount::Static(cubes as u32, 1, 1), CubeDim::new_1d(WIDE as u32));
        let out = sums.clone().into_tensor_arg();
        partial_sums_kernel::launch(&client, count, units, width, tensors, out, index * cubes, squares);
    }
    sums
}

fn collected(x: &CubeTensor) -> CubeTensor {
    let sum = empty(x, [1]);
    let (one, units) = (CubeCount::Static(1, 1, 1), CubeDim::new_1d(UNITS as u32));
    let elements = x.meta.num_elements();
    let (x, out) = (x.clone().into_tensor_arg(), sum.clone().into_tensor_arg());
    collected_kernel::launch(&sum.client, one, units, x, out, elements);
    sum
}

#[cube(launch)]
fn partial_sums_kernel<N: Size>(
    tensors: &Sequence<OwnedTensor<Vector<f32, N>>>,
    sums: &mut Tensor<f32>,
    first: usize,
    #[comptime] squares: bool,
) {
    let mut shares = Shared::<[f32]>::new_slice(WIDE);
    let mut share = Vector::<f32, N>::new(0.0f32);
    #[unroll]
    for i in 0..tensors.len() {
        let x = &tensors[i];
        let mut at = ABSOLUTE_POS;
        while at < x.len() {
            let numbers = x[at];
            if squares {
                share += numbers * numbers;
            } else {
                share += numbers;
            }
            at += wide_stride();
        }
    }
    let mut own = 0.0f32;
    #[unroll]
    for i in 0..share.vector_size() {
        own += share.extract(i);
    }
    let sum = sum_of_cube(&mut shares, own);
    if UNIT_POS_X == 0 {
        sums[first + CUBE_POS_X as usize] = sum;
    }
}

#[cube(launch)]
fn collected_kernel(x: &Tensor<f32>, sum: &mut Tensor<f32>, elements: usize) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let mut share = 0.0f32;
    let mut at = UNIT_POS_X as usize;
    while at < elements {
        share += x[at];
        at += UNITS;
    }
    let all = summed(&mut shares, share);
    if UNIT_POS_X == 0 {
        sum[0] = all;
    }
}

#[cube(launch)]
fn slab_sums_kernel<T: Numeric, N: Size>(
    x: &Tensor<Vector<T, N>>,
    sums: &mut Tensor<Vector<f32, N>>,
    rows: usize,
    vectors: usize,
    height: usize,
    #[define(T)] _dtype: ElemType,
) {
    let mut shares = Shared::<[Vector<f32, N>]>::new_slice(comptime!(SIDE * SIDE));
    let (across, down) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let column = CUBE_POS_X as usize * SIDE + across;
    let first = CUBE_POS_Y as usize * height;
    let mut share = Vector::<f32, N>::new(0.0f32);
    if column < vectors {
        let end = min(first + height, rows);
        let mut row = first + down;
        while row + comptime!((READS - 1) * SIDE) < end {
            let mut read = Array::<Vector<T, N>>::new(READS);
            #[unroll]
            for i in 0..READS {
                read[i] = x[(row + i * SIDE) * vectors + column];
            }
            #[unroll]
            for i in 0..READS {
                share += Vector::cast_from(read[i]);
            }
            row += comptime!(READS * SIDE);
        }
        while row < end {
            share += Vector::cast_from(x[row * vectors + column]);
            row += SIDE;
        }
    }
    shares[down * SIDE + across] = share;
    #[unroll]
    for level in 0..comptime!(SIDE.ilog2() as usize) {
        let half = comptime!(SIDE >> (level + 1));
        sync_cube();
        if down < half {
            let other = shares[(down + half) * SIDE + across];
            shares[down * SIDE + across] += other;
        }
    }
    if down == 0 && column < vectors {
        sums[CUBE_POS_Y as usize * vectors + column] = shares[across];
    }
}
