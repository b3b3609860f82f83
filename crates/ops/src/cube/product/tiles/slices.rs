//! Slices of the factors: from the card's memory to registers, from there to shared memory, and from there to fragments.

use super::tile::{DEPTH, Tile, WIDTH, line, pitch, reads};
use crate::cube::fragments::instruction;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::cmma::MatrixIdent;
use burn_cubecl::cubecl::prelude::*;

/// Where a cube reads a factor.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Source {
    /// First vector of the matrix.
    pub offset: usize,
    /// Rows of the left factor, or columns of the right one, from `first`; there are `count` in all.
    pub first: usize,
    pub count: usize,
    /// Numbers of the sums from `start` to `end`.
    pub start: usize,
    pub end: usize,
    pub pitch: usize,
    #[cube(comptime)]
    pub along_depth: bool,
    /// Rows or columns of a tile.
    #[cube(comptime)]
    pub side: usize,
    #[cube(comptime)]
    pub ragged: bool,
    #[cube(comptime)]
    pub tile: Tile,
}

/// Returns where this unit's vectors of the first slice lie, and how many numbers of the sums there are from there: none beyond the last row.
#[cube]
pub(super) fn places(source: &Source) -> (Array<usize>, Array<usize>) {
    let (side, tile, along_depth) = (comptime!(source.side), comptime!(source.tile), comptime!(source.along_depth));
    let line = comptime!(line(along_depth, side));
    let mut places = Array::<usize>::new(comptime!(reads(side, tile)));
    let mut limits = Array::<usize>::new(comptime!(reads(side, tile)));
    #[unroll]
    for i in 0..comptime!(reads(side, tile)) {
        let at = UNIT_POS as usize + comptime!(i * tile.units());
        let (of_line, of_vector) = (at / line, at % line * WIDTH);
        let (mut row, mut depth) = (source.first + of_vector, source.start + of_line);
        let mut place = source.offset + depth * source.pitch + row / WIDTH;
        if along_depth {
            row = source.first + of_line;
            depth = source.start + of_vector;
            place = source.offset + row * source.pitch + depth / WIDTH;
        }
        let mut limit = 0usize;
        if at < comptime!(side * DEPTH / WIDTH) && row < source.count && depth < source.end {
            limit = source.end - depth;
        }
        places[i] = place;
        limits[i] = limit;
    }
    (places, limits)
}

/// Reads this unit's vectors of a slice of a factor. Nothing here needs what is read, so that the next reads and products do not wait for it.
#[cube]
pub(super) fn read<T: Numeric, W: Size>(
    vectors: &mut Array<Vector<T, W>>,
    factor: &Tensor<Vector<T, W>>,
    places: &Array<usize>,
    limits: &Array<usize>,
    slice: usize,
    source: &Source,
) {
    let mut distance = slice * DEPTH * source.pitch;
    if comptime!(source.along_depth) {
        distance = slice * comptime!(DEPTH / WIDTH);
    }
    #[unroll]
    for i in 0..comptime!(reads(source.side, source.tile)) {
        vectors[i] = Vector::new(T::from_int(0));
        if slice * DEPTH < limits[i] {
            vectors[i] = factor[places[i] + distance];
        }
    }
}

/// Writes this unit's vectors of a slice to shared memory, from `offset`.
#[cube]
pub(super) fn keep<T: Numeric, W: Size>(
    vectors: &Array<Vector<T, W>>,
    memory: &mut Shared<[Vector<T, W>]>,
    offset: usize,
    slice: usize,
    source: &Source,
) {
    let (side, tile, along_depth) = (comptime!(source.side), comptime!(source.tile), comptime!(source.along_depth));
    let line = comptime!(line(along_depth, side));
    #[unroll]
    for i in 0..comptime!(reads(side, tile)) {
        let at = UNIT_POS as usize + comptime!(i * tile.units());
        let mut vector = vectors[i];
        if comptime!(source.ragged) {
            let mut first = source.first + at % line * WIDTH;
            let mut end = source.count;
            if along_depth {
                first = source.start + slice * DEPTH + at % line * WIDTH;
                end = source.end;
            }
            #[unroll]
            for e in 0..WIDTH {
                if first + e >= end {
                    vector.insert(e, T::from_int(0));
                }
            }
        }
        let is_whole = comptime!((side * DEPTH / WIDTH).is_multiple_of(tile.units()));
        if is_whole || at < comptime!(side * DEPTH / WIDTH) {
            memory[offset + at / line * comptime!(pitch(along_depth, side)) + at % line] = vector;
        }
    }
}

/// Returns 16 rows from `row` and 16 numbers of the sums from `depth` as a left factor.
#[cube]
pub(super) fn left_fragment<T: Numeric, W: Size, P: Size>(
    memory: &Shared<[Vector<T, W>]>,
    offset: usize,
    row: usize,
    #[comptime] depth: usize,
    #[comptime] along_depth: bool,
    #[comptime] side: usize,
) -> Array<Vector<T, P>> {
    let mma = instruction::<T>();
    let lane = UNIT_POS_X as usize;
    let lines = comptime!(pitch(along_depth, side));
    let mut at = offset + (depth + lane % 8 + lane / 16 * 8) * lines + row / WIDTH + lane / 8 % 2;
    if along_depth {
        at = offset + (row + lane % 16) * lines + comptime!(depth / WIDTH) + lane / 16;
    }
    mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::A, 4usize, comptime!(!along_depth))
}

/// Returns 16 columns from `column` and 16 numbers of the sums from `depth` as two right factors of 8 columns.
#[cube]
pub(super) fn right_fragment<T: Numeric, W: Size, P: Size>(
    memory: &Shared<[Vector<T, W>]>,
    offset: usize,
    column: usize,
    #[comptime] depth: usize,
    #[comptime] along_depth: bool,
    #[comptime] side: usize,
) -> Array<Vector<T, P>> {
    let mma = instruction::<T>();
    let lane = UNIT_POS_X as usize;
    let lines = comptime!(pitch(along_depth, side));
    let mut at = offset + (depth + lane % 16) * lines + column / WIDTH + lane / 16;
    if along_depth {
        at = offset + (column + lane % 8 + lane / 16 * 8) * lines + comptime!(depth / WIDTH) + lane / 8 % 2;
    }
    mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::B, 4usize, comptime!(!along_depth))
}
