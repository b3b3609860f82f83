//! Building blocks of the kernels.

use super::super::dropout::Dropped;
use super::tile::{SIDE, Tile};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;

/// Initial maximum of a row, less than any score.
pub(super) const LEAST: f32 = -3.0e38;

/// Arguments of the kernels.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Call {
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub scale: f32,
    pub dropped: Dropped,
    #[cube(comptime)]
    pub tile: Tile,
    #[cube(comptime)]
    pub causal: bool,
    #[cube(comptime)]
    pub padded: bool,
    #[cube(comptime)]
    pub drops: bool,
}

/// Loads rows `start..` of keys or values into shared memory, as [`load`] does, with zeros for padded rows, whose
/// contents have no influence.
#[cube]
pub(super) fn load_seen(
    memory: &mut Shared<[f32]>,
    from: &Tensor<f32>,
    start: usize,
    factor: f32,
    padding: &Tensor<f32>,
    call: &Call,
    #[comptime] count: usize,
) {
    let tile = comptime!(call.tile);
    let width = call.heads * tile.d_head;
    let offset = CUBE_POS_Z as usize * call.keys * width + CUBE_POS_Y as usize * tile.d_head;
    load(memory, from, start, call.keys, offset, width, factor, count, tile);
    if call.padded {
        let mut row = UNIT_POS as usize;
        // Each unit clears whole rows, which others may have written.
        sync_cube();
        while row < count {
            // Beyond the last key there are zeros already.
            let key = min(start + row, call.keys - 1);
            if padding[CUBE_POS_Z as usize * call.keys + key] != 0.0f32 {
                for channel in 0..comptime!(SIDE * tile.own) {
                    memory[row * comptime!(tile.stride()) + channel] = 0.0f32;
                }
            }
            row += comptime!(SIDE * SIDE);
        }
    }
}

/// Loads rows `start..` of a head into shared memory, times `factor`, with zeros behind the last row and beyond the
/// last channel.
#[cube]
pub(super) fn load(
    memory: &mut Shared<[f32]>,
    from: &Tensor<f32>,
    start: usize,
    rows: usize,
    offset: usize,
    width: usize,
    factor: f32,
    #[comptime] count: usize,
    #[comptime] tile: Tile,
) {
    let channels = comptime!(tile.own * SIDE);
    let mut at = UNIT_POS as usize;
    while at < comptime!(count * tile.own * SIDE) {
        let (row, channel) = (at / channels, at % channels);
        let mut number = 0.0f32;
        if start + row < rows && channel < tile.d_head {
            number = from[offset + (start + row) * width + channel] * factor;
        }
        memory[row * comptime!(tile.stride()) + channel] = number;
        at += comptime!(SIDE * SIDE);
    }
}

/// Adds to this unit's scores, `[each, pairs]`, the products of its rows of `left` with its rows of `right`.
#[cube]
pub(super) fn multiply(scores: &mut Array<f32>, left: &Shared<[f32]>, right: &Shared<[f32]>, #[comptime] tile: Tile) {
    let stride = comptime!(tile.stride());
    let (row, other) = (UNIT_POS_Y as usize * stride, UNIT_POS_X as usize * stride);
    for part in 0..SIDE {
        #[unroll]
        for c in 0..tile.own {
            let channel = part * tile.own + c;
            let mut numbers = Array::<f32>::new(tile.pairs);
            #[unroll]
            for j in 0..tile.pairs {
                numbers[j] = right[other + j * comptime!(SIDE * tile.stride()) + channel];
            }
            #[unroll]
            for i in 0..tile.each {
                let number = left[row + i * comptime!(SIDE * tile.stride()) + channel];
                #[unroll]
                for j in 0..tile.pairs {
                    scores[i * tile.pairs + j] += number * numbers[j];
                }
            }
        }
    }
}

