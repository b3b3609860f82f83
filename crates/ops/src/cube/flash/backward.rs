//! Backward passes: one kernel for queries, one for keys and values. Both recompute the weights.

use super::parts::{
    Call, OTHERS, ROWS, add_rows, by_rows, column_of_unit, kept, left_factor, load, row_of_unit, row_sum, seen_by_tile,
    sees, write, zeros,
};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;

/// Gradient of queries; and `deltas`, each query's sum of its output times the output's gradient, which is the sum of weights times their
/// gradients, dropout or not.
#[cube(launch)]
pub(super) fn flash_backward_query<T: Numeric, O: Numeric, W: Size, P: Size>(
    query: &Tensor<Vector<T, W>>,
    key: &Tensor<Vector<T, W>>,
    value: &Tensor<Vector<T, W>>,
    padding: &Tensor<f32>,
    out: &Tensor<Vector<O, P>>,
    sums: &Tensor<f32>,
    d_out: &Tensor<Vector<T, W>>,
    d_query: &mut Tensor<Vector<O, P>>,
    deltas: &mut Tensor<f32>,
    scale: f32,
    call: &Call,
    #[define(T)] _low: ElemType,
    #[define(O)] _results: ElemType,
) {
    let d_head = comptime!(call.d_head);
    let vectors = comptime!(d_head / 8);
    let (queries, keys) = (call.queries, call.keys);
    let head = CUBE_POS_Z as usize * call.heads + CUBE_POS_Y as usize;
    let first = CUBE_POS_X as usize * ROWS;
    let of_rows = head * queries;

    let mut key_rows = Shared::<[Vector<T, W>]>::new_slice(comptime!(OTHERS * (d_head / 8 + 1)));
    let mut value_rows = Shared::<[Vector<T, W>]>::new_slice(comptime!(OTHERS * (d_head / 8 + 1)));
    load::<T, W>(&mut key_rows, query, first, queries, of_rows * vectors, d_head);
    load::<T, W>(&mut value_rows, d_out, first, queries, of_rows * vectors, d_head);
    sync_cube();
    let own = left_factor::<T, W, P>(&key_rows, d_head);
    let d_own = left_factor::<T, W, P>(&value_rows, d_head);

    let width = call.heads * comptime!(d_head / 2);
    let start = CUBE_POS_Z as usize * queries * width + CUBE_POS_Y as usize * comptime!(d_head / 2);
    let mut delta = Array::<f32>::new(2usize);
    let mut sum = Array::<f32>::new(2usize);
    #[unroll]
    for half in 0..2usize {
        let row = first + row_of_unit(half);
        let mut part = 0.0f32;
        sum[half] = 0.0f32;
        if row < queries {
            sum[half] = sums[of_rows + row];
            #[unroll]
            for place in 0..comptime!(d_head / 8) {
                let at = start + row * width + comptime!(place * 4) + UNIT_POS_X as usize % 4;
                let own = Vector::<f32, P>::cast_from(out[at]);
                let product = own * Vector::cast_from(d_own[comptime!(2 * place + half)]);
                part += product.extract(0usize) + product.extract(1usize);
            }
        }
        delta[half] = row_sum(part);
        let of_four = UNIT_POS_X % 4;
        if of_four == 0 && row < queries {
            deltas[of_rows + row] = delta[half];
        }
    }

    let mut d_queries = zeros::<P>(comptime!(d_head / 4));
    for piece in 0..seen_by_tile(first, call).div_ceil(OTHERS) {
        let start = piece * OTHERS;
        sync_cube();
        load::<T, W>(&mut key_rows, key, start, keys, head * keys * vectors, d_head);
        load::<T, W>(&mut value_rows, value, start, keys, head * keys * vectors, d_head);
        sync_cube();
        #[unroll]
        for block in 0..comptime!(OTHERS / 16) {
            let scores = by_rows::<T, W, P>(&own, &key_rows, comptime!(16 * block), d_head);
            let changes = by_rows::<T, W, P>(&d_own, &value_rows, comptime!(16 * block), d_head);
            let mut d_scores = Array::<Vector<T, P>>::new(4usize);
            #[unroll]
            for i in 0..4usize {
                let (of_query, of_key) = (first + row_of_unit(i), start + comptime!(16 * block) + column_of_unit(i));
                let weight = (scores[i] - Vector::new(sum[comptime!(i % 2)])).exp();
                let mut change = changes[i];
                if call.drops {
                    #[unroll]
                    for e in 0..2usize {
                        change.insert(e, change.extract(e) * kept(of_query, of_key + e, of_rows, call));
                    }
                }
                let mut d_score = weight * (change - Vector::new(delta[comptime!(i % 2)]));
                #[unroll]
                for e in 0..2usize {
                    if !sees(of_query, of_key + e, padding, call) {
                        d_score.insert(e, 0.0f32);
                    }
                }
                d_scores[i] = Vector::cast_from(d_score);
            }
            add_rows::<T, W, P>(&mut d_queries, &d_scores, &key_rows, comptime!(16 * block), d_head);
        }
    }
    write::<O, P>(&d_queries, d_query, first, queries, scale, call);
}

