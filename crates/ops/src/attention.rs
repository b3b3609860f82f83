//! Scaled-dot-product attention.

use crate::dropout;
use burn::tensor::{Bool, Tensor, module, ops::AttentionModuleOptions};

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
    let [batch, queries, width] = query.dims();
    let keys = key.dims()[1];
    assert!(width.is_multiple_of(options.heads), "{} heads do not divide a width of {width}", options.heads);
    let d_head = width / options.heads;
    let split = |x: Tensor<3>, time: usize| x.reshape([batch, time, options.heads, d_head]).swap_dims(1, 2);
    let (query, key, value) = (split(query, queries), split(key, keys), split(value, keys));

    // One query sees everything there is, so a decoding step needs no causal mask.
    let causal = options.causal && queries > 1;
    let hidden = hidden_keys(&query, &options, causal, keys);
    let out = if query.device().is_autodiff() {
        differentiable(query, key, value, hidden, options.dropout)
    } else {
        module::attention(query, key, value, hidden, None, AttentionModuleOptions::default())
    };
    out.swap_dims(1, 2).reshape([batch, queries, width])
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
/// quotient, so it carries no gradient.
fn differentiable(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    hidden: Option<Tensor<4, Bool>>,
    p_dropout: f64,
) -> Tensor<4> {
    let scale = (query.dims()[3] as f64).powf(-0.5);
    let mut scores = query.mul_scalar(scale).matmul(key.swap_dims(2, 3));
    if let Some(hidden) = hidden {
        scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    }
    let row_max = scores.clone().detach().max_dim(3);
    let weights = (scores - row_max).exp();
    let row_sum = weights.clone().sum_dim(3);
    dropout(weights, p_dropout).matmul(value) / row_sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, pseudo_random};

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

    #[test]
    fn gradients_equal_finite_differences() {
        let device = device().autodiff();
        let shape = [1, 3, 4];
        let x = pseudo_random(12, 4);
        let loss = |x: Tensor<3>| {
            let weight = Tensor::<1>::from_floats(pseudo_random(12, 5).as_slice(), &device).reshape(shape);
            (attention(x.clone(), x.clone(), x, AttentionOptions::new(2).causal()) * weight).sum()
        };
        let leaf = Tensor::<1>::from_floats(x.as_slice(), &device).reshape(shape).require_grad();
        let gradient = leaf.grad(&loss(leaf.clone()).backward()).expect("a gradient");
        let h = 1e-2;
        let numeric: Vec<f32> = (0..12)
            .map(|i| {
                let at = |d: f32| {
                    let mut x = x.clone();
                    x[i] += d;
                    loss(Tensor::<1>::from_floats(x.as_slice(), &device).reshape(shape)).into_scalar::<f32>()
                };
                (at(h) - at(-h)) / (2.0 * h)
            })
            .collect();
        assert_close(gradient, &numeric, 2e-3);
    }
}
