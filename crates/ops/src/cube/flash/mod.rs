//! Attention on matrix units that writes no score to memory (Dao, 2023), for CUDA cards since compute capability 8.0.
//!
//! A plane of a cube holds 16 rows, of queries or of keys, as fragments in its registers, and the cube iterates over the rows of the other
//! side, of which 64 are in shared memory at a time. Scores, weights and their gradients are f32 numbers in the registers that
//! `mma.sync` leaves them in, which are also those that the next product takes its left factor from. On cards with warpgroups their [kernels](warpgroup)
//! compute attention without a mask and without dropout, as Whisper's encoder has it.

mod backward;
mod forward;
mod parts;
mod warpgroup;

use super::dropout::Drop;
use super::fragments::{LANES, has_fragments};
use super::launch::{element, empty, empty_as, zeros};
use backward::{flash_backward_key_value, flash_backward_query};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl::ir::DeviceProperties;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use forward::flash_forward;
use parts::{CallLaunch, PLANES, ROWS};

/// Widths of vectors that the kernels are launched with: 16 bytes of factors, and two neighbours of a fragment.
const WIDTHS: [usize; 2] = [8, 2];
/// Largest width of a head. Wider ones need more registers than a unit has.
const WIDEST: usize = 64;

/// Sizes and masks of attention. Queries, keys and values are contiguous `[batch, heads, time, d_head]` in `dtype`, queries times the scale
/// of scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flash {
    pub causal: bool,
    /// Whether the mask, `[batch, keys]`, is read; it hides keys where it is not 0.
    pub padded: bool,
    pub drop: Option<Drop>,
    pub dtype: DType,
}

impl Flash {
    /// Whether the device has the instructions that the kernels are made of for this type and width of heads.
    pub fn takes(properties: &DeviceProperties, dtype: DType, d_head: usize) -> bool {
        d_head.is_multiple_of(16) && d_head <= WIDEST && has_fragments(properties, dtype)
    }

    /// Returns the output, `[batch, queries, heads · d_head]` in the type `out`, f32 or that of the factors, and the logarithm of each query's
    /// sum of exponentials, `[batch, heads, queries, 1]` in f32. The output of a query that sees no key is 0.
    pub fn forward(&self, [query, key, value, padding]: [CubeTensor; 4], out: DType) -> [CubeTensor; 2] {
        let [batch, heads, queries, d_head] = query.shape().dims();
        let out = empty_as(&query, [batch, queries, heads * d_head], out);
        let sums = empty(&query, [batch, heads, queries, 1]);
        if query.meta.num_elements() * key.meta.num_elements() == 0 {
            return [out, sums].map(zeros);
        }
        if self.by_warpgroups(query.client.properties(), query.shape().dims(), key.shape()[2]) {
            warpgroup::forward(self.dtype, [&query, &key, &value], [&out, &sums]);
            return [out, sums];
        }
        let client = query.client.clone();
        let call = self.call(&query, &key);
        let [q, k, v, m] = [query, key, value, into_contiguous(padding)].map(CubeTensor::into_tensor_arg);
        let [y, s] = [&out, &sums].map(|x| x.clone().into_tensor_arg());
        let [wide, pair] = WIDTHS;
        let cubes = cubes([batch, heads, queries]);
        let [low, of_out] = [self.dtype, out.dtype].map(element);
        flash_forward::launch(&client, cubes, units(), wide, pair, q, k, v, m, y, s, call, low, of_out);
        [out, sums]
    }

    /// Returns the gradients of the queries before they were multiplied by `scale`, of the keys and of the values, `[batch, time, heads ·
    /// d_head]` in the type of `out`. `d_out` has the shape and type of the queries.
    pub fn backward(
        &self,
        [query, key, value, padding]: [CubeTensor; 4],
        [out, sums, d_out]: [CubeTensor; 3],
        scale: f32,
    ) -> [CubeTensor; 3] {
        let [batch, heads, queries, d_head] = query.shape().dims();
        let keys = key.shape()[2];
        let d_query = empty_as(&query, [batch, queries, heads * d_head], out.dtype);
        let deltas = empty(&query, sums.shape());
        let [d_key, d_value] = [(); 2].map(|()| empty_as(&query, [batch, keys, heads * d_head], out.dtype));
        if query.meta.num_elements() * key.meta.num_elements() == 0 {
            return [d_query, d_key, d_value].map(zeros);
        }
        if self.by_warpgroups(query.client.properties(), query.shape().dims(), keys) {
            let factors = [&query, &key, &value];
            warpgroup::backward_query(self.dtype, factors, [&out, &sums, &d_out], [&d_query, &deltas], scale);
            warpgroup::backward_key_value(self.dtype, factors, [&sums, &d_out, &deltas], [&d_key, &d_value]);
            return [d_query, d_key, d_value];
        }
        let (client, padding) = (query.client.clone(), into_contiguous(padding));
        let arg = |x: &CubeTensor| x.clone().into_tensor_arg();
        let [wide, pair] = WIDTHS;
        let inputs = || [&query, &key, &value, &padding].map(arg);
        let ([q, k, v, m], call) = (inputs(), self.call(&query, &key));
        let [y, s, dy, dq, d] = [&out, &sums, &d_out, &d_query, &deltas].map(arg);
        let (grid, [dtype, of_out]) = (cubes([batch, heads, queries]), [self.dtype, out.dtype].map(element));
        flash_backward_query::launch(
            &client,
            grid,
            units(),
            wide,
            pair,
            q,
            k,
            v,
            m,
            y,
            s,
            dy,
            dq,
            d,
            scale,
            call,
            dtype,
            of_out,
        );
        let ([q, k, v, m], call) = (inputs(), self.call(&query, &key));
        let [s, dy, d, dk, dv] = [&sums, &d_out, &deltas, &d_key, &d_value].map(arg);
        let grid = cubes([batch, heads, keys]);
        flash_backward_key_value::launch(
            &client,
            grid,
            units(),
            wide,
            pair,
            q,
            k,
            v,
            m,
            s,
            dy,
            d,
            dk,
            dv,
            call,
            dtype,
            of_out,
        );
        [d_query, d_key, d_value]
    }

    /// Whether every query sees every key, no weight is dropped, and warpgroups compute that.
    fn by_warpgroups(&self, properties: &DeviceProperties, queries: [usize; 4], keys: usize) -> bool {
        let is_plain = !self.causal && !self.padded && self.drop.is_none();
        is_plain && warpgroup::takes(properties, queries, keys)
    }

    fn call(&self, query: &CubeTensor, key: &CubeTensor) -> CallLaunch {
        let [_, heads, queries, d_head] = query.shape().dims();
        let dropped = self.drop.unwrap_or_default().launch();
        let keys = key.shape()[2];
        CallLaunch::new(queries, keys, heads, dropped, d_head, self.causal, self.padded, self.drop.is_some())
    }
}

/// A cube for each tile of rows.
fn cubes([batch, heads, rows]: [usize; 3]) -> CubeCount {
    CubeCount::Static(rows.div_ceil(ROWS) as u32, heads as u32, batch as u32)
}

fn units() -> CubeDim {
    CubeDim::new_2d(LANES as u32, PLANES as u32)
}
