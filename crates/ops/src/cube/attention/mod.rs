//! Attention in which no weight is ever written to memory (Dao et al., 2022; Dao, 2023), in f32 and without matrix units.
//!
//! A cube holds a tile of rows, of queries or of keys, and goes through the rows of the other side piece by piece. The
//! forward pass keeps the largest score and the sum of exponentials that each query has met so far, and corrects what it
//! has summed when a larger score comes. The backward passes make each weight again from its score and the row's sum.
//!
//! Units stand in a grid of [`SIDE`] × [`SIDE`]. One of them has every [`SIDE`]th row of the tile, and of these every
//! [`SIDE`]th score, then every [`SIDE`]th channel: with four rows and four scores, eight numbers from shared memory are
//! good for sixteen products.

mod backward;
mod forward;

use burn::backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::client::Client;
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

/// Units along each side of a cube.
const SIDE: usize = 8;
/// Bytes of shared memory that a cube takes at most, so that a multiprocessor has room for more than one.
const MOST_SHARED: usize = 48 << 10;
/// Less than any score: what a row begins with.
const LEAST: f32 = -3.0e38;

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tile {
    d_head: usize,
    /// Channels of a unit. There may be some beyond the last, which are 0.
    own: usize,
    /// Rows of a unit.
    each: usize,
    /// Scores of a unit in each of its rows.
    pairs: usize,
}

/// What the kernels have to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    BackwardQuery,
    BackwardKeyValue,
}

impl Tile {
    /// The largest that `pass` has room for, with so many bytes of shared memory; none if not even the smallest.
    fn new(pass: Pass, d_head: usize, shared: usize) -> Option<Self> {
        let own = d_head.div_ceil(SIDE);
        let tiles = [(4, 4), (4, 2), (2, 2), (2, 1), (1, 1)].map(|(each, pairs)| Self { d_head, own, each, pairs });
        tiles.into_iter().find(|tile| 4 * tile.numbers(pass) <= shared.min(MOST_SHARED))
    }

    /// With no more rows to a unit than there is use for.
    fn for_rows(self, rows: usize) -> Self {
        Self { each: self.each.min(rows.div_ceil(SIDE).next_power_of_two()), ..self }
    }

    /// What `pass` has in shared memory.
    fn numbers(&self, pass: Pass) -> usize {
        let of_rows = self.rows() * self.stride();
        let of_others = self.others() * self.stride();
        // A number of each unit for each of its rows.
        let found = SIDE * self.rows();
        match pass {
            Pass::Forward => of_rows + 2 * of_others + self.scores() + found,
            Pass::BackwardQuery => 2 * (of_rows + of_others) + self.scores() + found,
            Pass::BackwardKeyValue => 2 * (of_rows + of_others) + 2 * self.scores(),
        }
    }

    /// Rows of a cube.
    fn rows(&self) -> usize {
        SIDE * self.each
    }

    /// Rows of the other side at a time.
    fn others(&self) -> usize {
        SIDE * self.pairs
    }

    /// From a row to the next in shared memory: one more than its channels, so that neighbours lie in different banks.
    fn stride(&self) -> usize {
        SIDE * self.own + 1
    }

    /// Numbers of a tile of scores, and from a row of it to the next.
    fn scores(&self) -> usize {
        self.rows() * self.across()
    }

    fn across(&self) -> usize {
        self.others() + 1
    }
}

