//! The forward pass.

use super::super::dropout::factor;
use super::{Call, LEAST, gathered, load, sees};
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
    let (queries, keys, heads, scale) = (call.queries, call.keys, call.heads, call.scale);
    let (row, part) = (UNIT_POS_X as usize / tile.parts, UNIT_POS_X as usize % tile.parts);
    let (head, sample) = (CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let width = heads * tile.d_head;
    let first = CUBE_POS_X as usize * tile.rows;
    let i = first + row;
    let mine = part * tile.own;
    let at = (sample * queries + i) * width + head * tile.d_head + mine;
    let of_keys = sample * keys * width + head * tile.d_head;
    let weights = ((sample * heads + head) * queries + i) * keys;

    let mut key_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut value_rows = Shared::<[f32]>::new_slice(comptime!(tile.others * tile.d_head));
    let mut shares = Shared::<[f32]>::new_slice(comptime!(tile.rows * tile.parts * tile.others));
    let mut q = Array::<f32>::new(tile.own);
    let mut mixed = Array::<f32>::new(tile.own);
    #[unroll]
    for c in 0..tile.own {
        let mut number = 0.0f32;
        if i < queries {
            number = query[at + c] * scale;
        }
        q[c] = number;
        mixed[c] = 0.0f32;
    }
    let mut highest = f32::new(comptime!(LEAST));
    let mut total = 0.0f32;

    let mut seen = keys;
    if call.causal {
        // No row of this tile sees a later key than its last one does.
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
            let mut share = 0.0f32;
            #[unroll]
            for c in 0..tile.own {
                share += q[c] * key_rows[j * tile.d_head + mine + c];
            }
            shares[(row * tile.others + j) * tile.parts + part] = share;
        }
        sync_cube();
        let mut top = highest;
        for j in 0..tile.others {
            if sees(i, start + j, padding, call) {
                top = max(top, gathered(&shares, row * tile.others + j, tile));
            }
        }
        let before = (highest - top).exp();
        total *= before;
        #[unroll]
        for c in 0..tile.own {
            mixed[c] *= before;
        }
        for j in 0..tile.others {
            if sees(i, start + j, padding, call) {
                let mut weight = (gathered(&shares, row * tile.others + j, tile) - top).exp();
                total += weight;
                if call.drops {
                    weight *= factor(u32::cast_from(weights + start + j), &call.dropped);
                }
                #[unroll]
                for c in 0..tile.own {
                    mixed[c] += weight * value_rows[j * tile.d_head + mine + c];
                }
            }
        }
        highest = top;
    }
    if i < queries {
        let nothing = total == 0.0f32;
        #[unroll]
        for c in 0..tile.own {
            let mut number = 0.0f32;
            if !nothing {
                number = mixed[c] / total;
            }
            out[at + c] = number;
        }
        if part == 0 {
            let mut sum = 0.0f32;
            if !nothing {
                sum = highest + total.ln();
            }
            sums[(sample * heads + head) * queries + i] = sum;
        }
    }
}
