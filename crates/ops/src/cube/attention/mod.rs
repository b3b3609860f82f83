//! Attention that writes no weight to memory (Dao et al., 2022; Dao, 2023), in f32 and without matrix units.
//!
//! A cube holds a tile of rows, of queries or of keys, and iterates over the rows of the other side in pieces. The
//! forward pass keeps each query's running maximum score and sum of exponentials, and rescales its sums when the
//! maximum grows. The backward passes recompute each weight from its score and the row's sum.
//!
//! Units form a grid of [`SIDE`] × [`SIDE`]. A unit processes every [`SIDE`]th row of the tile, and in these every
//! [`SIDE`]th score, then every [`SIDE`]th channel. With four rows and four scores, eight numbers from shared memory
//! serve sixteen products.

mod backward;
mod forward;
mod parts;
mod tile;

use burn::backend::TensorMetadata;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::dropout::Drop;
use super::launch::{empty, zeros};
use backward::{attention_backward_key_value, attention_backward_query};
use forward::attention_forward;
use parts::CallLaunch;
pub(super) use parts::{is_seen, seen_by_rows};
use tile::{Pass, SIDE, Tile};

/// Sizes and masks of attention; tensors are `[batch, time, heads · d_head]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub heads: usize,
    pub causal: bool,
    /// Whether the mask, `[batch, keys]`, is read; it hides keys where it is not 0.
    pub padded: bool,
    pub drop: Option<Drop>,
}

impl Attention {
    /// Whether there is a kernel for this head width with `shared` bytes of shared memory.
    pub fn takes(d_head: usize, shared: usize) -> bool {
        let all = [Pass::Forward, Pass::BackwardQuery, Pass::BackwardKeyValue];
        all.into_iter().all(|pass| Tile::new(pass, d_head, shared).is_some())
    }

    /// Returns the output, `[batch, queries, heads · d_head]`, and the logarithm of each query's sum of exponentials,
    /// `[batch, heads, queries]`. The output of a query that sees no key is 0.
    pub fn forward(&self, [query, key, value, padding]: [CubeTensor; 4]) -> [CubeTensor; 2] {
        let [query, key, value, padding] = [query, key, value, padding].map(into_contiguous);
        let plan = self.plan(&query, &key);
        let out = empty(&query, query.shape());
        let sums = empty(&query, [plan.batch, self.heads, plan.queries]);
        if plan.is_empty() {
            return [out, sums].map(zeros);
        }
        let client = query.client.clone();
        let [q, k, v, m] = [query, key, value, padding].map(CubeTensor::into_tensor_arg);
        let [y, s] = [&out, &sums].map(|x| x.clone().into_tensor_arg());
        let (cubes, call) = self.call(Pass::Forward, &plan, &client);
        attention_forward::launch(&client, cubes, units(), q, k, v, m, y, s, call);
        [out, sums]
    }

    /// Returns the gradients of query, key and value.
    pub fn backward(
        &self,
        [query, key, value, padding]: [CubeTensor; 4],
        [out, sums, d_out]: [CubeTensor; 3],
    ) -> [CubeTensor; 3] {
        let [query, key, value, padding] = [query, key, value, padding].map(into_contiguous);
        let [out, sums, d_out] = [out, sums, d_out].map(into_contiguous);
        let plan = self.plan(&query, &key);
        let (d_query, deltas) = (empty(&query, query.shape()), empty(&query, sums.shape()));
        let [d_key, d_value] = [&key, &value].map(|x| empty(x, x.shape()));
        if plan.is_empty() {
            return [d_query, d_key, d_value].map(zeros);
        }
        let client = query.client.clone();
        let arg = |x: &CubeTensor| x.clone().into_tensor_arg();
        let inputs = || [&query, &key, &value, &padding].map(arg);
        let [q, k, v, m] = inputs();
        let [y, s, dy, dq, d] = [&out, &sums, &d_out, &d_query, &deltas].map(arg);
        let (cubes, call) = self.call(Pass::BackwardQuery, &plan, &client);
        attention_backward_query::launch(&client, cubes, units(), q, k, v, m, y, s, dy, dq, d, call);
        let [q, k, v, m] = inputs();
        let [s, dy, d, dk, dv] = [&sums, &d_out, &deltas, &d_key, &d_value].map(arg);
        let (cubes, call) = self.call(Pass::BackwardKeyValue, &plan, &client);
        attention_backward_key_value::launch(&client, cubes, units(), q, k, v, m, s, dy, d, dk, dv, call);
        [d_query, d_key, d_value]
    }

    /// Returns the cubes of a pass and the arguments of its kernel.
    fn call(&self, pass: Pass, plan: &Plan, client: &Client) -> (CubeCount, CallLaunch) {
        let shared = client.properties().hardware.max_shared_memory_size;
        let rows = if pass == Pass::BackwardKeyValue { plan.keys } else { plan.queries };
        let tile = Tile::new(pass, plan.d_head, shared).expect("`takes` was asked").for_rows(rows);
        let cubes = CubeCount::Static(rows.div_ceil(tile.rows()) as u32, self.heads as u32, plan.batch as u32);
        let dropped = self.drop.unwrap_or_default().launch();
        let (causal, padded, drops) = (self.causal, self.padded, self.drop.is_some());
        let scale = (plan.d_head as f32).sqrt().recip();
        let call = CallLaunch::new(plan.queries, plan.keys, self.heads, scale, dropped, tile, causal, padded, drops);
        (cubes, call)
    }

    fn plan(&self, query: &CubeTensor, key: &CubeTensor) -> Plan {
        let (query, key) = (query.shape(), key.shape());
        Plan { batch: query[0], queries: query[1], keys: key[1], d_head: query[2] / self.heads }
    }
}

/// Grid of a cube's units.
fn units() -> CubeDim {
    CubeDim::new_2d(SIDE as u32, SIDE as u32)
}

/// The sizes of one call.
struct Plan {
    batch: usize,
    queries: usize,
    keys: usize,
    d_head: usize,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.batch * self.queries * self.keys == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_as_wide_as_shared_memory_allows() {
        // The value that docs/devices.md states.
        let widest = |shared: usize| (1..1000).filter(|d_head| Attention::takes(*d_head, shared)).max();
        assert_eq!([16, 32, 48].map(|kib: usize| widest(kib << 10)), [Some(120), Some(248), Some(376)]);
    }
}