impl Attention {
    /// Whether there is a kernel for heads of this width, with so many bytes of shared memory.
    pub fn takes(d_head: usize, shared: usize) -> bool {
        let all = [Pass::Forward, Pass::BackwardQuery, Pass::BackwardKeyValue];
        all.into_iter().all(|pass| Tile::new(pass, d_head, shared).is_some())
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
        let client = query.client.clone();
        let [q, k, v, m] = [query, key, value, padding].map(CubeTensor::into_tensor_arg);
        let [y, s] = [&out, &sums].map(|x| x.clone().into_tensor_arg());
        let (cubes, call) = self.call(Pass::Forward, &plan, &client);
        attention_forward::launch(&client, cubes, units(), q, k, v, m, y, s, call);
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

    /// The cubes of a pass, and what they are told.
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

/// A cube's grid.
fn units() -> CubeDim {
    CubeDim::new_2d(SIDE as u32, SIDE as u32)
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
    queries: usize,
    keys: usize,
    d_head: usize,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.batch * self.queries * self.keys == 0
    }
}

/// Rows `start..` of keys or values into shared memory, as [`load`] does, and zeros for those that padding hides: whatever
/// lies there has no influence.
#[cube]
fn load_seen(
    memory: &mut Shared<[f32]>,
    from: &Tensor<f32>,
    start: usize,
    factor: f32,
    padding: &Tensor<f32>,
    call: &Call,
    #[comptime] count: usize,
) {
    let tile = comptime!(call.tile);
    let width = call.heads * tile.d_head;
    let offset = CUBE_POS_Z as usize * call.keys * width + CUBE_POS_Y as usize * tile.d_head;
    load(memory, from, start, call.keys, offset, width, factor, count, tile);
    if call.padded {
        let mut row = UNIT_POS as usize;
        // Each unit clears whole rows, which others may have written.
        sync_cube();
        while row < count {
            // Beyond the last key there are zeros already.
            let key = min(start + row, call.keys - 1);
            if padding[CUBE_POS_Z as usize * call.keys + key] != 0.0f32 {
                for channel in 0..comptime!(SIDE * tile.own) {
                    memory[row * comptime!(tile.stride()) + channel] = 0.0f32;
                }
            }
            row += comptime!(SIDE * SIDE);
        }
    }
}

/// Rows `start..` of a head into shared memory, times `factor`; zeros behind the last row and beyond the last channel.
#[cube]
fn load(
    memory: &mut Shared<[f32]>,
    from: &Tensor<f32>,
    start: usize,
    rows: usize,
    offset: usize,
    width: usize,
    factor: f32,
    #[comptime] count: usize,
    #[comptime] tile: Tile,
) {
    let channels = comptime!(tile.own * SIDE);
    let mut at = UNIT_POS as usize;
    while at < comptime!(count * tile.own * SIDE) {
        let (row, channel) = (at / channels, at % channels);
        let mut number = 0.0f32;
        if start + row < rows && channel < tile.d_head {
            number = from[offset + (start + row) * width + channel] * factor;
        }
        memory[row * comptime!(tile.stride()) + channel] = number;
        at += comptime!(SIDE * SIDE);
    }
}

/// Adds to this unit's scores, `[each, pairs]`, the products of its rows of `left` with its rows of `right`.
#[cube]
fn multiply(scores: &mut Array<f32>, left: &Shared<[f32]>, right: &Shared<[f32]>, #[comptime] tile: Tile) {
    let stride = comptime!(tile.stride());
    let (row, other) = (UNIT_POS_Y as usize * stride, UNIT_POS_X as usize * stride);
    for part in 0..SIDE {
        #[unroll]
        for c in 0..tile.own {
            let channel = part * tile.own + c;
            let mut numbers = Array::<f32>::new(tile.pairs);
            #[unroll]
            for j in 0..tile.pairs {
                numbers[j] = right[other + j * comptime!(SIDE * tile.stride()) + channel];
            }
            #[unroll]
            for i in 0..tile.each {
                let number = left[row + i * comptime!(SIDE * tile.stride()) + channel];
                #[unroll]
                for j in 0..tile.pairs {
                    scores[i * tile.pairs + j] += number * numbers[j];
                }
            }
        }
    }
}

/// Puts this unit's scores, `[each, pairs]`, where all units of the cube see them.
#[cube]
fn share(scores: &Array<f32>, memory: &mut Shared<[f32]>, #[comptime] tile: Tile) {
    #[unroll]
    for i in 0..tile.each {
        #[unroll]
        for j in 0..tile.pairs {
            let (row, other) = (UNIT_POS_Y as usize + i * SIDE, UNIT_POS_X as usize + j * SIDE);
            memory[row * comptime!(tile.across()) + other] = scores[i * tile.pairs + j];
        }
    }
}

/// Adds to this unit's channels, `[each, own]`, the rows of the other side times the scores that were shared.
#[cube]
fn gather(sums: &mut Array<f32>, scores: &Shared<[f32]>, others: &Shared<[f32]>, #[comptime] tile: Tile) {
    let row = UNIT_POS_Y as usize * comptime!(tile.across());
    for j in 0..comptime!(tile.others()) {
        let mut numbers = Array::<f32>::new(tile.own);
        #[unroll]
        for c in 0..tile.own {
            numbers[c] = others[j * comptime!(tile.stride()) + UNIT_POS_X as usize + c * SIDE];
        }
        #[unroll]
        for i in 0..tile.each {
            let score = scores[row + i * comptime!(SIDE * tile.across()) + j];
            #[unroll]
            for c in 0..tile.own {
                sums[i * tile.own + c] += score * numbers[c];
            }
        }
    }
}

/// Writes this unit's channels of its rows, `[each, own]`.
#[cube]
fn write(
    numbers: &Array<f32>,
    to: &mut Tensor<f32>,
    start: usize,
    rows: usize,
    offset: usize,
    width: usize,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..tile.each {
        let row = start + UNIT_POS_Y as usize + i * SIDE;
        #[unroll]
        for c in 0..tile.own {
            let channel = UNIT_POS_X as usize + c * SIDE;
            if row < rows && channel < tile.d_head {
                to[offset + row * width + channel] = numbers[i * tile.own + c];
            }
        }
    }
}

/// An array of zeros.
#[cube]
fn cleared(#[comptime] length: usize) -> Array<f32> {
    let mut numbers = Array::<f32>::new(length);
    #[unroll]
    for at in 0..length {
        numbers[at] = 0.0f32;
    }
    numbers
}

/// How many keys, from the first, some row of a tile of queries sees.
#[cube]
fn seen_by_tile(first: usize, call: &Call) -> usize {
    let mut seen = call.keys;
    if call.causal {
        // No row of the tile sees a later key than its last one does.
        seen = min(seen, first + comptime!(call.tile.rows()) + call.keys - call.queries);
    }
    seen
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

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardQuery, Pass::BackwardKeyValue];

