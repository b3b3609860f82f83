//! Scaled-dot-product attention.

mod composed;
#[cfg(feature = "cube")]
mod flash;
mod grouped;
mod heads;
mod states;

#[cfg(feature = "cube")]
use crate::capacity::shared_memory;
use crate::casts::kept_input;
#[cfg(feature = "cube")]
use crate::casts::mask_numbers;
#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "tch")]
use crate::device::Backing;
use crate::graph::{AnyFloat, recorded};
use crate::host::{self, HostOp, apply, floats, fused, like, numbers, tensor};
#[cfg(feature = "tch")]
use crate::libtorch;
use crate::precision::{lowered, product_type};
use crate::random::draw_seed;
use burn::backend::flex::FlexTensor;
#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::{Bool, Tensor};
use composed::Composed;
#[cfg(feature = "cube")]
use composed::factor_type;
pub use composed::scores_at_once;
use grouped::Groups;
pub use states::{prefers_states, state_attention};
use std::sync::Arc;
use undertone_kernels::attention as kernels;

/// Options of [`attention`]: heads, masks and dropout.
#[derive(Clone, Debug)]
pub struct AttentionOptions {
    /// Number of heads of the queries; divides their last axis.
    pub heads: usize,
    /// Whether query `i` sees key `j` only if `j ≤ i + (keys - queries)`: with a cache, the queries are the last of the
    /// keys.
    pub causal: bool,
    /// Padding mask, `[batch, keys]`, true where a key is padding and must not be seen. Each row must leave a key
    /// visible.
    pub key_padding: Option<Tensor<2, Bool>>,
    /// Probability of dropping an attention weight, in training only.
    pub dropout: f64,
}

impl AttentionOptions {
    /// Creates options under which every query sees every key, without dropout.
    pub fn new(heads: usize) -> Self {
        Self { heads, causal: false, key_padding: None, dropout: 0.0 }
    }

    /// Hides later keys from each query.
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

/// Returns `softmax(q kᵀ / √d_head) v` per head. If there are fewer heads of keys and values, consecutive heads of the
/// queries share one (grouped-query attention, Ainslie et al., 2023).
///
/// # Shapes
/// - `query`: `[batch, queries, heads · d_head]`
/// - `key`, `value`: `[batch, keys, key heads · d_head]`
/// - output: `[batch, queries, heads · d_head]`
///
/// # Panics
/// If `heads` does not divide the last axis of `query`, the number of key heads does not divide `heads`, `value` has another shape than
/// `key`, or `key` another batch than `query`.
pub fn attention(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, mut options: AttentionOptions) -> Tensor<3> {
    let [query_shape, key_shape, value_shape] = [&query, &key, &value].map(|x| x.dims());
    assert!(
        key_shape == value_shape && query_shape[0] == key_shape[0],
        "attention: queries of shape {query_shape:?}, keys of {key_shape:?} and values of {value_shape:?} do not belong together"
    );
    let groups = Groups::of(options.heads, query.dims()[2], key.dims()[2]);
    if options.causal && query.dims()[1] > 1 {
        products(query, groups.repeated(key), groups.repeated(value), options)
    } else {
        (options.heads, options.causal) = (groups.heads, false);
        groups.side_by_side(products(groups.lined_up(query), key, value, options))
    }
}

fn products(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
    let (dtype, device) = (query.dtype(), query.device());
    // LibTorch's own kernel does not drop the weights that a seed selects here.
    #[cfg(feature = "tch")]
    if Backing::of(&device) == Backing::LibTorch && (options.dropout == 0.0 || !device.is_autodiff()) {
        let qkv = [query, key, value].map(lowered);
        return host::restored(libtorch::attention(qkv, options.heads, options.causal, options.key_padding), dtype);
    }
    if !fused(&device) {
        return step(Body::new, [query, key, value], options);
    }
    let p = if device.is_autodiff() { options.dropout } else { 0.0 };
    let op = HostAttention {
        heads: options.heads,
        causal: options.causal,
        key_padding: options.key_padding.map(|mask| bools(mask).into()),
        dropout: p as f32,
        seed: if p > 0.0 { draw_seed() } else { 0 },
    };
    let [query, key, value] = [query, key, value].map(|x| AnyFloat::from(host::f32(lowered(x))));
    // Rounded as the products are.
    let out = host::restored(apply(op, [query, key, value]), product_type(&device));
    host::restored(out, dtype)
}

fn bools(mask: Tensor<2, Bool>) -> Vec<bool> {
    mask.into_data().iter::<bool>().collect()
}

/// CPU kernel, as a node of the graph.
#[derive(Clone, Debug)]
struct HostAttention {
    heads: usize,
    causal: bool,
    key_padding: Option<Arc<[bool]>>,
    dropout: f32,
    seed: u64,
}

/// Data kept between the passes: nothing of size `[queries, keys]`.
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

