//! Scaled-dot-product attention.

use crate::device::Backing;
use crate::dropout;
use crate::host::{self, HostOp, floats, fused, like, tensor, ternary};
use crate::precision::lowered;
use crate::product::matmul;
use crate::random::draw_seed;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Bool, DType, Tensor, module, ops::AttentionModuleOptions};
use std::sync::Arc;
use undertone_kernels::attention as kernels;

/// How [`attention`] splits heads and which keys each query may see.
#[derive(Clone, Debug)]
pub struct AttentionOptions {
    /// Number of heads; divides the last axis of queries, keys and values.
    pub heads: usize,
    /// Query `i` sees key `j` only when `j ≤ i + (keys - queries)`: with a cache, the queries are the last of the keys.
    pub causal: bool,
    /// `[batch, keys]`, true where a key is padding and must not be seen. A row must leave at least one key visible.
    pub key_padding: Option<Tensor<2, Bool>>,
    /// Probability of dropping an attention weight; acts in training only.
    pub dropout: f64,
}

impl AttentionOptions {
    /// Every query sees every key, without dropout.
    pub fn new(heads: usize) -> Self {
        Self { heads, causal: false, key_padding: None, dropout: 0.0 }
    }

    /// Queries see no later key.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Hides padded keys; `mask` is `[batch, keys]`, true where a key is padding.
    pub fn with_key_padding(mut self, mask: Option<Tensor<2, Bool>>) -> Self {
        self.key_padding = mask;
        self
    }

    /// Drops attention weights with probability `p` in training.
    pub fn with_dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }
}

/// `softmax(q kᵀ / √d_head) v` per head.
///
/// # Shapes
/// - `query`: `[batch, queries, heads · d_head]`
/// - `key`, `value`: `[batch, keys, heads · d_head]`
/// - output: `[batch, queries, heads · d_head]`
///
/// # Panics
/// If `heads` does not divide the last axis.
pub fn attention(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
    let width = query.dims()[2];
    assert!(width.is_multiple_of(options.heads), "{} heads do not divide a width of {width}", options.heads);
    let dtype = query.dtype();
    host::restored(products(lowered(query), lowered(key), lowered(value), options), dtype)
}

fn products(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
    if !fused(&query.device()) {
        return composed(query, key, value, options);
    }
    let dtype = query.dtype();
    let device = query.device();
    let p = if device.is_autodiff() { options.dropout } else { 0.0 };
    let op = HostAttention {
        heads: options.heads,
        causal: options.causal,
        key_padding: options.key_padding.map(|mask| bools(mask).into()),
        dropout: p as f32,
        seed: if p > 0.0 { draw_seed() } else { 0 },
    };
    let out = ternary::<3, 3, 3, 3>(op, host::f32(query), host::f32(key), host::f32(value));
    host::restored(out, dtype)
}

fn bools(mask: Tensor<2, Bool>) -> Vec<bool> {
    mask.into_data().iter::<bool>().collect()
}

/// The kernel, as a node of the graph.
#[derive(Clone, Debug)]
struct HostAttention {
    heads: usize,
    causal: bool,
    key_padding: Option<Arc<[bool]>>,
    dropout: f32,
    seed: u64,
}

/// Kept between the passes: nothing of `[queries, keys]`.
#[derive(Clone, Debug)]
struct SavedAttention {
    inputs: [FlexTensor; 3],
    out: FlexTensor,
    row_sums: FlexTensor,
}

impl HostAttention {
    fn kernel(&self, query: &FlexTensor, key: &FlexTensor) -> kernels::Attention<'_> {
        let (queries, keys) = (query.layout().shape(), key.layout().shape());
        kernels::Attention {
            batch: queries[0],
            heads: self.heads,
            queries: queries[1],
            keys: keys[1],
            d_head: queries[2] / self.heads,
            causal: self.causal,
            key_padding: self.key_padding.as_deref(),
            dropout: self.dropout,
            seed: self.seed,
        }
    }
}

impl HostOp<3> for HostAttention {
    type Saved = SavedAttention;

    fn forward(&self, [query, key, value]: [FlexTensor; 3], _: [bool; 3]) -> (FlexTensor, SavedAttention) {
        let kernel = self.kernel(&query, &key);
        let (out, sums) = kernel.forward(floats(&query), floats(&key), floats(&value));
        let (out, length) = (like(out, &query), sums.len());
        let row_sums = tensor(sums, [length]);
        (out.clone(), SavedAttention { inputs: [query, key, value], out, row_sums })
    }