    #[test]
    fn tiles_fit_and_are_as_large_as_they_can_be() {
        let tile = |pass, d_head, kib: usize| Tile::new(pass, d_head, kib << 10).map(|tile| (tile.each, tile.pairs));
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 32)), [Some((4, 4)), Some((4, 2)), Some((4, 2))]);
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 16)), [Some((2, 2)), Some((2, 1)), Some((2, 1))]);
        assert_eq!(PASSES.map(|pass| tile(pass, 64, 200)), [Some((4, 4)); 3]);
        for (pass, kib) in PASSES.into_iter().flat_map(|pass| [16, 32, 48, 99].map(|kib| (pass, kib))) {
            for tile in (1..500).filter_map(|d_head| Tile::new(pass, d_head, kib << 10)) {
                assert!(4 * tile.numbers(pass) <= (kib << 10).min(MOST_SHARED), "{tile:?}");
                assert!(tile.own * SIDE >= tile.d_head, "{tile:?}");
            }
        }
        // What docs/devices.md says.
        let widest = |shared: usize| (1..1000).filter(|d_head| Attention::takes(*d_head, shared)).max();
        assert_eq!([16, 32, 48].map(|kib: usize| widest(kib << 10)), [Some(120), Some(248), Some(376)]);
    }

    #[test]
    fn few_rows_take_small_tiles() {
        let tile = Tile::new(Pass::Forward, 64, 32 << 10).expect("a tile");
        assert_eq!([1, 8, 9, 16, 17, 1500].map(|rows| tile.for_rows(rows).each), [1, 1, 2, 2, 4, 4]);
    }
}