    fn forward(&self, [query, key, value]: [FlexTensor; 3], wanted: [bool; 3]) -> (FlexTensor, SavedAttention) {
        let kernel = self.kernel(&query, &key);
        let (out, sums) = kernel.forward(floats(&query), floats(&key), floats(&value));
        let (out, length) = (like(out, &query), sums.len());
        let row_sums = tensor(sums, [length]);
        let keep = |x| if wanted.contains(&true) { kept_input(x) } else { x };
        let inputs = [query, key, value].map(keep);
        // Last, because the next product reads it.
        let kept = keep(out.clone());
        (out, SavedAttention { inputs, out: kept, row_sums })
    }

    fn backward(self, saved: SavedAttention, d_out: FlexTensor, _: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [query, key, value] = &saved.inputs;
        let inputs = [query, key, value].map(numbers);
        let found =
            self.kernel(query, key).backward(inputs, numbers(&saved.out), floats(&saved.row_sums), floats(&d_out));
        [(found.query, query), (found.key, key), (found.value, value)].map(|(g, shape)| Some(like(g, shape)))
    }
}

/// One step of the graph on every other backend. It keeps queries, keys, values, the output and one number for each
/// query; the backward pass recomputes the weights.
fn step(make: MakeBody, [query, key, value]: [Tensor<3>; 3], options: AttentionOptions) -> Tensor<3> {
    let inputs = [&query, &key, &value].map(|x| AnyFloat::from(x.clone()));
    let with_autodiff = inputs.iter().any(AnyFloat::has_autodiff);
    let drop = (with_autodiff && options.dropout > 0.0).then(|| (options.dropout, draw_seed()));
    let qkv = [query, key, value].map(|x| AnyFloat::from(x).plain().tensor::<3>());
    let key_padding = options.key_padding.map(Tensor::inner);
    let (out, gradients) = make(&qkv, AttentionOptions { key_padding, ..options }, drop).forward(qkv);
    let backward = move |d_out| gradients(Tensor::from_dispatch(d_out)).map(|x| Some(x.into_dispatch())).into();
    recorded(out, inputs, backward)
}

/// Chooses the body of a step for its tensors; dropout is given as a probability and a seed.
type MakeBody = fn(&[Tensor<3>; 3], AttentionOptions, Option<(f64, u64)>) -> Body;

/// Computes the gradients of queries, keys and values from that of the output.
type Gradients = Box<dyn FnOnce(Tensor<3>) -> [Tensor<3>; 3] + Send>;

/// Implementation of a step.
enum Body {
    /// Kernel for CubeCL, and the mask that it reads.
    #[cfg(feature = "cube")]
    Kernel(cube::Attention, Tensor<3>),
    Composed(Composed),
}

/// Number of scores of a head up to which the kernel for CubeCL is used in half precision, too. For few scores matrix units do not pay:
/// composed attention takes some twenty launches, of which each costs the host more time than the kernel takes.
#[cfg(feature = "cube")]
const SHORT: usize = 1 << 16;

