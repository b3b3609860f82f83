//! The backward passes: one for queries, one for keys and values.

use super::super::dropout::factor;
use super::{Call, gathered, load, sees};
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
    let (row, part) = (UNIT_POS_X as usize / tile.parts, UNIT_POS_X as usize % tile.parts);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * tile.rows;
    let i = first + row;
    let mine = part * tile.own;
    let at = (sample * queries + i) * width + head * tile.d_head + mine;
    let of_keys = sample * keys * width + head * tile.d_head;
    let of_row = (sample * heads + head) * queries + i;

    let mut key_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut value_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut scores = Shared::<[f32]>::new_slice(comptime!(tile.rows * tile.parts * tile.others));
    let mut changes = Shared::<[f32]>::new_slice(comptime!(tile.rows * tile.parts * tile.others));
    let mut q = Array::<f32>::new(tile.own);
    let mut g = Array::<f32>::new(tile.own);
    let mut found = Array::<f32>::new(tile.own);
    // Σ weight · its gradient = output · its gradient, dropout or not.
    let mut share = 0.0f32;
    let mut sum = 0.0f32;
    #[unroll]
    for c in 0..tile.own {
        q[c] = 0.0f32;
        g[c] = 0.0f32;
        found[c] = 0.0f32;
        if i < queries {
            q[c] = query[at + c] * scale;
            g[c] = d_out[at + c];
            share += d_out[at + c] * out[at + c];
        }
    }
    if i < queries {
        sum = sums[of_row];
    }
    scores[row * tile.others * tile.parts + part] = share;
    sync_cube();
    let delta = gathered(&scores, row * tile.others, tile);

    let mut seen = keys;
    if call.causal {
        seen = min(keys, first + tile.rows + keys - queries);
    }
    let pieces = seen.div_ceil(tile.others);
    for piece in 0..pieces {
        let start = piece * tile.others;
        sync_cube();
        load(&mut key_rows, key, start, keys, of_keys, width, tile);
        load(&mut value_rows, value, start, keys, of_keys, width, tile);
        sync_cube();
        for j in 0..tile.others {
            let mut score = 0.0f32;
            let mut change = 0.0f32;
            #[unroll]
            for c in 0..tile.own {
                score += q[c] * key_rows[j * tile.d_head + mine + c];
                change += g[c] * value_rows[j * tile.d_head + mine + c];
            }
            scores[(row * tile.others + j) * tile.parts + part] = score;
            changes[(row * tile.others + j) * tile.parts + part] = change;
        }
        sync_cube();
        for j in 0..tile.others {
            if sees(i, start + j, padding, call) {
                let weight = (gathered(&scores, row * tile.others + j, tile) - sum).exp();
                let mut change = gathered(&changes, row * tile.others + j, tile);
                if call.drops {
                    let index = u32::cast_from(of_row * keys + start + j);
                    change *= factor(index, &call.dropped);
                }
                let d_score = weight * (change - delta) * scale;
                #[unroll]
                for c in 0..tile.own {
                    found[c] += d_score * key_rows[j * tile.d_head + mine + c];
                }
            }
        }
    }
    if i < queries {
        #[unroll]
        for c in 0..tile.own {
            d_query[at + c] = found[c];
        }
        if part == 0 {
            deltas[of_row] = delta;
        }
    }
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
    let (row, part) = (UNIT_POS_X as usize / tile.parts, UNIT_POS_X as usize % tile.parts);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * tile.rows;
    let j = first + row;
    let mine = part * tile.own;
    let at = (sample * keys + j) * width + head * tile.d_head + mine;
    let of_queries = sample * queries * width + head * tile.d_head;
    let of_rows = (sample * heads + head) * queries;

    let mut query_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut d_out_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut scores = Shared::<[f32]>::new_slice(comptime!(tile.rows * tile.parts * tile.others));
    let mut changes = Shared::<[f32]>::new_slice(comptime!(tile.rows * tile.parts * tile.others));
    let mut k = Array::<f32>::new(tile.own);
    let mut v = Array::<f32>::new(tile.own);
    let mut found_k = Array::<f32>::new(tile.own);
    let mut found_v = Array::<f32>::new(tile.own);
    #[unroll]
    for c in 0..tile.own {
        k[c] = 0.0f32;
        v[c] = 0.0f32;
        found_k[c] = 0.0f32;
        found_v[c] = 0.0f32;
        if j < keys {
            k[c] = key[at + c] * scale;
            v[c] = value[at + c];
        }
    }

    let mut from = 0usize;
    if call.causal {
        // No query before this one sees the first key of the tile, nor any later.
        let before = keys - queries;
        if first > before {
            from = (first - before) / tile.others;
        }
    }
    let pieces = queries.div_ceil(tile.others);
    for piece in from..pieces {
        let start = piece * tile.others;
        sync_cube();
        load(&mut query_rows, query, start, queries, of_queries, width, tile);
        load(&mut d_out_rows, d_out, start, queries, of_queries, width, tile);
        sync_cube();
        for i in 0..tile.others {
            let mut score = 0.0f32;
            let mut change = 0.0f32;
            #[unroll]
            for c in 0..tile.own {
                score += k[c] * query_rows[i * tile.d_head + mine + c];
                change += v[c] * d_out_rows[i * tile.d_head + mine + c];
            }
            scores[(row * tile.others + i) * tile.parts + part] = score;
            changes[(row * tile.others + i) * tile.parts + part] = change;
        }
        sync_cube();
        for i in 0..tile.others {
            if sees(start + i, j, padding, call) {
                let of_row = of_rows + start + i;
                let weight = (gathered(&scores, row * tile.others + i, tile) - sums[of_row]).exp();
                let mut change = gathered(&changes, row * tile.others + i, tile);
                let mut kept_weight = weight;
                if call.drops {
                    let factor = factor(u32::cast_from(of_row * keys + j), &call.dropped);
                    change *= factor;
                    kept_weight *= factor;
                }
                let d_score = weight * (change - deltas[of_row]) * scale;
                #[unroll]
                for c in 0..tile.own {
                    found_k[c] += d_score * query_rows[i * tile.d_head + mine + c];
                    found_v[c] += kept_weight * d_out_rows[i * tile.d_head + mine + c];
                }
            }
        }
    }
    if j < keys {
        #[unroll]
        for c in 0..tile.own {
            d_key[at + c] = found_k[c];
            d_value[at + c] = found_v[c];
        }
    }
}
