//! Backward passes: one kernel for queries, one for keys and values.

use super::super::dropout::factor;
use super::parts::{Call, cleared, gather, load, load_seen, multiply, seen_by_tile, sees, share, write};
use super::tile::SIDE;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;

#[cube(launch)]
pub(super) fn attention_backward_query(
    query: &Tensor<f32>,
    key: &Tensor<f32>,
    value: &Tensor<f32>,
    padding: &Tensor<f32>,
    out: &Tensor<f32>,
    sums: &Tensor<f32>,
    d_out: &Tensor<f32>,
    d_query: &mut Tensor<f32>,
    deltas: &mut Tensor<f32>,
    call: &Call,
) {
    let tile = comptime!(call.tile);
    let (queries, keys, heads, scale) = (call.queries, call.keys, call.heads, call.scale);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (across, down) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * comptime!(tile.rows());
    let of_queries = sample * queries * width + head * tile.d_head;
    let of_rows = (sample * heads + head) * queries;

    let mut query_rows = Shared::<[f32]>::new_slice(comptime!(tile.rows() * tile.stride()));
    let mut d_out_rows = Shared::<[f32]>::new_slice(comptime!(tile.rows() * tile.stride()));
    let mut key_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut value_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut d_scores = Shared::<[f32]>::new_slice(comptime!(tile.scores()));
    let mut found = Shared::<[f32]>::new_slice(comptime!(SIDE * tile.rows()));
    load(&mut query_rows, query, first, queries, of_queries, width, scale, comptime!(tile.rows()), tile);
    load(&mut d_out_rows, d_out, first, queries, of_queries, width, 1.0f32, comptime!(tile.rows()), tile);
    sync_cube();

    // Σ weight · its gradient = output · its gradient, dropout or not.
    #[unroll]
    for i in 0..tile.each {
        let row = down + i * SIDE;
        let mut part = 0.0f32;
        #[unroll]
        for c in 0..tile.own {
            let channel = across + c * SIDE;
            if first + row < queries && channel < tile.d_head {
                let gradient = d_out_rows[row * comptime!(tile.stride()) + channel];
                part += gradient * out[of_queries + (first + row) * width + channel];
            }
        }
        found[row * SIDE + across] = part;
    }
    sync_cube();
    let mut delta = cleared(tile.each);
    let mut sum = cleared(tile.each);
    #[unroll]
    for i in 0..tile.each {
        let row = down + i * SIDE;
        #[unroll]
        for unit in 0..SIDE {
            delta[i] += found[row * SIDE + unit];
        }
        if first + row < queries {
            sum[i] = sums[of_rows + first + row];
            if across == 0 {
                deltas[of_rows + first + row] = delta[i];
            }
        }
    }

    let mut d_queries = cleared(comptime!(tile.each * tile.own));
    let pieces = seen_by_tile(first, call).div_ceil(comptime!(tile.others()));
    for piece in 0..pieces {
        let start = piece * comptime!(tile.others());
        sync_cube();
        load_seen(&mut key_rows, key, start, 1.0f32, padding, call, comptime!(tile.others()));
        load_seen(&mut value_rows, value, start, 1.0f32, padding, call, comptime!(tile.others()));
        sync_cube();
        let mut scores = cleared(comptime!(tile.each * tile.pairs));
        let mut changes = cleared(comptime!(tile.each * tile.pairs));
        multiply(&mut scores, &query_rows, &key_rows, tile);
        multiply(&mut changes, &d_out_rows, &value_rows, tile);
        #[unroll]
        for i in 0..tile.each {
            #[unroll]
            for j in 0..tile.pairs {
                let (row, other) = (first + down + i * SIDE, start + across + j * SIDE);
                let mut d_score = 0.0f32;
                if sees(row, other, padding, call) {
                    let weight = (scores[i * tile.pairs + j] - sum[i]).exp();
                    let mut change = changes[i * tile.pairs + j];
                    if call.drops {
                        change *= factor(u32::cast_from((of_rows + row) * keys + other), &call.dropped);
                    }
                    d_score = weight * (change - delta[i]) * scale;
                }
                scores[i * tile.pairs + j] = d_score;
            }
        }
        share(&scores, &mut d_scores, tile);
        sync_cube();
        gather(&mut d_queries, &d_scores, &key_rows, tile);
    }
    write(&d_queries, d_query, first, queries, of_queries, width, tile);
}

