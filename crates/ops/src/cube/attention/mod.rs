//! Attention in which no weight is ever written to memory (Dao et al., 2022; Dao, 2023), in f32 and without matrix units.
//!
//! A cube holds a tile of rows, of queries or of keys, and goes through the rows of the other side piece by piece. The
//! forward pass keeps the largest score and the sum of exponentials that each query has met so far, and corrects what it
//! has summed when a larger score comes. The backward passes make each weight again from its score and the row's sum.
//!
//! A row is shared by so many units that each has at most 32 of its channels: four such pieces, as the pass for keys and
//! values has, are 128 numbers in registers.

mod backward;
mod forward;

use burn::backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::dropout::{Drop, Dropped};
use super::launch::{empty, zeros};
use backward::{attention_backward_key_value, attention_backward_query};
use forward::attention_forward;

/// What there is to attend to; tensors are `[batch, time, heads · d_head]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub heads: usize,
    pub causal: bool,
    /// Whether the mask, `[batch, keys]`, hides where it is not 0; else it is not read.
    pub padded: bool,
    pub drop: Option<Drop>,
}

/// Channels of a row that one unit has.
const CHANNELS: usize = 32;
/// Units of a cube, at most.
const UNITS: usize = 64;
/// Rows of a cube, at most.
const ROWS: usize = 32;
/// Numbers of one side in shared memory. With the scores there are four pieces of at most so many: 16 KiB, which every
/// device of WebGPU has.
const SHARED: usize = 1024;
/// Less than any score: what a row begins with.
const LEAST: f32 = -3.0e38;

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tile {
    d_head: usize,
    /// Units that share a row, and the channels of each.
    parts: usize,
    own: usize,
    /// Rows of a cube, and rows of the other side at a time.
    rows: usize,
    others: usize,
}

impl Tile {
    fn new(d_head: usize) -> Option<Self> {
        if d_head > SHARED {
            return None;
        }
        let parts = (1..=UNITS).find(|parts| d_head.is_multiple_of(*parts) && d_head / parts <= CHANNELS)?;
        let rows = (UNITS / parts).min(ROWS);
        let others = (SHARED / d_head.max(rows * parts)).clamp(1, 16);
        Some(Self { d_head, parts, own: d_head / parts, rows, others })
    }
}

impl Attention {
    /// Whether there is a kernel for heads of this width.
    pub fn takes(d_head: usize) -> bool {
        Tile::new(d_head).is_some()
    }

    /// Output, `[batch, queries, heads · d_head]`, and for each query the logarithm of its sum of exponentials, `[batch,
    /// heads, queries]`. A query that sees no key gets zeros.
    pub fn forward(&self, [query, key, value, padding]: [CubeTensor; 4]) -> [CubeTensor; 2] {
        let [query, key, value, padding] = [query, key, value, padding].map(into_contiguous);
        let plan = self.plan(&query, &key);
        let out = empty(&query, query.shape());
        let sums = empty(&query, [plan.batch, self.heads, plan.queries]);
        if plan.is_empty() {
            return [out, sums].map(zeros);
        }
        let (client, cubes, units) = (query.client.clone(), plan.cubes(plan.queries), plan.units());
        let [q, k, v, m] = [query, key, value, padding].map(CubeTensor::into_tensor_arg);
        let [y, s] = [&out, &sums].map(|x| x.clone().into_tensor_arg());
        attention_forward::launch(&client, cubes, units, q, k, v, m, y, s, self.call(&plan));
        [out, sums]
    }

    /// Gradients of query, key and value.
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
        let (client, units) = (query.client.clone(), plan.units());
        let arg = |x: &CubeTensor| x.clone().into_tensor_arg();
        let inputs = || [&query, &key, &value, &padding].map(arg);
        let ([q, k, v, m], cubes) = (inputs(), plan.cubes(plan.queries));
        let [y, s, dy, dq, d] = [&out, &sums, &d_out, &d_query, &deltas].map(arg);
        attention_backward_query::launch(&client, cubes, units, q, k, v, m, y, s, dy, dq, d, self.call(&plan));
        let ([q, k, v, m], cubes) = (inputs(), plan.cubes(plan.keys));
        let [s, dy, d, dk, dv] = [&sums, &d_out, &deltas, &d_key, &d_value].map(arg);
        attention_backward_key_value::launch(&client, cubes, units, q, k, v, m, s, dy, d, dk, dv, self.call(&plan));
        [d_query, d_key, d_value]
    }

    fn call(&self, plan: &Plan) -> CallLaunch {
        let dropped = self.drop.unwrap_or_default().launch();
        let (causal, padded, drops) = (self.causal, self.padded, self.drop.is_some());
        CallLaunch::new(plan.queries, plan.keys, self.heads, plan.scale, dropped, plan.tile, causal, padded, drops)
    }

    fn plan(&self, query: &CubeTensor, key: &CubeTensor) -> Plan {
        let (query, key) = (query.shape(), key.shape());
        let d_head = query[2] / self.heads;
        Plan {
            batch: query[0],
            heads: self.heads,
            queries: query[1],
            keys: key[1],
            scale: (d_head as f32).sqrt().recip(),
            tile: Tile::new(d_head).expect("`takes` was asked"),
        }
    }
}

/// What kernels are told.
#[derive(CubeType, CubeLaunch)]
struct Call {
    queries: usize,
    keys: usize,
    heads: usize,
    scale: f32,
    dropped: Dropped,
    #[cube(comptime)]
    tile: Tile,
    #[cube(comptime)]
    causal: bool,
    #[cube(comptime)]
    padded: bool,
    #[cube(comptime)]
    drops: bool,
}

/// The sizes of one call.
struct Plan {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    scale: f32,
    tile: Tile,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.batch * self.queries * self.keys == 0
    }

    fn cubes(&self, rows: usize) -> CubeCount {
        CubeCount::Static(rows.div_ceil(self.tile.rows) as u32, self.heads as u32, self.batch as u32)
    }

    fn units(&self) -> CubeDim {
        CubeDim::new_1d((self.tile.rows * self.tile.parts) as u32)
    }
}

/// Rows `start..` of a head into shared memory, and zeros behind the last.
#[cube]
fn load(
    memory: &mut Shared<[f32]>,
    from: &Tensor<f32>,
    start: usize,
    rows: usize,
    first: usize,
    width: usize,
    #[comptime] tile: Tile,
) {
    let step = comptime!(tile.rows * tile.parts);
    let mut at = UNIT_POS_X as usize;
    while at < comptime!(tile.others * tile.d_head) {
        let row = start + at / tile.d_head;
        let mut number = 0.0f32;
        if row < rows {
            number = from[first + row * width + at % tile.d_head];
        }
        memory[at] = number;
        at += step;
    }
}

/// Whether query `i` sees key `j`.
#[cube]
#[allow(clippy::collapsible_if, reason = "`padded` is known when the kernel is compiled")]
fn sees(i: usize, j: usize, padding: &Tensor<f32>, call: &Call) -> bool {
    let mut seen = i < call.queries && j < call.keys;
    if call.causal {
        seen = seen && j + call.queries <= i + call.keys;
    }
    if call.padded {
        if seen {
            seen = padding[CUBE_POS_Z as usize * call.keys + j] == 0.0;
        }
    }
    seen
}

/// The sum of what the units of a row have put down for place `at`.
#[cube]
fn gathered(shares: &Shared<[f32]>, at: usize, #[comptime] tile: Tile) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for part in 0..tile.parts {
        sum += shares[at * tile.parts + part];
    }
    sum
}