impl Body {
    fn new(qkv: &[Tensor<3>; 3], options: AttentionOptions, drop: Option<(f64, u64)>) -> Self {
        #[cfg(feature = "cube")]
        {
            let [query, key, _] = qkv;
            let ([_, queries, width], keys) = (query.dims(), key.dims()[1]);
            let low = factor_type(query);
            // Matrix units are faster than the kernel for types that they multiply, but products of whole scores cannot apply the dropout.
            let has_units = low != DType::F32 && flash::takes(&query.device(), low, width / options.heads);
            let wanted = low == DType::F32 || (!has_units && (drop.is_some() || queries * keys <= SHORT));
            let aligned = !options.causal || queries <= keys;
            let takes = |shared| cube::Attention::takes(width / options.heads, shared);
            if wanted && aligned && shared_memory(&query.device()).is_some_and(takes) {
                let attention = cube::Attention {
                    heads: options.heads,
                    causal: options.causal && queries > 1,
                    padded: options.key_padding.is_some(),
                    drop: drop.map(|(p, seed)| cube::Drop::new(p, seed)),
                };
                // Without a mask any tensor will do, because it is not read.
                let mask = options.key_padding.map_or_else(|| host::f32(query.clone()), mask_numbers);
                return Self::Kernel(attention, mask);
            }
        }
        Self::composed(qkv, options, drop)
    }

    fn composed(_: &[Tensor<3>; 3], options: AttentionOptions, drop: Option<(f64, u64)>) -> Self {
        Self::Composed(Composed { heads: options.heads, causal: options.causal, padding: options.key_padding, drop })
    }

    /// Returns the output and the function for the backward pass.
    fn forward(self, qkv: [Tensor<3>; 3]) -> (Tensor<3>, Gradients) {
        match self {
            #[cfg(feature = "cube")]
            Self::Kernel(attention, mask) => kernel(attention, mask, qkv),
            Self::Composed(composed) => {
                let (out, saved) = composed.forward(qkv);
                (out, Box::new(move |d_out| composed.backward(saved, d_out)))
            }
        }
    }
}

/// Attention by the kernel for CubeCL, in f32.
#[cfg(feature = "cube")]
fn kernel(attention: cube::Attention, mask: Tensor<3>, qkv: [Tensor<3>; 3]) -> (Tensor<3>, Gradients) {
    let ([batch, queries, _], dtype) = (qkv[0].dims(), qkv[0].dtype());
    let qkv = qkv.map(host::f32);
    let shapes = [qkv[0].shape(), [batch, attention.heads, queries].into()];
    let [q, k, v] = qkv.clone().map(Tensor::into_dispatch);
    let run = move |inputs| attention.forward(inputs);
    let made = cube::launched("attention", [q, k, v, mask.clone().into_dispatch()], shapes, run);
    let [out, sums] = made.map(Tensor::<3>::from_dispatch);
    let y = host::restored(out.clone(), dtype);
    let gradients = move |d_out| {
        let shapes = qkv.each_ref().map(|x| x.shape());
        let [q, k, v] = qkv.map(Tensor::into_dispatch);
        let [mask, out, sums, d_out] = [mask, out, sums, host::f32(d_out)].map(Tensor::into_dispatch);
        let run =
            move |[q, k, v, mask, out, sums, d_out]: [_; 7]| attention.backward([q, k, v, mask], [out, sums, d_out]);
        let found = cube::launched("attention_backward", [q, k, v, mask, out, sums, d_out], shapes, run);
        found.map(|gradient| host::restored(Tensor::from_dispatch(gradient), dtype))
    };
    (y, Box::new(gradients))
}