/// Writes this unit's scores, `[each, pairs]`, to shared memory for all units of the cube.
#[cube]
pub(super) fn share(scores: &Array<f32>, memory: &mut Shared<[f32]>, #[comptime] tile: Tile) {
    #[unroll]
    for i in 0..tile.each {
        #[unroll]
        for j in 0..tile.pairs {
            let (row, other) = (UNIT_POS_Y as usize + i * SIDE, UNIT_POS_X as usize + j * SIDE);
            memory[row * comptime!(tile.across()) + other] = scores[i * tile.pairs + j];
        }
    }
}

/// Adds to this unit's channels, `[each, own]`, the rows of the other side times the shared scores.
#[cube]
pub(super) fn gather(sums: &mut Array<f32>, scores: &Shared<[f32]>, others: &Shared<[f32]>, #[comptime] tile: Tile) {
    let row = UNIT_POS_Y as usize * comptime!(tile.across());
    for j in 0..comptime!(tile.others()) {
        let mut numbers = Array::<f32>::new(tile.own);
        #[unroll]
        for c in 0..tile.own {
            numbers[c] = others[j * comptime!(tile.stride()) + UNIT_POS_X as usize + c * SIDE];
        }
        #[unroll]
        for i in 0..tile.each {
            let score = scores[row + i * comptime!(SIDE * tile.across()) + j];
            #[unroll]
            for c in 0..tile.own {
                sums[i * tile.own + c] += score * numbers[c];
            }
        }
    }
}

/// Writes this unit's channels of its rows, `[each, own]`.
#[cube]
pub(super) fn write(
    numbers: &Array<f32>,
    to: &mut Tensor<f32>,
    start: usize,
    rows: usize,
    offset: usize,
    width: usize,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..tile.each {
        let row = start + UNIT_POS_Y as usize + i * SIDE;
        #[unroll]
        for c in 0..tile.own {
            let channel = UNIT_POS_X as usize + c * SIDE;
            if row < rows && channel < tile.d_head {
                to[offset + row * width + channel] = numbers[i * tile.own + c];
            }
        }
    }
}

/// An array of zeros.
#[cube]
pub(super) fn cleared(#[comptime] length: usize) -> Array<f32> {
    let mut numbers = Array::<f32>::new(length);
    #[unroll]
    for at in 0..length {
        numbers[at] = 0.0f32;
    }
    numbers
}

/// Number of keys, from the first, that at least one query of a tile sees.
#[cube]
pub(super) fn seen_by_tile(first: usize, call: &Call) -> usize {
    seen_by_rows(first, comptime!(call.tile.rows()), call.queries, call.keys, call.causal)
}

/// Whether query `i` sees key `j`.
#[cube]
pub(super) fn sees(i: usize, j: usize, padding: &Tensor<f32>, call: &Call) -> bool {
    is_seen(i, j, padding, call.queries, call.keys, call.causal, call.padded)
}

/// Number of keys, from the first, that at least one of `rows` queries from `first` sees.
#[cube]
pub(in crate::cube) fn seen_by_rows(
    first: usize,
    #[comptime] rows: usize,
    queries: usize,
    keys: usize,
    #[comptime] causal: bool,
) -> usize {
    let mut seen = keys;
    if causal {
        // No row sees a later key than the last one does.
        seen = min(seen, first + rows + keys - queries);
    }
    seen
}

/// Whether query `i` of `queries` sees key `j` of `keys`, for any attention's kernels.
#[cube]
#[allow(clippy::collapsible_if, reason = "`padded` is known when the kernel is compiled")]
pub(in crate::cube) fn is_seen(
    i: usize,
    j: usize,
    padding: &Tensor<f32>,
    queries: usize,
    keys: usize,
    #[comptime] causal: bool,
    #[comptime] padded: bool,
) -> bool {
    let mut seen = i < queries && j < keys;
    if causal {
        seen = seen && j + queries <= i + keys;
    }
    if padded {
        if seen {
            seen = padding[CUBE_POS_Z as usize * keys + j] == 0.0;
        }
    }
    seen
}