/// Gradients of keys and values. Queries are multiplied by the scale of scores, so the keys' gradient needs none.
#[cube(launch)]
pub(super) fn flash_backward_key_value<T: Numeric, O: Numeric, W: Size, P: Size>(
    query: &Tensor<Vector<T, W>>,
    key: &Tensor<Vector<T, W>>,
    value: &Tensor<Vector<T, W>>,
    padding: &Tensor<f32>,
    sums: &Tensor<f32>,
    d_out: &Tensor<Vector<T, W>>,
    deltas: &Tensor<f32>,
    d_key: &mut Tensor<Vector<O, P>>,
    d_value: &mut Tensor<Vector<O, P>>,
    call: &Call,
    #[define(T)] _low: ElemType,
    #[define(O)] _results: ElemType,
) {
    let d_head = comptime!(call.d_head);
    let vectors = comptime!(d_head / 8);
    let (queries, keys) = (call.queries, call.keys);
    let head = CUBE_POS_Z as usize * call.heads + CUBE_POS_Y as usize;
    let first = CUBE_POS_X as usize * ROWS;
    let of_rows = head * queries;

    let mut query_rows = Shared::<[Vector<T, W>]>::new_slice(comptime!(OTHERS * (d_head / 8 + 1)));
    let mut d_out_rows = Shared::<[Vector<T, W>]>::new_slice(comptime!(OTHERS * (d_head / 8 + 1)));
    load::<T, W>(&mut query_rows, key, first, keys, head * keys * vectors, d_head);
    load::<T, W>(&mut d_out_rows, value, first, keys, head * keys * vectors, d_head);
    sync_cube();
    let own_keys = left_factor::<T, W, P>(&query_rows, d_head);
    let own_values = left_factor::<T, W, P>(&d_out_rows, d_head);

    let mut d_keys = zeros::<P>(comptime!(d_head / 4));
    let mut d_values = zeros::<P>(comptime!(d_head / 4));
    let mut from = 0usize;
    if call.causal {
        // No query before this one sees the first key of the tile, or any later key.
        let before = keys - queries;
        if first > before {
            from = (first - before) / OTHERS;
        }
    }
    for piece in from..queries.div_ceil(OTHERS) {
        let start = piece * OTHERS;
        sync_cube();
        load::<T, W>(&mut query_rows, query, start, queries, of_rows * vectors, d_head);
        load::<T, W>(&mut d_out_rows, d_out, start, queries, of_rows * vectors, d_head);
        sync_cube();
        #[unroll]
        for block in 0..comptime!(OTHERS / 16) {
            let scores = by_rows::<T, W, P>(&own_keys, &query_rows, comptime!(16 * block), d_head);
            let changes = by_rows::<T, W, P>(&own_values, &d_out_rows, comptime!(16 * block), d_head);
            let mut weights = Array::<Vector<T, P>>::new(4usize);
            let mut d_scores = Array::<Vector<T, P>>::new(4usize);
            #[unroll]
            for i in 0..4usize {
                let (of_key, of_query) = (first + row_of_unit(i), start + comptime!(16 * block) + column_of_unit(i));
                let mut weight = Vector::<f32, P>::new(0.0f32);
                let mut d_score = Vector::<f32, P>::new(0.0f32);
                #[unroll]
                for e in 0..2usize {
                    if sees(of_query + e, of_key, padding, call) {
                        let own = (scores[i].extract(e) - sums[of_rows + of_query + e]).exp();
                        let mut factor = 1.0f32;
                        if call.drops {
                            factor = kept(of_query + e, of_key, of_rows, call);
                        }
                        weight.insert(e, own * factor);
                        d_score.insert(e, own * (changes[i].extract(e) * factor - deltas[of_rows + of_query + e]));
                    }
                }
                weights[i] = Vector::cast_from(weight);
                d_scores[i] = Vector::cast_from(d_score);
            }
            add_rows::<T, W, P>(&mut d_values, &weights, &d_out_rows, comptime!(16 * block), d_head);
            add_rows::<T, W, P>(&mut d_keys, &d_scores, &query_rows, comptime!(16 * block), d_head);
        }
    }
    write::<O, P>(&d_keys, d_key, first, keys, 1.0f32, call);
    write::<O, P>(&d_values, d_value, first, keys, 1.0f32, call);
}