#[cube(launch)]
pub(super) fn attention_backward_key_value(
    query: &Tensor<f32>,
    key: &Tensor<f32>,
    value: &Tensor<f32>,
    padding: &Tensor<f32>,
    sums: &Tensor<f32>,
    d_out: &Tensor<f32>,
    deltas: &Tensor<f32>,
    d_key: &mut Tensor<f32>,
    d_value: &mut Tensor<f32>,
    call: &Call,
) {
    let tile = comptime!(call.tile);
    let (queries, keys, heads, scale) = (call.queries, call.keys, call.heads, call.scale);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (across, down) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * comptime!(tile.rows());
    let of_keys = sample * keys * width + head * tile.d_head;
    let of_queries = sample * queries * width + head * tile.d_head;
    let of_rows = (sample * heads + head) * queries;

    let mut key_rows = Shared::<[f32]>::new_slice(comptime!(tile.rows() * tile.stride()));
    let mut value_rows = Shared::<[f32]>::new_slice(comptime!(tile.rows() * tile.stride()));
    let mut query_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut d_out_rows = Shared::<[f32]>::new_slice(comptime!(tile.others() * tile.stride()));
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.scores()));
    let mut d_scores = Shared::<[f32]>::new_slice(comptime!(tile.scores()));
    let mut d_keys = cleared(comptime!(tile.each * tile.own));
    let mut d_values = cleared(comptime!(tile.each * tile.own));
    load_seen(&mut key_rows, key, first, scale, padding, call, comptime!(tile.rows()));
    load_seen(&mut value_rows, value, first, 1.0f32, padding, call, comptime!(tile.rows()));

    let mut from = 0usize;
    if call.causal {
        // No query before this one sees the first key of the tile, or any later key.
        let before = keys - queries;
        if first > before {
            from = (first - before) / comptime!(tile.others());
        }
    }
    let pieces = queries.div_ceil(comptime!(tile.others()));
    for piece in from..pieces {
        let start = piece * comptime!(tile.others());
        sync_cube();
        load(&mut query_rows, query, start, queries, of_queries, width, 1.0f32, comptime!(tile.others()), tile);
        load(&mut d_out_rows, d_out, start, queries, of_queries, width, 1.0f32, comptime!(tile.others()), tile);
        sync_cube();
        let mut scores = cleared(comptime!(tile.each * tile.pairs));
        let mut changes = cleared(comptime!(tile.each * tile.pairs));
        multiply(&mut scores, &key_rows, &query_rows, tile);
        multiply(&mut changes, &value_rows, &d_out_rows, tile);
        #[unroll]
        for j in 0..tile.pairs {
            let other = start + across + j * SIDE;
            let mut sum = 0.0f32;
            let mut delta = 0.0f32;
            if other < queries {
                sum = sums[of_rows + other];
                delta = deltas[of_rows + other];
            }
            #[unroll]
            for i in 0..tile.each {
                let row = first + down + i * SIDE;
                let mut kept_weight = 0.0f32;
                let mut d_score = 0.0f32;
                if sees(other, row, padding, call) {
                    let weight = (scores[i * tile.pairs + j] - sum).exp();
                    let mut change = changes[i * tile.pairs + j];
                    kept_weight = weight;
                    if call.drops {
                        let factor = factor(u32::cast_from((of_rows + other) * keys + row), &call.dropped);
                        change *= factor;
                        kept_weight *= factor;
                    }
                    d_score = weight * (change - delta) * scale;
                }
                scores[i * tile.pairs + j] = kept_weight;
                changes[i * tile.pairs + j] = d_score;
            }
        }
        share(&scores, &mut weights, tile);
        share(&changes, &mut d_scores, tile);
        sync_cube();
        gather(&mut d_values, &weights, &d_out_rows, tile);
        gather(&mut d_keys, &d_scores, &query_rows, tile);
    }
    write(&d_keys, d_key, first, keys, of_keys, width, tile);
    write(&d_values, d_value, first, keys, of_keys, width, tile);
}
