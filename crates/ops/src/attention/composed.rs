//! Attention composed of operations of any backend.

#[cfg(feature = "cube")]
use super::flash::Flash;
use super::heads::{merge, split};
use crate::activation::drop_elements;
use crate::capacity::Capacity;
#[cfg(feature = "cube")]
use crate::casts::mask_numbers;
#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::host;
use crate::precision::product_type;
use crate::product::{matmul_as, matmul_to_f32};
use burn::tensor::{Bool, DType, Device, Tensor};
use std::ops::Range;

/// Composed attention, in pieces of queries, so that at most [`scores_at_once`] exist at a time. Everything between the
/// products is f32.
pub(super) struct Composed {
    pub heads: usize,
    pub causal: bool,
    pub padding: Option<Tensor<2, Bool>>,
    /// Probability of dropping a weight, and seed.
    pub drop: Option<(f64, u64)>,
}

/// Number of scores that composed attention computes at a time on a device with this memory in bytes: 256 MiB of f32 numbers, or a 128th
/// of the memory where that is more, because each piece takes some ten launches. The passes hold three such tensors.
pub fn scores_at_once(memory: Option<u64>) -> usize {
    const LEAST: usize = 1 << 26;
    memory.map_or(LEAST, |bytes| LEAST.max(usize::try_from(bytes / 128 / 4).unwrap_or(LEAST)))
}

/// Type of the factors: that of products, unless the inputs are in half precision themselves.
pub(super) fn factor_type(query: &Tensor<3>) -> DType {
    match product_type(&query.device()) {
        DType::F32 => query.dtype(),
        low => low,
    }
}

/// Data kept between the passes.
pub(super) struct Saved {
    /// Queries, divided by the root of their width, keys and values, in the type of products, `[batch, heads, time, d_head]`.
    factors: [Tensor<4>; 3],
    /// Output, `[batch, queries, heads · d_head]`, in f32 or, by kernels for matrix units, in the type of the queries.
    out: Tensor<3>,
    /// Logarithm of each query's sum of exponentials, `[batch, heads, queries, 1]`.
    sums: Tensor<4>,
}

impl Composed {
    /// Returns the output, in the type of the queries, and what the backward pass needs.
    pub fn forward(&self, qkv: [Tensor<3>; 3]) -> (Tensor<3>, Saved) {
        let (dtype, scale) = (qkv[0].dtype(), self.scale(&qkv[0]));
        let low = factor_type(&qkv[0]);
        let factors = split(qkv, self.heads, [scale, 1.0, 1.0], low);
        #[cfg(feature = "cube")]
        if let Some(flash) = Flash::new(self.causal, self.padding.as_ref(), self.drop, &factors) {
            let (out, sums) = flash.forward(factors.clone(), dtype);
            return (host::restored(out.clone(), dtype), Saved { factors, out, sums });
        }
        let [query, key, value] = &factors;
        let (mut outs, mut sums) = (Vec::new(), Vec::new());
        for rows in self.pieces(query, key) {
            let scores = self.scores(query, key, &rows, low);
            let (weights, total, sum) = scores.weights();
            let mixed = matmul_to_f32(weights, value.clone());
            outs.push(total.map_or(mixed.clone(), |total| mixed / total));
            sums.push(sum);
        }
        let [out] = merge([joined(outs)], [1.0]);
        (host::restored(out.clone(), dtype), Saved { factors, out, sums: joined(sums) })
    }

