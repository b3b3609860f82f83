//! The forward pass.

use super::parts::{
    Call, HIDDEN, LEAST, OTHERS, ROWS, add_rows, by_rows, column_of_unit, kept, left_factor, load, row_maximum,
    row_of_unit, row_sum, seen_by_tile, sees, write, zeros,
};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;

/// Queries are multiplied by the scale of scores.
#[cube(launch)]
pub(super) fn flash_forward<T: Numeric, O: Numeric, W: Size, P: Size>(
    query: &Tensor<Vector<T, W>>,
    key: &Tensor<Vector<T, W>>,
    value: &Tensor<Vector<T, W>>,
    padding: &Tensor<f32>,
    out: &mut Tensor<Vector<O, P>>,
    sums: &mut Tensor<f32>,
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
    sync_cube();
    let own = left_factor::<T, W, P>(&key_rows, d_head);

    let mut mixed = zeros::<P>(comptime!(d_head / 4));
    let mut highest = Array::<f32>::new(2usize);
    let mut totals = Array::<f32>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        highest[i] = f32::new(comptime!(LEAST));
        totals[i] = 0.0f32;
    }
    for piece in 0..seen_by_tile(first, call).div_ceil(OTHERS) {
        let start = piece * OTHERS;
        sync_cube();
        load::<T, W>(&mut key_rows, key, start, keys, head * keys * vectors, d_head);
        load::<T, W>(&mut value_rows, value, start, keys, head * keys * vectors, d_head);
        sync_cube();
        let mut scores = Array::<Vector<f32, P>>::new(comptime!(OTHERS / 4));
        #[unroll]
        for block in 0..comptime!(OTHERS / 16) {
            let found = by_rows::<T, W, P>(&own, &key_rows, comptime!(16 * block), d_head);
            #[unroll]
            for i in 0..4usize {
                scores[comptime!(4 * block + i)] = found[i];
            }
        }
        let mut some_hidden = start + OTHERS > keys;
        if comptime!(call.causal || call.padded) {
            some_hidden = true;
        }
        if some_hidden {
            #[unroll]
            for place in 0..comptime!(OTHERS / 4) {
                let (i, j) = (first + row_of_unit(place), start + column_of_unit(place));
                let mut numbers = scores[place];
                #[unroll]
                for e in 0..2usize {
                    if !sees(i, j + e, padding, call) {
                        numbers.insert(e, f32::new(comptime!(HIDDEN)));
                    }
                }
                scores[place] = numbers;
            }
        }
        let mut before = Array::<f32>::new(2usize);
        #[unroll]
        for row in 0..2usize {
            let mut tops = scores[row];
            #[unroll]
            for place in 1..comptime!(OTHERS / 8) {
                tops = max(tops, scores[comptime!(2 * place + row)]);
            }
            let top = max(highest[row], row_maximum(max(tops.extract(0usize), tops.extract(1usize))));
            before[row] = (highest[row] - top).exp();
            highest[row] = top;
            totals[row] *= before[row];
        }
        #[unroll]
        for place in 0..comptime!(d_head / 4) {
            mixed[place] *= Vector::new(before[comptime!(place % 2)]);
        }
        #[unroll]
        for block in 0..comptime!(OTHERS / 16) {
            let mut weights = Array::<Vector<T, P>>::new(4usize);
            #[unroll]
            for i in 0..4usize {
                let place = comptime!(4 * block + i);
                let row = comptime!(i % 2);
                let mut weight = (scores[place] - Vector::new(highest[row])).exp();
                totals[row] += weight.extract(0usize) + weight.extract(1usize);
                if call.drops {
                    let (of_query, of_key) = (first + row_of_unit(place), start + column_of_unit(place));
                    #[unroll]
                    for e in 0..2usize {
                        weight.insert(e, weight.extract(e) * kept(of_query, of_key + e, of_rows, call));
                    }
                }
                weights[i] = Vector::cast_from(weight);
            }
            add_rows::<T, W, P>(&mut mixed, &weights, &value_rows, comptime!(16 * block), d_head);
        }
    }
    #[unroll]
    for row in 0..2usize {
        let total = row_sum(totals[row]);
        let mut sum = 0.0f32;
        let mut share = 0.0f32;
        // A query that sees no key has the output 0.
        if total != 0.0f32 {
            sum = highest[row] + total.ln();
            share = 1.0f32 / total;
        }
        totals[row] = share;
        let of_row = first + row_of_unit(row);
        let of_four = UNIT_POS_X % 4;
        if of_four == 0 && of_row < queries {
            sums[of_rows + of_row] = sum;
        }
    }
    #[unroll]
    for place in 0..comptime!(d_head / 4) {
        mixed[place] *= Vector::new(totals[comptime!(place % 2)]);
    }
    write::<O, P>(&mixed, out, first, queries, 1.0f32, call);
}