    fn backward(self, saved: SavedAttention, d_out: FlexTensor, _: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [query, key, value] = &saved.inputs;
        let inputs = [floats(query), floats(key), floats(value)];
        let found =
            self.kernel(query, key).backward(inputs, floats(&saved.out), floats(&saved.row_sums), floats(&d_out));
        [(found.query, query), (found.key, key), (found.value, value)].map(|(g, shape)| Some(like(g, shape)))
    }
}

/// The composition, for every other backend.
fn composed(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
    let [batch, queries, width] = query.dims();
    let keys = key.dims()[1];
    let d_head = width / options.heads;
    let split = |x: Tensor<3>, time: usize| x.reshape([batch, time, options.heads, d_head]).swap_dims(1, 2);
    let (query, key, value) = (split(query, queries), split(key, keys), split(value, keys));

    // One query sees everything there is, so a decoding step needs no causal mask.
    let causal = options.causal && queries > 1;
    let hidden = hidden_keys(&query, &options, causal, keys);
    // Burn's own kernels for accelerators multiply tiles in f16, also those of f32 numbers.
    let out = if query.device().is_autodiff() || query.dtype() == DType::F32 {
        differentiable(query, key, value, hidden, options.dropout)
    } else {
        burns(query, key, value, hidden)
    };
    out.swap_dims(1, 2).reshape([batch, queries, width])
}

/// Burn's attention. LibTorch's function takes a mask that is true where a key is seen, and Burn hands it its own mask, which
/// is true where a key is hidden (burn-tch 0.22.1, `ops/module.rs`).
fn burns(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, hidden: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let inverted = Backing::of(&query.device()) == Backing::LibTorch;
    let mask = hidden.map(|hidden| if inverted { hidden.bool_not() } else { hidden });
    module::attention(query, key, value, mask, None, AttentionModuleOptions::default())
}

/// `[batch or 1, 1, queries or 1, keys]`, true where a key is hidden; none when nothing is.
fn hidden_keys(query: &Tensor<4>, options: &AttentionOptions, causal: bool, keys: usize) -> Option<Tensor<4, Bool>> {
    let [batch, heads, queries, _] = query.dims();
    let device = query.device().inner();
    let future = causal.then(|| {
        let offset = keys as i64 - queries as i64;
        // `tril_mask` is false on and below the diagonal: exactly the keys a query may see.
        Tensor::<2, Bool>::tril_mask([queries, keys], offset, &device).unsqueeze_dims::<4>(&[0, 0])
    });
    let padding = options.key_padding.clone().map(|mask| mask.unsqueeze_dims::<4>(&[1, 1]));
    let expand = |mask: Tensor<4, Bool>| mask.expand([batch, heads, queries, keys]);
    match (future, padding) {
        (Some(future), Some(padding)) => Some(expand(future).bool_or(expand(padding))),
        (Some(mask), None) | (None, Some(mask)) => Some(expand(mask)),
        (None, None) => None,
    }
}

