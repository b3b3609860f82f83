//! The forward pass.

use super::super::dropout::factor;
use super::parts::{Call, LEAST, cleared, gather, load, load_seen, multiply, seen_by_tile, sees, share, write};
use super::tile::SIDE;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;

#[cube(launch)]
pub(super) fn attention_forward(
    query: &Tensor<f32>,
    key: &Tensor<f32>,
    value: &Tensor<f32>,
    padding: &Tensor<f32>,
    out: &mut Tensor<f32>,
    sums: &mut Tensor<f32>,
    call: &Call,
) {
    let tile = comptime!(call.tile);
    let (queries, keys, heads) = (call.queries, call.keys, call.heads);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (across, down) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * comptime!(tile.rows());
    let of_queries = sample * queries * width + head * tile.d_head;
    let of_rows = (sample * heads + head) * queries;

    let mut query_rows = Shared::<[f32]>::new_slice(comptime!(tile.rows() * tile.stride()));
    let mut key_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut value_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.scores()));
    // Partial results of each unit for each of its rows.
    let mut found = Shared::<[f32]>::new_slice(comptime!(SIDE * tile.rows()));
    let mut mixed = cleared(comptime!(tile.each * tile.own));
    // Sums over this unit's own scores.
    let mut totals = cleared(tile.each);
    let mut highest = Array::<f32>::new(tile.each);
    #[unroll]
    for i in 0..tile.each {
        highest[i] = f32::new(comptime!(LEAST));
    }
    load(&mut query_rows, query, first, queries, of_queries, width, call.scale, comptime!(tile.rows()), tile);

    let pieces = seen_by_tile(first, call).div_ceil(comptime!(tile.others()));
    for piece in 0..pieces {
        let start = piece * comptime!(tile.others());
        sync_cube();
        load_seen(&mut key_rows, key, start, 1.0f32, padding, call, comptime!(tile.others()));
        load_seen(&mut value_rows, value, start, 1.0f32, padding, call, comptime!(tile.others()));
        sync_cube();
        let mut scores = cleared(comptime!(tile.each * tile.pairs));
        multiply(&mut scores, &query_rows, &key_rows, tile);
        #[unroll]
        for i in 0..tile.each {
            let row = down + i * SIDE;
            let mut top = highest[i];
            #[unroll]
            for j in 0..tile.pairs {
                if sees(first + row, start + across + j * SIDE, padding, call) {
                    top = max(top, scores[i * tile.pairs + j]);
                }
            }
            found[row * SIDE + across] = top;
        }
        sync_cube();
        #[unroll]
        for i in 0..tile.each {
            let row = down + i * SIDE;
            let mut top = highest[i];
            #[unroll]
            for unit in 0..SIDE {
                top = max(top, found[row * SIDE + unit]);
            }
            let before = (highest[i] - top).exp();
            highest[i] = top;
            totals[i] *= before;
            #[unroll]
            for c in 0..tile.own {
                mixed[i * tile.own + c] *= before;
            }
            #[unroll]
            for j in 0..tile.pairs {
                let other = start + across + j * SIDE;
                let mut weight = 0.0f32;
                if sees(first + row, other, padding, call) {
                    weight = (scores[i * tile.pairs + j] - top).exp();
                    totals[i] += weight;
                    if call.drops {
                        weight *= factor(u32::cast_from((of_rows + first + row) * keys + other), &call.dropped);
                    }
                }
                scores[i * tile.pairs + j] = weight;
            }
        }
        share(&scores, &mut weights, tile);
        sync_cube();
        gather(&mut mixed, &weights, &value_rows, tile);
    }
    sync_cube();
    #[unroll]
    for i in 0..tile.each {
        found[(down + i * SIDE) * SIDE + across] = totals[i];
    }
    sync_cube();
    #[unroll]
    for i in 0..tile.each {
        let row = first + down + i * SIDE;
        let mut total = 0.0f32;
        #[unroll]
        for unit in 0..SIDE {
            total += found[(down + i * SIDE) * SIDE + unit];
        }
        let nothing = total == 0.0f32;
        #[unroll]
        for c in 0..tile.own {
            let mut number = 0.0f32;
            if !nothing {
                number = mixed[i * tile.own + c] / total;
            }
            mixed[i * tile.own + c] = number;
        }
        if across == 0 && row < queries {
            let mut sum = 0.0f32;
            if !nothing {
                sum = highest[i] + total.ln();
            }
            sums[of_rows + row] = sum;
        }
    }
    write(&mixed, out, first, queries, of_queries, width, tile);
}