#[cfg(test)]
mod tests {
    use super::composed::hidden_keys;
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, compare_not_finite_but, device, pseudo_random, values};
    use burn::tensor::DType;
    use proptest::prelude::*;

    type Attends = fn(Tensor<3>, Tensor<3>, Tensor<3>, AttentionOptions) -> Tensor<3>;

    /// Composed body, on any device.
    fn composed(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
        step(Body::composed, [query, key, value], options)
    }

    /// All weights at once, composed of operations whose gradients Burn derives.
    fn derived(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, options: AttentionOptions) -> Tensor<3> {
        let (dtype, heads) = (query.dtype(), options.heads);
        let split = |x: Tensor<3>| {
            let [batch, time, width] = x.dims();
            x.reshape([batch, time, heads, width / heads]).swap_dims(1, 2)
        };
        let [query, key, value] = [query, key, value].map(split);
        let ([.., queries, d_head], keys) = (query.dims(), key.dims()[2]);
        let mut scores = host::f32(query.mul_scalar((d_head as f64).powf(-0.5)).matmul(key.swap_dims(2, 3)));
        let offset = options.causal.then(|| keys as i64 - queries as i64);
        let device = scores.device().inner();
        if let Some(hidden) = hidden_keys(scores.dims(), offset, options.key_padding.as_ref(), &device) {
            scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
        }
        let weights = (scores.clone() - scores.detach().max_dim(3)).exp();
        let total = weights.clone().sum_dim(3);
        let weights = host::restored(crate::dropout(weights, options.dropout), dtype);
        let out = host::restored(host::f32(weights.matmul(value)) / total, dtype).swap_dims(1, 2);
        let [batch, time, ..] = out.dims();
        out.reshape([batch, time, heads * d_head])
    }

    #[test]
    fn every_body_drops_the_same_weights() {
        let inputs = Inputs::default();
        let qkv: [Tensor<3>; 3] = std::array::from_fn(|_| inputs.tensor([2, 37, 6]));
        let options = AttentionOptions::new(2).causal().with_dropout(0.4);
        let run = |f: Attends| {
            let options = options.clone();
            move |[q, k, v]: [Tensor<3>; 3]| {
                crate::seed(11);
                // The comparison with training must run in training mode too: otherwise nothing is dropped.
                let [q, k, v] = [q, k, v].map(|x| if x.device().is_autodiff() { x } else { x.autodiff() });
                f(q, k, v, options.clone())
            }
        };
        for body in [attention, composed] {
            compare(qkv.clone(), run(body), run(derived));
        }
    }

    /// Attention with these options, as a function of its inputs.
    fn with(f: Attends, options: &AttentionOptions) -> impl Fn([Tensor<3>; 3]) -> Tensor<3> {
        let options = options.clone();
        move |[q, k, v]| f(q, k, v, options.clone())
    }

    proptest! {
        #[test]
        fn every_body_equals_the_operations_that_burn_derives(
            // Not of width 1: on CubeCL the products of a piece of one query, [2, 2, 1, 1], are wrong (Burn 0.22.1,
            // lavapipe).
            (batch, heads, d_head) in (1_usize..3, 1_usize..3, 2_usize..9),
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
            let run = |f| with(f, &options);
            for body in [attention, composed] {
                compare([q.clone(), k.clone(), v.clone()], run(body), run(derived));
            }
        }
    }

    /// PyTorch's fused attention, too, rounds its output and the weights that it sums: together 4.9e-4 for values of 1 in
    /// f16.
    #[test]
    fn scores_of_thirty_are_not_rounded_to_half_precision() {
        let (time, heads, width) = (24, 2, 32);
        for (dtype, tolerance) in [(DType::F16, 5e-4), (DType::BF16, 4e-3)] {
            if !device().supports_dtype(dtype) {
                continue;
            }
            let low = |seed, scale: f32| {
                let x: Vec<f32> = pseudo_random(time * width, seed).iter().map(|x| x * scale).collect();
                Tensor::<1>::from_floats(x.as_slice(), &device()).reshape([1, time, width]).cast(dtype)
            };
            // Sums of 16 products of such numbers, divided by the root of 16, are about 30.
            let [q, k, v] = [low(1, 6.0), low(2, 6.0), low(3, 1.0)];
            let [exact_q, exact_k, exact_v] = [&q, &k, &v].map(|x| host::f32(x.clone()));
            let expected = values(attention(exact_q, exact_k, exact_v, AttentionOptions::new(heads)));
            for body in [attention, composed] {
                let answer = body(q.clone(), k.clone(), v.clone(), AttentionOptions::new(heads));
                assert_close(answer, &expected, tolerance);
                let [q, k, v] = [&q, &k, &v].map(|x| x.clone().autodiff().require_grad());
                assert_close(body(q, k, v, AttentionOptions::new(heads)).inner(), &expected, tolerance);
            }
        }
    }

    #[test]
    fn dropout_drops_weights_in_training_only() {
        let x = Tensor::<3>::ones([1, 64, 2], &device());
        let options = AttentionOptions::new(1).with_dropout(0.5);
        assert_close(attention(x.clone(), x.clone(), x.clone(), options.clone()), &[1.0; 128], 1e-6);
        let x = x.autodiff();
        for f in [attention, composed, derived] {
            let y: Vec<f32> = f(x.clone(), x.clone(), x.clone(), options.clone()).try_into_vec_as().expect("floats");
            let mean = y.iter().sum::<f32>() / 128.0;
            // 64 queries of 64 weights: the mean's deviation is 1 / √(64 · 64).
            assert!((mean - 1.0).abs() < 0.08, "mean {mean}");
            assert!(y.iter().any(|y| (y - 1.0).abs() > 0.05), "nothing was dropped");
        }
    }

    /// Widths of heads that need other tile sizes, a width without a kernel, and more rows than a tile has.
    #[test]
    fn wide_heads_are_attended_to_as_narrow_ones() {
        for d_head in [60, 100, 200, 400] {
            let inputs = Inputs::default();
            let [q, k, v] = [35, 41, 41].map(|time| inputs.tensor([1, time, d_head]));
            for causal in [false, true] {
                let options = AttentionOptions { causal, ..AttentionOptions::new(1) };
                let run = |f| with(f, &options);
                compare([q.clone(), k.clone(), v.clone()], run(attention), run(derived));
            }
        }
    }

    #[cfg(feature = "cube")]
    #[test]
    #[ignore = "needs CubeCL's backend: cargo xtask test --device wgpu"]
    fn a_hidden_key_that_is_no_number_spoils_nothing() {
        let inputs = Inputs::default();
        let [q, k, v] = [(); 3].map(|()| inputs.tensor::<3>([1, 40, 8]).inner());
        let no_number = Tensor::<3>::full([1, 1, 8], f32::NAN, &device());
        let [k, v] = [k, v].map(|x| x.slice_assign([0..1, 20..21, 0..8], no_number.clone()));
        let hidden: Vec<bool> = (0..40).map(|j| j == 20).collect();
        let mask = Tensor::<1, Bool>::from_bool(hidden.as_slice(), &device()).unsqueeze::<2>();
        let [q, k, v] = [q, k, v].map(|x| x.autodiff().require_grad());
        let options = AttentionOptions::new(1).with_key_padding(Some(mask));
        let y = attention(q.clone(), k.clone(), v.clone(), options);
        let gradients = y.clone().sum().backward();
        for x in [y.inner()].into_iter().chain([q, k, v].map(|x| x.grad(&gradients).expect("a gradient"))) {
            assert!(x.try_into_vec_as::<f32>().expect("floats").iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn what_is_no_number_is_none_in_either_body() {
        // One query, few queries, and more than a tile of the kernel; one head has a NaN, the other does not.
        for (queries, keys) in [(1, 3), (4, 4), (70, 71)] {
            for padded in [false, true] {
                let inputs = Inputs::default();
                let q = inputs.tensor([2, queries, 6]);
                let [k, v] = [(); 2].map(|()| inputs.tensor([2, keys, 6]));
                // The kernel for CubeCL skips padded keys, so a non-finite number in them has no influence there.
                let hidden = usize::from(crate::runs_ahead(&device()));
                let mask: Vec<bool> = (0..2 * keys).map(|i| i % keys == hidden).collect();
                let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device()).reshape([2, keys]);
                let options = AttentionOptions::new(2).with_key_padding(padded.then_some(mask));
                let run = |f| with(f, &options);
                for body in [attention, composed] {
                    let leaves_out = padded && crate::runs_ahead(&device());
                    compare_not_finite_but(leaves_out, [q.clone(), k.clone(), v.clone()], run(body), run(derived));
                }
            }
        }
    }
}
