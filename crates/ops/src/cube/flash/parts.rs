//! Building blocks of the kernels.

use super::super::attention::{is_seen, seen_by_rows};
use super::super::dropout::{Dropped, factor};
use super::super::fragments::{LANES, instruction, multiply};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::cmma::MatrixIdent;
use burn_cubecl::cubecl::prelude::*;

/// Planes of a cube.
pub(super) const PLANES: usize = 4;
/// Rows of a plane: those of a fragment.
pub(super) const SIDE: usize = 16;
/// Rows of a cube.
pub(super) const ROWS: usize = PLANES * SIDE;
/// Rows of the other side that are in shared memory at a time.
pub(super) const OTHERS: usize = 64;

/// Score of a hidden key, whose weight is 0 beside [`LEAST`], too.
pub(super) const HIDDEN: f32 = -3.0e38;
/// Initial maximum of a row, less than any score.
pub(super) const LEAST: f32 = -1.0e30;

/// Arguments of the kernels.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Call {
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub dropped: Dropped,
    #[cube(comptime)]
    pub d_head: usize,
    #[cube(comptime)]
    pub causal: bool,
    #[cube(comptime)]
    pub padded: bool,
    #[cube(comptime)]
    pub drops: bool,
}

/// Loads rows `start..` of a head into shared memory, with zeros behind the last of `rows`. `offset` is where the head begins, in vectors.
#[cube]
pub(super) fn load<T: Numeric, W: Size>(
    memory: &mut Shared<[Vector<T, W>]>,
    from: &Tensor<Vector<T, W>>,
    start: usize,
    rows: usize,
    offset: usize,
    #[comptime] d_head: usize,
) {
    let vectors = comptime!(d_head / 8);
    #[unroll]
    for i in 0..comptime!(OTHERS * vectors / (LANES * PLANES)) {
        let at = UNIT_POS as usize + comptime!(i * LANES * PLANES);
        let (row, column) = (at / vectors, at % vectors);
        let mut numbers = Vector::<T, W>::new(T::from_int(0));
        if start + row < rows {
            numbers = from[offset + (start + row) * vectors + column];
        }
        memory[row * comptime!(vectors + 1) + column] = numbers;
    }
}

/// Returns the plane's rows of a tile in shared memory as left factors: four registers for each 16 channels.
#[cube]
pub(super) fn left_factor<T: Numeric, W: Size, P: Size>(
    memory: &Shared<[Vector<T, W>]>,
    #[comptime] d_head: usize,
) -> Array<Vector<T, P>> {
    let mma = instruction::<T>();
    let steps = comptime!(d_head / 16);
    let row = UNIT_POS_Y as usize * SIDE + UNIT_POS_X as usize % 16;
    let mut factor = Array::<Vector<T, P>>::new(comptime!(4 * steps));
    #[unroll]
    for step in 0..steps {
        let at = row * comptime!(2 * steps + 1) + comptime!(2 * step) + UNIT_POS_X as usize / 16;
        let found = mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::A, 4usize, false);
        #[unroll]
        for i in 0..4usize {
            factor[comptime!(4 * step + i)] = found[i];
        }
    }
    factor
}

/// Returns the products of the plane's 16 rows with 16 rows of shared memory from `row`: columns 0 to 7 in the first two vectors, 8 to 15
/// in the others.
#[cube]
pub(super) fn by_rows<T: Numeric, W: Size, P: Size>(
    left: &Array<Vector<T, P>>,
    memory: &Shared<[Vector<T, W>]>,
    #[comptime] row: usize,
    #[comptime] d_head: usize,
) -> Array<Vector<f32, P>> {
    let mma = instruction::<T>();
    let steps = comptime!(d_head / 16);
    let lane = UNIT_POS_X as usize;
    let first = (row + lane % 8 + lane / 16 * 8) * comptime!(2 * steps + 1) + lane / 8 % 2;
    let mut products = zeros::<P>(4usize);
    #[unroll]
    for step in 0..steps {
        let at = first + comptime!(2 * step);
        let found = mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::B, 4usize, false);
        multiply::<T, P>(&mut products, 0usize, left, comptime!(4 * step), &found, 0usize);
        multiply::<T, P>(&mut products, 2usize, left, comptime!(4 * step), &found, 2usize);
    }
    products
}

