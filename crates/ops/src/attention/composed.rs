//! Attention composed of operations of any backend.

use crate::activation::drop_elements;
use crate::capacity::Capacity;
use crate::host;
use crate::product::{matmul, matmul_to_f32};
use burn::tensor::{Bool, Device, Tensor};
use std::ops::Range;

/// Composed attention, in pieces of queries, so that at most [`SCORES`] scores exist at a time. Everything between the
/// products is f32.
pub(super) struct Composed {
    pub heads: usize,
    pub causal: bool,
    pub padding: Option<Tensor<2, Bool>>,
    /// Probability of dropping a weight, and seed.
    pub drop: Option<(f64, u64)>,
}

/// 256 MiB in f32, or less if a tensor cannot be as large; in tests small enough that there is more than one piece.
const SCORES: usize = if cfg!(test) { 1 << 7 } else { 1 << 26 };

impl Composed {
    pub fn forward(&self, qkv: &[Tensor<3>; 3]) -> (Tensor<3>, Tensor<3>) {
        let [query, key, value] = qkv.clone().map(|x| self.split(x));
        let dtype = query.dtype();
        let (mut outs, mut sums) = (Vec::new(), Vec::new());
        for rows in self.pieces(&query, &key) {
            let scores = self.scores(&query, &key, &rows);
            let top = scores.clone().max_dim(3);
            let weights = (scores - top.clone()).exp();
            let total = weights.clone().sum_dim(3);
            let mixed = matmul_to_f32(host::restored(self.dropped(weights), dtype), value.clone());
            // Dividing after the product keeps the division at `[queries, d_head]` instead of `[queries, keys]`.
            outs.push(host::restored(mixed / total.clone(), dtype));
            sums.push(top + total.log());
        }
        (merged(joined(outs)), joined(sums).squeeze_dim(3))
    }

    pub fn backward(&self, qkv: &[Tensor<3>; 3], out_and_gradient: [Tensor<3>; 2], sums: Tensor<3>) -> [Tensor<3>; 3] {
        let [query, key, value] = qkv.clone().map(|x| self.split(x));
        let [out, d_out] = out_and_gradient.map(|x| self.split(x));
        let (dtype, scale) = (query.dtype(), scale(&query));
        // Σ weight · its gradient = output · its gradient, dropout or not.
        let deltas = (host::f32(out) * host::f32(d_out.clone())).sum_dim(3);
        let sums = sums.unsqueeze_dim::<4>(3);
        let (mut d_query, mut d_key, mut d_value) = (Vec::new(), None, None);
        let add = |sum: Option<Tensor<4>>, x: Tensor<4>| Some(sum.map_or_else(|| x.clone(), |sum| sum + x.clone()));
        for rows in self.pieces(&query, &key) {
            let of = |x: &Tensor<4>| some(x, &rows);
            let weights = (self.scores(&query, &key, &rows) - of(&sums)).exp();
            let change = self.dropped(matmul_to_f32(of(&d_out), value.clone().swap_dims(2, 3)));
            let d_scores = host::restored((weights.clone() * (change - of(&deltas))).mul_scalar(scale), dtype);
            let kept = host::restored(self.dropped(weights), dtype);
            d_query.push(matmul(d_scores.clone(), key.clone()));
            d_key = add(d_key, matmul(d_scores.swap_dims(2, 3), of(&query)));
            d_value = add(d_value, matmul(kept.swap_dims(2, 3), of(&d_out)));
        }
        let [d_key, d_value] = [d_key, d_value].map(|sum| sum.expect("there are queries"));
        [joined(d_query), d_key, d_value].map(merged)
    }

    /// Splits heads: returns `[batch, heads, time, d_head]`.
    pub fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, time, width] = x.dims();
        x.reshape([batch, time, self.heads, width / self.heads]).swap_dims(1, 2)
    }

    /// Ranges of queries. Dropout is drawn for all queries at once.
    fn pieces(&self, query: &Tensor<4>, key: &Tensor<4>) -> Vec<Range<usize>> {
        let ([batch, heads, queries, _], keys) = (query.dims(), key.dims()[2]);
        let scores = Capacity::of(&query.device()).numbers(SCORES);
        let most = if self.drop.is_some() { queries } else { scores / (batch * heads * keys).max(1) };
        let rows = most.clamp(1, queries.max(1));
        (0..queries.max(1)).step_by(rows).map(|start| start..(start + rows).min(queries)).collect()
    }

    /// `[batch, heads, rows, keys]` in f32, -∞ where a key is hidden.
    fn scores(&self, query: &Tensor<4>, key: &Tensor<4>, rows: &Range<usize>) -> Tensor<4> {
        let (queries, keys) = (query.dims()[2], key.dims()[2]);
        // Scores go into an exponential: rounded to half precision, one of 30 would be off by 1 % in f16 and by 12 % in
        // bf16.
        let scores = matmul_to_f32(some(query, rows), key.clone().swap_dims(2, 3)).mul_scalar(scale(query));
        // A single query sees all keys, so a decoding step needs no causal mask.
        let offset = (self.causal && queries > 1).then(|| (rows.start + keys) as i64 - queries as i64);
        match hidden_keys(scores.dims(), offset, self.padding.as_ref(), &scores.device()) {
            Some(hidden) => scores.mask_fill(hidden, f32::NEG_INFINITY),
            None => scores,
        }
    }

    /// Applies dropout to weights or their gradients.
    fn dropped(&self, weights: Tensor<4>) -> Tensor<4> {
        match self.drop {
            Some((p, seed)) => drop_elements(weights, p, seed),
            None => weights,
        }
    }
}

/// Merges heads: returns `[batch, time, heads · d_head]`.
pub(super) fn merged(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, time, d_head] = x.dims();
    x.swap_dims(1, 2).reshape([batch, time, heads * d_head])
}

/// Returns some rows, without a copy if they are all rows.
fn some(x: &Tensor<4>, rows: &Range<usize>) -> Tensor<4> {
    if rows.len() == x.dims()[2] { x.clone() } else { x.clone().slice_dim(2, rows.clone()) }
}

/// Concatenates pieces of rows, without a copy if there is one.
fn joined(mut pieces: Vec<Tensor<4>>) -> Tensor<4> {
    if pieces.len() == 1 { pieces.remove(0) } else { Tensor::cat(pieces, 2) }
}

pub(super) fn scale(query: &Tensor<4>) -> f64 {
    (query.dims()[3] as f64).powf(-0.5)
}

/// True where a key is hidden from a query: query `i` sees keys up to `i + offset`. `None` if no key is hidden.
pub(super) fn hidden_keys(
    [batch, heads, queries, keys]: [usize; 4],
    offset: Option<i64>,
    padding: Option<&Tensor<2, Bool>>,
    device: &Device,
) -> Option<Tensor<4, Bool>> {
    // `tril_mask` is false on and below the diagonal: exactly the keys a query may see.
    let future = |offset| Tensor::<2, Bool>::tril_mask([queries, keys], offset, device);
    let future = offset.map(|offset| future(offset).unsqueeze_dims::<4>(&[0, 0]));
    let padding = padding.map(|mask| mask.clone().unsqueeze_dims::<4>(&[1, 1]));
    let expand = |mask: Tensor<4, Bool>| mask.expand([batch, heads, queries, keys]);
    match (future, padding) {
        (Some(future), Some(padding)) => Some(expand(future).bool_or(expand(padding))),
        (Some(mask), None) | (None, Some(mask)) => Some(expand(mask)),
        (None, None) => None,
    }
}