/// The composition whose backward pass Burn derives. Dividing by the row sums after the product with the values keeps
/// that division, and its gradient, at `[queries, d_head]` instead of `[queries, keys]`; the row maximum cancels in the
/// quotient, so it carries no gradient. Between the two products everything is f32.
fn differentiable(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    hidden: Option<Tensor<4, Bool>>,
    p_dropout: f64,
) -> Tensor<4> {
    let scale = (query.dims()[3] as f64).powf(-0.5);
    let dtype = query.dtype();
    let mut scores = host::f32(matmul(query.mul_scalar(scale), key.swap_dims(2, 3)));
    if let Some(hidden) = hidden {
        scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    }
    let row_max = scores.clone().detach().max_dim(3);
    let weights = (scores - row_max).exp();
    let row_sum = weights.clone().sum_dim(3);
    let mixed = host::f32(matmul(host::restored(dropout(weights, p_dropout), dtype), value));
    host::restored(mixed / row_sum, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite, device, pseudo_random};
    use proptest::prelude::*;

    /// Attention by its definition, a loop at a time, on the host.
    fn by_definition(
        q: &[f32],
        k: &[f32],
        v: &[f32],
        (t, s, heads, dk): (usize, usize, usize, usize),
        causal: bool,
        padded: &[bool],
    ) -> Vec<f32> {
        let width = heads * dk;
        let mut out = vec![0.0; t * width];
        for head in 0..heads {
            for i in 0..t {
                let logits: Vec<f64> = (0..s)
                    .map(|j| {
                        if padded[j] || (causal && j > i + s - t) {
                            return f64::NEG_INFINITY;
                        }
                        let dot: f64 = (0..dk)
                            .map(|c| f64::from(q[i * width + head * dk + c]) * f64::from(k[j * width + head * dk + c]))
                            .sum();
                        dot / (dk as f64).sqrt()
                    })
                    .collect();
                let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
                for c in 0..dk {
                    let y: f64 =
                        (0..s).map(|j| (logits[j] - max).exp() / sum * f64::from(v[j * width + head * dk + c])).sum();
                    out[i * width + head * dk + c] = y as f32;
                }
            }
        }
        out
    }

    #[test]
    fn equals_its_definition_with_and_without_autodiff() {
        let (t, s, heads, dk) = (5, 7, 3, 4);
        for causal in [false, true] {
            for padded in [vec![false; s], (0..s).map(|j| j == 1 || j == 2).collect::<Vec<_>>()] {
                let (q, k, v) = (
                    pseudo_random(t * heads * dk, 1),
                    pseudo_random(s * heads * dk, 2),
                    pseudo_random(s * heads * dk, 3),
                );
                let expected = by_definition(&q, &k, &v, (t, s, heads, dk), causal, &padded);
                for device in [device(), device().autodiff()] {
                    let tensor =
                        |x: &[f32], time: usize| Tensor::<1>::from_floats(x, &device).reshape([1, time, heads * dk]);
                    let mask =
                        Tensor::<1, Bool>::from_bool(padded.as_slice(), &device.clone().inner()).unsqueeze::<2>();
                    let mut options = AttentionOptions::new(heads).with_key_padding(Some(mask));
                    options.causal = causal;
                    let y = attention(tensor(&q, t), tensor(&k, s), tensor(&v, s), options);
                    assert_close(y, &expected, 1e-5);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn equals_its_composition(
            (batch, heads, d_head) in (1_usize..3, 1_usize..3, 1_usize..9),
            (queries, extra_keys) in (1_usize..80, 0_usize..20),
            (causal, padded, half) in any::<(bool, bool, bool)>(),
        ) {
            let keys = queries + extra_keys;
            let inputs = Inputs::default().half(half);
            let q = inputs.tensor([batch, queries, heads * d_head]);
            let [k, v] = [(); 2].map(|()| inputs.tensor([batch, keys, heads * d_head]));
            let mask: Vec<bool> = (0..batch * keys).map(|i| i % keys % 3 == 2).collect();
            let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device()).reshape([batch, keys]);
            let mut options = AttentionOptions::new(heads).with_key_padding(padded.then_some(mask));
            options.causal = causal;
            let run = |f: fn(Tensor<3>, Tensor<3>, Tensor<3>, AttentionOptions) -> Tensor<3>| {
                let options = options.clone();
                move |[q, k, v]: [Tensor<3>; 3]| f(q, k, v, options.clone())
            };
            compare([q, k, v], run(attention), run(composed));
        }
    }

    #[test]
    fn dropout_drops_weights_in_training_only() {
        let x = Tensor::<3>::ones([1, 64, 2], &device());
        let options = AttentionOptions::new(1).with_dropout(0.5);
        assert_close(attention(x.clone(), x.clone(), x.clone(), options.clone()), &[1.0; 128], 1e-6);
        let x = x.autodiff();
        for f in [attention, composed] {
            let y: Vec<f32> = f(x.clone(), x.clone(), x.clone(), options.clone()).try_into_vec_as().expect("floats");
            let mean = y.iter().sum::<f32>() / 128.0;
            // 64 queries of 64 weights: the mean's deviation is 1 / √(64 · 64).
            assert!((mean - 1.0).abs() < 0.08, "mean {mean}");
            assert!(y.iter().any(|y| (y - 1.0).abs() > 0.05), "nothing was dropped");
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        // One query, few, and more than a tile of the kernel; one head is poisoned, the other is not.
        for (queries, keys) in [(1, 3), (4, 4), (70, 71)] {
            for padded in [false, true] {
                let inputs = Inputs::default();
                let q = inputs.tensor([2, queries, 6]);
                let [k, v] = [(); 2].map(|()| inputs.tensor([2, keys, 6]));
                let mask: Vec<bool> = (0..2 * keys).map(|i| i % keys == 0).collect();
                let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device()).reshape([2, keys]);
                let options = AttentionOptions::new(2).with_key_padding(padded.then_some(mask));
                let run = |f: fn(Tensor<3>, Tensor<3>, Tensor<3>, AttentionOptions) -> Tensor<3>| {
                    let options = options.clone();
                    move |[q, k, v]: [Tensor<3>; 3]| f(q, k, v, options.clone())
                };
                compare_not_finite([q, k, v], run(attention), run(composed));
            }
        }
    }
}