/// Adds to the plane's sums, `[16, d_head]`, the product of weights, `[16, 16]`, with 16 rows of shared memory from `row`.
#[cube]
pub(super) fn add_rows<T: Numeric, W: Size, P: Size>(
    sums: &mut Array<Vector<f32, P>>,
    weights: &Array<Vector<T, P>>,
    memory: &Shared<[Vector<T, W>]>,
    #[comptime] row: usize,
    #[comptime] d_head: usize,
) {
    let mma = instruction::<T>();
    let steps = comptime!(d_head / 16);
    let lane = UNIT_POS_X as usize;
    let first = (row + lane % 16) * comptime!(2 * steps + 1) + lane / 16;
    #[unroll]
    for step in 0..steps {
        let at = first + comptime!(2 * step);
        let found = mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::B, 4usize, true);
        multiply::<T, P>(sums, comptime!(4 * step), weights, 0usize, &found, 0usize);
        multiply::<T, P>(sums, comptime!(4 * step + 2), weights, 0usize, &found, 2usize);
    }
}

/// Row of the cube that this unit's vector at an even or odd place belongs to.
#[cube]
pub(super) fn row_of_unit(#[comptime] place: usize) -> usize {
    UNIT_POS_Y as usize * SIDE + UNIT_POS_X as usize / 4 + comptime!(place % 2 * 8)
}

/// Column of the first number of this unit's vector at `place` among 16 columns.
#[cube]
pub(super) fn column_of_unit(#[comptime] place: usize) -> usize {
    UNIT_POS_X as usize % 4 * 2 + comptime!(place / 2 * 8)
}

/// Sum over the four units that share rows.
#[cube]
pub(super) fn row_sum(x: f32) -> f32 {
    let x = x + plane_shuffle_xor(x, 1u32);
    x + plane_shuffle_xor(x, 2u32)
}

/// Maximum over the four units that share rows.
#[cube]
pub(super) fn row_maximum(x: f32) -> f32 {
    let x = max(x, plane_shuffle_xor(x, 1u32));
    max(x, plane_shuffle_xor(x, 2u32))
}

/// Vectors of zeros.
#[cube]
pub(super) fn zeros<P: Size>(#[comptime] length: usize) -> Array<Vector<f32, P>> {
    let mut numbers = Array::<Vector<f32, P>>::new(length);
    #[unroll]
    for at in 0..length {
        numbers[at] = Vector::new(0.0f32);
    }
    numbers
}

/// Number of keys, from the first, that at least one query of a tile sees.
#[cube]
pub(super) fn seen_by_tile(first: usize, call: &Call) -> usize {
    seen_by_rows(first, ROWS, call.queries, call.keys, call.causal)
}

/// Whether query `i` sees key `j`.
#[cube]
pub(super) fn sees(i: usize, j: usize, padding: &Tensor<f32>, call: &Call) -> bool {
    is_seen(i, j, padding, call.queries, call.keys, call.causal, call.padded)
}

/// Factor of dropout of the weight of key `j` for query `i`, whose head begins at row `of_rows`.
#[cube]
pub(super) fn kept(i: usize, j: usize, of_rows: usize, call: &Call) -> f32 {
    factor(u32::cast_from((of_rows + i) * call.keys + j), &call.dropped)
}

/// Writes the plane's numbers, `[16, d_head]`, times `scale` to its rows of a tensor, `[batch, rows, heads · d_head]`.
#[cube]
pub(super) fn write<O: Numeric, P: Size>(
    numbers: &Array<Vector<f32, P>>,
    to: &mut Tensor<Vector<O, P>>,
    first: usize,
    rows: usize,
    scale: f32,
    call: &Call,
) {
    let steps = comptime!(call.d_head / 16);
    let width = call.heads * comptime!(call.d_head / 2);
    let start = CUBE_POS_Z as usize * rows * width + CUBE_POS_Y as usize * comptime!(call.d_head / 2);
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for i in 0..4usize {
            let row = first + row_of_unit(i);
            if row < rows {
                let at = start + row * width + comptime!(8 * step) + column_of_unit(i) / 2;
                to[at] = Vector::cast_from(numbers[comptime!(4 * step + i)] * Vector::new(scale));
            }
        }
    }
}
