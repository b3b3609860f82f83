//! Attention to the states that keys and values would be projected from.

use super::grouped::Groups;
use super::{AttentionOptions, attention, bools};
use crate::host::{self, HostOp, apply, fused, like, numbers};
use crate::linear;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Bool, Device, Tensor};
use std::sync::Arc;
use undertone_kernels::attention as kernels;

/// Whether [`state_attention`] on this device computes no keys and values: where the kernel for it exists, and nothing asks
/// for gradients.
pub fn prefers_states(device: &Device) -> bool {
    fused(device) && !device.is_autodiff() && kernels::StateAttention::available()
}

/// Returns [`attention`] of `query` to `keys = states · key_weightᵀ` and `values = states · value_weightᵀ`, without gradients.
/// Where the device [prefers it](prefers_states), neither is computed: that is faster for a few queries, and slower for many.
///
/// # Shapes
/// - `query`: `[batch, queries, heads · d_head]`; `states`: `[batch, time, d_model]`
/// - `key_weight`, `value_weight`: `[key heads · d_head, d_model]`; with fewer heads than `heads` as in [`attention`]
/// - `padding`: `[batch, time]`, true where a state must not be seen; each row must leave a state visible
/// - output: `[batch, queries, heads · d_head]`
///
/// # Panics
/// As for [`attention`].
pub fn state_attention(
    query: Tensor<3>,
    states: Tensor<3>,
    [key_weight, value_weight]: [Tensor<2>; 2],
    heads: usize,
    padding: Option<Tensor<2, Bool>>,
) -> Tensor<3> {
    let (query, states) = (query.inner(), states.inner());
    let [key_weight, value_weight] = [key_weight, value_weight].map(Tensor::inner);
    if !prefers_states(&query.device()) {
        let [key, value] = [key_weight, value_weight].map(|weight| linear(states.clone(), weight, None));
        return attention(query, key, value, AttentionOptions::new(heads).with_key_padding(padding));
    }
    let groups = Groups::of(heads, query.dims()[2], key_weight.dims()[0]);
    let dtype = query.dtype();
    let op = HostStateAttention { heads: groups.heads, padding: padding.map(|mask| bools(mask).into()) };
    let query = host::f32(groups.lined_up(query));
    let [key_weight, value_weight] = [key_weight, value_weight].map(|weight| host::held(weight).into());
    let out = apply(op, [query.into(), host::held(states).into(), key_weight, value_weight]);
    host::restored(groups.side_by_side(out), dtype)
}

#[derive(Clone, Debug)]
struct HostStateAttention {
    heads: usize,
    padding: Option<Arc<[bool]>>,
}

impl HostOp<4> for HostStateAttention {
    type Saved = ();

    fn forward(&self, [query, states, key, value]: [FlexTensor; 4], _: [bool; 4]) -> (FlexTensor, ()) {
        let (of_query, of_states) = (query.layout().shape(), states.layout().shape());
        let kernel = kernels::StateAttention {
            batch: of_query[0],
            heads: self.heads,
            queries: of_query[1],
            time: of_states[1],
            d_head: of_query[2] / self.heads,
            d_model: of_states[2],
            padding: self.padding.as_deref(),
        };
        let projections = kernels::Projections { key: numbers(&key), value: numbers(&value) };
        (like(kernel.forward(host::floats(&query), numbers(&states), projections), &query), ())
    }

    fn backward(self, (): (), _: FlexTensor, _: [bool; 4]) -> [Option<FlexTensor>; 4] {
        unreachable!("no input has a graph")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Inputs, assert_close, device};
    use burn::tensor::DType;

    #[test]
    fn the_kernel_equals_attention_to_keys_and_values() {
        let inputs = Inputs::default();
        let [query, states] = [3, 40].map(|rows| inputs.tensor::<3>([2, rows, 24]).inner());
        let projections = [(); 2].map(|()| inputs.tensor::<2>([24, 24]).inner());
        let mask: Vec<bool> = (0..80).map(|i| i % 3 == 1).collect();
        let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device()).reshape([2, 40]);
        for padding in [None, Some(mask)] {
            for dtype in [DType::F32, DType::BF16].into_iter().filter(|dtype| device().supports_dtype(*dtype)) {
                let projections = projections.clone().map(|weight| weight.cast(dtype));
                let found = state_attention(query.clone(), states.clone(), projections.clone(), 4, padding.clone());
                let [key, value] = projections.map(|weight| linear(states.clone(), weight, None));
                let options = AttentionOptions::new(4).with_key_padding(padding.clone());
                let expected = attention(query.clone(), key, value, options);
                assert_close(found, &expected.try_into_vec_as::<f32>().expect("floats"), 1e-5);
            }
        }
    }
}