    /// Returns the gradients of queries, keys and values, in the type of the output's gradient.
    pub fn backward(&self, saved: Saved, d_out: Tensor<3>) -> [Tensor<3>; 3] {
        let (dtype, scale, low) = (d_out.dtype(), self.scale(&saved.out), saved.factors[0].dtype());
        #[cfg(feature = "cube")]
        if let Some(flash) = Flash::new(self.causal, self.padding.as_ref(), self.drop, &saved.factors) {
            let [d_out] = split([d_out], self.heads, [1.0], low);
            let Saved { factors, out, sums } = saved;
            return flash.backward(factors, (out, sums), d_out, scale).map(|x| host::restored(x, dtype));
        }
        let Saved { factors: [query, key, value], out, sums } = saved;
        // Σ weight · its gradient = output · its gradient, dropout or not.
        let products = out * host::f32(d_out.clone());
        let [batch, queries, width] = products.dims();
        let by_head = products.reshape([batch, queries, self.heads, width / self.heads]);
        let deltas = by_head.sum_dim(3).swap_dims(1, 2);
        let [d_out] = split([d_out], self.heads, [1.0], low);
        let (mut d_query, mut d_key, mut d_value) = (Vec::new(), None, None);
        let product = |lhs, rhs| matmul_as(lhs, rhs, DType::F32);
        let add = |sum: Option<Tensor<4>>, x: Tensor<4>| Some(sum.map_or_else(|| x.clone(), |sum| sum + x.clone()));
        for rows in self.pieces(&query, &key) {
            let of = |x: &Tensor<4>| some(x, &rows);
            let scores = self.scores(&query, &key, &rows, low);
            let change = matmul_to_f32(of(&d_out), value.clone().swap_dims(2, 3));
            let [d_scores, kept] = scores.backward(change, of(&sums), of(&deltas));
            d_query.push(product(d_scores.clone(), key.clone()));
            d_key = add(d_key, product(d_scores.swap_dims(2, 3), of(&query)));
            d_value = add(d_value, product(kept.swap_dims(2, 3), of(&d_out)));
        }
        let [d_key, d_value] = [d_key, d_value].map(|sum| sum.expect("there are queries"));
        // The queries that the keys' gradient is made of are scaled already.
        merge([joined(d_query), d_key, d_value], [scale, 1.0, 1.0]).map(|x| host::restored(x, dtype))
    }

    /// Factor of the scores: 1 / √d_head. `x` is `[.., heads · d_head]`.
    fn scale(&self, x: &Tensor<3>) -> f64 {
        ((x.dims()[2] / self.heads) as f64).powf(-0.5)
    }

    /// Ranges of queries. Dropout is drawn for all queries at once.
    fn pieces(&self, query: &Tensor<4>, key: &Tensor<4>) -> Vec<Range<usize>> {
        let ([batch, heads, queries, _], keys) = (query.dims(), key.dims()[2]);
        let capacity = Capacity::of(&query.device());
        // So few in tests that there is more than one piece.
        let scores = if cfg!(test) { 1 << 7 } else { capacity.numbers(scores_at_once(capacity.total)) };
        let most = if self.drop.is_some() { queries } else { scores / (batch * heads * keys).max(1) };
        let rows = most.clamp(1, queries.max(1));
        (0..queries.max(1)).step_by(rows).map(|start| start..(start + rows).min(queries)).collect()
    }

    /// Returns the scores of some queries, which are divided by the root of their width.
    fn scores(&self, query: &Tensor<4>, key: &Tensor<4>, rows: &Range<usize>, low: DType) -> Scores<'_> {
        let (queries, keys) = (query.dims()[2], key.dims()[2]);
        // Scores go into an exponential: rounded to half precision, one of 30 would be off by 1 % in f16 and by 12 % in
        // bf16.
        let scores = matmul_to_f32(some(query, rows), key.clone().swap_dims(2, 3));
        // A single query sees all keys, so a decoding step needs no causal mask.
        let offset = (self.causal && queries > 1).then(|| (rows.start + keys) as i64 - queries as i64);
        Scores { attention: self, scores, offset, low }
    }

    /// Applies dropout to weights or their gradients.
    fn dropped(&self, weights: Tensor<4>) -> Tensor<4> {
        match self.drop {
            Some((p, seed)) => drop_elements(weights, p, seed),
            None => weights,
        }
    }
}

/// Scores of a piece of queries.
struct Scores<'a> {
    attention: &'a Composed,
    /// `[batch, heads, rows, keys]`, in f32.
    scores: Tensor<4>,
    /// Query `i` sees keys up to `i + offset`; `None` if it sees all.
    offset: Option<i64>,
    /// Type of the factors of products.
    low: DType,
}

impl Scores<'_> {
    /// Returns the weights in the type of products, the total that the mixed values are divided by, unless the weights have been, and the
    /// logarithm of each query's sum of exponentials, `[batch, heads, rows, 1]`.
    fn weights(self) -> (Tensor<4>, Option<Tensor<4>>, Tensor<4>) {
        #[cfg(feature = "cube")]
        if let Some((softmax, mask)) = self.kernel() {
            let shape = self.scores.shape();
            let [batch, heads, rows, _] = self.scores.dims();
            let outputs = [(shape, self.low), ([batch, heads, rows, 1].into(), DType::F32)];
            let inputs = [self.scores, mask].map(Tensor::into_dispatch);
            let made = cube::launched_as("softmax", inputs, outputs, move |inputs| softmax.forward(inputs));
            let [weights, sums] = made.map(Tensor::from_dispatch);
            return (weights, None, sums);
        }
        let (attention, low) = (self.attention, self.low);
        let scores = self.masked();
        let top = scores.clone().max_dim(3);
        let weights = (scores - top.clone()).exp();
        let total = weights.clone().sum_dim(3);
        // Dividing after the product keeps the division at `[queries, d_head]` instead of `[queries, keys]`.
        (host::restored(attention.dropped(weights), low), Some(total.clone()), top + total.log())
    }

    /// Returns the gradients of the scores, and the weights, both in the type of products. `change` is the gradient of the weights, and
    /// `deltas` each query's sum of weights times their gradients, `[batch, heads, rows, 1]`.
    fn backward(self, change: Tensor<4>, sums: Tensor<4>, deltas: Tensor<4>) -> [Tensor<4>; 2] {
        #[cfg(feature = "cube")]
        if let Some((softmax, mask)) = self.kernel() {
            let outputs = [(); 2].map(|()| (self.scores.shape(), self.low));
            let inputs = [self.scores, change, sums, deltas, mask].map(Tensor::into_dispatch);
            let made = cube::launched_as("softmax_backward", inputs, outputs, move |inputs| softmax.backward(inputs));
            return made.map(Tensor::from_dispatch);
        }
        let (attention, low) = (self.attention, self.low);
        let weights = (self.masked() - sums).exp();
        let change = attention.dropped(change);
        let d_scores = host::restored(weights.clone() * (change - deltas), low);
        [d_scores, host::restored(attention.dropped(weights), low)]
    }

    /// Returns the scores, -∞ where a key is hidden.
    fn masked(self) -> Tensor<4> {
        let Self { attention, scores, offset, .. } = self;
        match hidden_keys(scores.dims(), offset, attention.padding.as_ref(), &scores.device()) {
            Some(hidden) => scores.mask_fill(hidden, f32::NEG_INFINITY),
            None => scores,
        }
    }

    /// Returns the kernel for CubeCL, which drops nothing, and the mask that it reads.
    #[cfg(feature = "cube")]
    fn kernel(&self) -> Option<(cube::Softmax, Tensor<4>)> {
        let Composed { padding, drop, .. } = self.attention;
        if drop.is_some() || !Backing::of(&self.scores.device()).is_cube() {
            return None;
        }
        let softmax = cube::Softmax { offset: self.offset, padded: padding.is_some(), dtype: self.low };
        // Without a mask any tensor will do, because it is not read.
        let mask = padding.as_ref().map_or_else(|| self.scores.clone(), |mask| mask_numbers(mask.clone()));
        Some((softmax, mask))
    }
}

/// Returns some rows, without a copy if they are all rows.
fn some(x: &Tensor<4>, rows: &Range<usize>) -> Tensor<4> {
    if rows.len() == x.dims()[2] { x.clone() } else { x.clone().slice_dim(2, rows.clone()) }
}

/// Concatenates pieces of rows, without a copy if there is one.
fn joined(mut pieces: Vec<Tensor<4>>) -> Tensor<4> {
    if pieces.len() == 1 { pieces.remove(0) } else { Tensor::cat(pieces, 2) }
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
