//! Attention to keys and values that are never computed: to the states from which they would be projected.
//!
//! A decoder that has its encoder's states `x` projected to keys and values reads both for every token: 18 MB per sequence
//! for Whisper tiny, 490 MB for large. But `q · (W_k x) = (W_kᵀ q) · x`, and a weighted sum of `W_v x` is `W_v` times that of
//! `x`, so the projections can be applied to the query and to the result instead (DeepSeek-AI, 2024, DeepSeek-V2, section
//! 2.1.2). Then all heads of all layers share one `x`, 2.3 MB per sequence, each row of which is read once for all heads.

use crate::few_rows;
use crate::matrix::MatrixMut;
use crate::numbers::Numbers;
use crate::simd::{exp, max_of, simd_fn, sum_by};
use rayon::prelude::*;

/// Attention to projected states: `softmax(q (x W_kᵀ)ᵀ / √d_head) (x W_vᵀ)` per head.
#[derive(Clone, Copy, Debug)]
pub struct StateAttention<'a> {
    /// Number of sequences.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Queries per sequence.
    pub queries: usize,
    /// States per sequence.
    pub time: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Width of a state.
    pub d_model: usize,
    /// Padding mask, `[batch, time]`, true where a state is padding. Without a visible state the output is 0.
    pub padding: Option<&'a [bool]>,
}

/// Projections of keys and values, `[heads · d_head, d_model]` each.
#[derive(Clone, Copy, Debug)]
pub struct Projections<'a> {
    /// Of keys.
    pub key: Numbers<'a>,
    /// Of values.
    pub value: Numbers<'a>,
}

/// States of a block: their scores are computed, and then their sum while they are in a core's L2 cache (49 kB for
/// Whisper tiny). With 64 the speed is the same, with 16 it is 5 % less.
const BLOCK: usize = 32;

/// Multiplications of a task: 10 µs of a core, several times what it takes to wake a thread.
const TASK: usize = 1 << 18;

impl StateAttention<'_> {
    /// Whether this processor has the instructions.
    pub fn available() -> bool {
        few_rows::available()
    }

    /// Returns the output, `[batch, queries, heads · d_head]`, of queries of that shape and states `[batch, time, d_model]`.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape, or the processor lacks the [instructions](Self::available).
    pub fn forward(&self, query: &[f32], states: Numbers, projections: Projections) -> Vec<f32> {
        let width = self.heads * self.d_head;
        assert!(self.queries > 0 && self.time > 0 && self.d_model > 0, "attention needs a query and a state");
        assert_eq!(query.len(), self.rows() * width, "queries are [batch, queries, width]");
        assert_eq!(states.len(), self.batch * self.time * self.d_model, "states are [batch, time, d_model]");
        for weight in [projections.key, projections.value] {
            assert_eq!(weight.len(), width * self.d_model, "projections are [width, d_model]");
        }
        if let Some(padding) = self.padding {
            assert_eq!(padding.len(), self.batch * self.time, "padding is [batch, time]");
        }
        let absorbed = self.absorb(query, projections.key);
        self.project(&self.attend(&absorbed, states), projections.value)
    }

    /// Queries of all sequences.
    fn rows(&self) -> usize {
        self.batch * self.queries
    }

    /// Heads of a task that multiplies with their part of a projection.
    fn heads_at_once(&self) -> usize {
        (TASK / (self.rows() * self.d_head * self.d_model).max(1)).max(1)
    }

    /// Projection of a head.
    fn of_head<'w>(&self, projection: Numbers<'w>, head: usize) -> Numbers<'w> {
        let size = self.d_head * self.d_model;
        projection.slice(head * size..(head + 1) * size)
    }

    /// Returns `W_kᵀ q / √d_head`, `[heads, batch, queries, d_model]`.
    fn absorb(&self, query: &[f32], key: Numbers) -> Vec<f32> {
        let (width, scale) = (self.heads * self.d_head, (self.d_head as f32).powf(-0.5));
        let mut absorbed = vec![0.0; self.heads * self.rows() * self.d_model];
        let heads = absorbed.par_chunks_mut(self.rows() * self.d_model).with_min_len(self.heads_at_once());
        heads.enumerate().for_each(|(head, absorbed)| {
            let rows = query.chunks(width).flat_map(|row| &row[head * self.d_head..][..self.d_head]);
            let scaled: Vec<f32> = rows.map(|q| scale * q).collect();
            add_weighted(absorbed, &scaled, self.of_head(key, head), self.d_model);
        });
        absorbed
    }

    /// Returns `softmax(q xᵀ) x`, `[batch, heads, queries, d_model]`, for absorbed queries.
    fn attend(&self, absorbed: &[f32], states: Numbers) -> Vec<f32> {
        let (rows, d_model) = (self.heads * self.queries, self.d_model);
        // All rows of a sequence read its states together, unless there are too few sequences for the threads.
        let parts = (2 * rayon::current_num_threads()).div_ceil(self.batch.max(1));
        let part = rows.div_ceil(parts.clamp(1, rows));
        let mut out = vec![0.0; self.batch * rows * d_model];
        out.par_chunks_mut(rows * d_model).enumerate().for_each(|(sequence, out)| {
            let size = self.time * d_model;
            let states = states.slice(sequence * size..(sequence + 1) * size);
            let padding = self.padding.map(|padding| &padding[sequence * self.time..][..self.time]);
            out.par_chunks_mut(part * d_model).enumerate().for_each(|(i, out)| {
                let rows = i * part..i * part + out.len() / d_model;
                let row = |row| (row / self.queries * self.batch + sequence) * self.queries + row % self.queries;
                let query: Vec<f32> =
                    rows.map(row).flat_map(|row| &absorbed[row * d_model..][..d_model]).copied().collect();
                attend(out, &query, states, padding, d_model);
            });
        });
        out
    }

    /// Returns `W_v` times what was attended to, `[batch, queries, heads · d_head]`.
    fn project(&self, mixed: &[f32], value: Numbers) -> Vec<f32> {
        let (rows, d_model) = (self.rows(), self.d_model);
        let mut out = vec![0.0; rows * self.heads * self.d_head];
        let heads = MatrixMut::new(&mut out, rows, self.heads * self.d_head).split(rows.max(1), self.d_head);
        heads.into_par_iter().with_min_len(self.heads_at_once()).enumerate().for_each(|(head, mut out)| {
            let row = |row| (row / self.queries * self.heads + head) * self.queries + row % self.queries;
            let mixed: Vec<f32> =
                (0..rows).map(row).flat_map(|row| &mixed[row * d_model..][..d_model]).copied().collect();
            few_rows::dot_products(&mut out, &mixed, self.of_head(value, head), d_model);
        });
        out
    }
}

/// Adds to `out`, which is 0, the attention of some rows of one sequence. The sums are those of weights relative to the
/// greatest score so far (Milakov and Gimelshein, 2018, online softmax).
fn attend(out: &mut [f32], query: &[f32], states: Numbers, padding: Option<&[bool]>, width: usize) {
    let (rows, time) = (query.len() / width, states.len() / width);
    let mut most = vec![f32::NEG_INFINITY; rows];
    let mut totals = vec![0.0; rows];
    let mut scores = vec![0.0; rows * BLOCK];
    for first in (0..time).step_by(BLOCK) {
        let count = BLOCK.min(time - first);
        let states = states.slice(first * width..(first + count) * width);
        let scores = &mut scores[..rows * count];
        few_rows::dot_products(&mut MatrixMut::new(scores, rows, count), query, states, width);
        for row in 0..rows {
            let scores = &mut scores[row * count..][..count];
            if let Some(padding) = padding {
                hide(scores, &padding[first..][..count]);
            }
            let factor = weigh(scores, &mut most[row], &mut totals[row]);
            if factor != 1.0 {
                out[row * width..][..width].iter_mut().for_each(|x| *x *= factor);
            }
        }
        add_weighted(out, scores, states, width);
    }
    let visible = padding.is_none_or(|padding| padding.contains(&false));
    for (out, total) in out.chunks_mut(width).zip(totals) {
        // Where all scores are -∞ although there are states to see, nothing is a number.
        let factor = if total == 0.0 && !visible { 0.0 } else { total.recip() };
        out.iter_mut().for_each(|x| *x *= factor);
    }
}

fn hide(scores: &mut [f32], padding: &[bool]) {
    for (score, padded) in scores.iter_mut().zip(padding) {
        if *padded {
            *score = f32::NEG_INFINITY;
        }
    }
}

simd_fn! {
    /// Replaces scores by weights `exp(score - most)`, where `most` becomes the greatest score so far, and adds them to
    /// `total`. Returns the factor of what was summed before, which `total` is multiplied by.
    fn weigh<S>(scores: &mut [f32], most: &mut f32, total: &mut f32) -> f32 {
        let greatest = max_of(scores).max(*most);
        if greatest == f32::NEG_INFINITY {
            // Hidden all, or no number: max_of passes over NaN.
            let nan = scores.iter().any(|score| score.is_nan());
            scores.fill(if nan { f32::NAN } else { 0.0 });
            *total += if nan { f32::NAN } else { 0.0 };
            return 1.0;
        }
        let factor = exp::<S>(*most - greatest);
        *most = greatest;
        for score in scores.iter_mut() {
            *score = exp::<S>(*score - greatest);
        }
        *total = *total * factor + sum_by(scores.len(), |i| scores[i]);
        factor
    }
}

/// Adds to each row of `out` the states times the row's weights.
#[allow(unsafe_code)]
fn add_weighted(out: &mut [f32], weights: &[f32], states: Numbers, width: usize) {
    let (rows, count) = (out.len() / width, states.len() / width);
    assert!(weights.len() == rows * count, "weights are [rows, states]");
    #[cfg(target_arch = "x86_64")]
    match crate::simd::level() {
        // SAFETY: `level` has just found these features on this processor.
        crate::simd::Level::Avx512 => unsafe { x86::avx512(out, weights, states, width) },
        // SAFETY: as above.
        crate::simd::Level::Avx2 => unsafe { x86::avx2(out, weights, states, width) },
        crate::simd::Level::Baseline => panic!("no AVX2 here"),
    }
    #[cfg(not(target_arch = "x86_64"))]
    panic!("no AVX2 here");
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use crate::numbers::{Numbers, with_slice};
    use crate::registers::{Number, Register};
    use std::arch::x86_64::*;

    /// Registers of a tile's row.
    const COLUMNS: usize = 4;

    /// Six rows at a time: 24 sums and 5 numbers to multiply in 32 registers.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub(super) fn avx512(out: &mut [f32], weights: &[f32], states: Numbers, width: usize) {
        // SAFETY: this function has the features.
        with_slice!(states, |states| unsafe { columns_of::<__m512, _, 6>(out, weights, states, width) });
    }

    /// Two rows at a time: 8 sums and 5 numbers to multiply in 16 registers.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2(out: &mut [f32], weights: &[f32], states: Numbers, width: usize) {
        // SAFETY: as above.
        with_slice!(states, |states| unsafe { columns_of::<__m256, _, 2>(out, weights, states, width) });
    }

    /// # Safety
    /// The processor has the features of `V`.
    #[inline(always)]
    unsafe fn columns_of<V: Register, N: Number, const ROWS: usize>(
        out: &mut [f32],
        weights: &[f32],
        states: &[N],
        width: usize,
    ) {
        let count = states.len() / width;
        let mut column = 0;
        // SAFETY: the caller guarantees the features, and a tile ends within `width`.
        unsafe {
            while column + COLUMNS * V::LANES <= width {
                rows_of::<V, N, ROWS, COLUMNS>(out, weights, states, [column, width]);
                column += COLUMNS * V::LANES;
            }
            while column + V::LANES <= width {
                rows_of::<V, N, ROWS, 1>(out, weights, states, [column, width]);
                column += V::LANES;
            }
        }
        for (out, weights) in out.chunks_mut(width).zip(weights.chunks(count)) {
            for (weight, state) in weights.iter().zip(states.chunks(width)) {
                for (y, x) in out[column..].iter_mut().zip(&state[column..]) {
                    *y = weight.mul_add(x.wide(), *y);
                }
            }
        }
    }

    /// Adds to some columns of all rows: what the first rows read of the states is in the L1 cache for the others.
    ///
    /// # Safety
    /// The processor has the features of `V`, and `column` with the tile's columns is not beyond `width`.
    #[inline(always)]
    unsafe fn rows_of<V: Register, N: Number, const ROWS: usize, const COLUMNS: usize>(
        out: &mut [f32],
        weights: &[f32],
        states: &[N],
        [column, width]: [usize; 2],
    ) {
        let (rows, count) = (out.len() / width, states.len() / width);
        let mut row = 0;
        while row < rows {
            let (out, weights, at) = (&mut out[row * width..], &weights[row * count..], [column, width, count]);
            // SAFETY: the caller guarantees it; there are rows of `width` numbers, and a weight for each row and state.
            row += unsafe {
                match rows - row {
                    left if left >= ROWS => tile_of::<V, N, ROWS, COLUMNS>(out, weights, states, at),
                    3.. if ROWS > 3 => tile_of::<V, N, 3, COLUMNS>(out, weights, states, at),
                    2.. => tile_of::<V, N, 2, COLUMNS>(out, weights, states, at),
                    _ => tile_of::<V, N, 1, COLUMNS>(out, weights, states, at),
                }
            };
        }
    }

    /// Adds to a tile of `out`, and returns its `ROWS`. The loops have indices, because the compiler keeps registers that iterators hand out in
    /// memory.
    ///
    /// # Safety
    /// The processor has the features of `V`; `out` and `states` are rows of `width` numbers, `ROWS` and `count` of them, and
    /// `column` with the tile's columns is not beyond `width`; there are `weights` `[ROWS, count]`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    unsafe fn tile_of<V: Register, N: Number, const ROWS: usize, const COLUMNS: usize>(
        out: &mut [f32],
        weights: &[f32],
        states: &[N],
        [column, width, count]: [usize; 3],
    ) -> usize {
        let (out, weights) = (out.as_mut_ptr(), weights.as_ptr());
        // SAFETY: the caller guarantees all of it.
        unsafe {
            let states = states.as_ptr().add(column);
            let mut sums = [[V::zero(); COLUMNS]; ROWS];
            for row in 0..ROWS {
                for i in 0..COLUMNS {
                    sums[row][i] = V::load(out.add(row * width + column + i * V::LANES));
                }
            }
            for k in 0..count {
                let mut numbers = [V::zero(); COLUMNS];
                for i in 0..COLUMNS {
                    numbers[i] = N::load(states.add(k * width + i * V::LANES));
                    // The same place of the next block.
                    let next = states.wrapping_add((count + k) * width + i * V::LANES);
                    _mm_prefetch::<_MM_HINT_T1>(next.cast());
                }
                for row in 0..ROWS {
                    let weight = V::splat(*weights.add(row * count + k));
                    for i in 0..COLUMNS {
                        sums[row][i] = V::fma(weight, numbers[i], sums[row][i]);
                    }
                }
            }
            for row in 0..ROWS {
                for i in 0..COLUMNS {
                    sums[row][i].store(out.add(row * width + column + i * V::LANES));
                }
            }
        }
        ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, on_threads, random, wide};
    use half::{bf16, f16};
    use proptest::prelude::*;

    /// Queries, states and the two projections.
    fn inputs(a: &StateAttention) -> [Vec<f32>; 4] {
        let width = a.heads * a.d_head;
        let sizes = [a.batch * a.queries * width, a.batch * a.time * a.d_model, width * a.d_model, width * a.d_model];
        std::array::from_fn(|i| random(sizes[i], i as u64 + 1))
    }

    fn forward(a: &StateAttention, [query, states, key, value]: &[Vec<f32>; 4]) -> Vec<f32> {
        let [key, value] = [key, value].map(|weight| Numbers::F32(weight));
        a.forward(query, Numbers::F32(states), Projections { key, value })
    }

    /// Attention to keys and values, projected in f64.
    fn by_definition(a: &StateAttention, inputs: &[Vec<f32>; 4]) -> Vec<f64> {
        let [query, states, key, value] = inputs.each_ref().map(|x| wide(x));
        let (width, scale) = (a.heads * a.d_head, (a.d_head as f64).powf(-0.5));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let projected = |weight: &[f64], t: usize, c: usize| {
            dot(&states[t * a.d_model..][..a.d_model], &weight[c * a.d_model..][..a.d_model])
        };
        let mut out = vec![0.0; query.len()];
        for (i, (out, query)) in out.chunks_mut(a.d_head).zip(query.chunks(a.d_head)).enumerate() {
            let (first, from) = (i / a.heads / a.queries * a.time, i % a.heads * a.d_head);
            let seen: Vec<usize> =
                (first..first + a.time).filter(|t| !a.padding.is_some_and(|padding| padding[*t])).collect();
            let keys = |t: usize| (from..from + a.d_head).map(|c| projected(&key, t, c)).collect::<Vec<f64>>();
            let weights: Vec<f64> = seen.iter().map(|t| (scale * dot(query, &keys(*t))).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (c, y) in out.iter_mut().enumerate() {
                *y = seen.iter().zip(&weights).map(|(t, w)| w / total * projected(&value, *t, from + c)).sum();
            }
        }
        assert_eq!(width * a.rows(), out.len());
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_attention_to_projected_states(
            (batch, heads, queries) in (1_usize..4, 1_usize..8, 1_usize..4),
            (time, d_head, d_model) in (1_usize..80, 1_usize..6, 1_usize..90),
            padded: bool,
        ) {
            prop_assume!(StateAttention::available());
            // Every fourth state is padding, and all of the first block but the last one.
            let hidden = |i: usize| i % time != time - 1 && (i % time < BLOCK || i % 4 == 3);
            let padding: Vec<bool> = (0..batch * time).map(hidden).collect();
            let padding = padded.then_some(padding.as_slice());
            let a = StateAttention { batch, heads, queries, time, d_head, d_model, padding };
            let inputs = inputs(&a);
            assert_close(&forward(&a, &inputs), &by_definition(&a, &inputs), 1e-5);
        }

        #[test]
        fn numbers_in_half_precision_count_as_the_same_in_f32(
            (batch, queries, time, d_model) in (1_usize..3, 1_usize..3, 1_usize..80, 1_usize..150),
        ) {
            prop_assume!(StateAttention::available());
            let a = StateAttention { batch, heads: 2, queries, time, d_head: 5, d_model, padding: None };
            let [query, states, key, value] = inputs(&a);
            let brain = [&states, &key, &value].map(|x| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
            let [states_bf16, key_bf16, value_bf16] = brain.each_ref().map(|x| Numbers::Bf16(x));
            let found = a.forward(&query, states_bf16, Projections { key: key_bf16, value: value_bf16 });
            let [s, k, v] = brain.map(|x| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
            prop_assert_eq!(found, forward(&a, &[query.clone(), s, k, v]));
            let half = [&states, &key, &value].map(|x| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>());
            let [states_f16, key_f16, value_f16] = half.each_ref().map(|x| Numbers::F16(x));
            let found = a.forward(&query, states_f16, Projections { key: key_f16, value: value_f16 });
            let [s, k, v] = half.map(|x| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
            prop_assert_eq!(found, forward(&a, &[query, s, k, v]));
        }
    }

    /// One head that takes states as they are.
    fn plain(batch: usize, time: usize, d_model: usize, padding: Option<&[bool]>) -> StateAttention<'_> {
        StateAttention { batch, heads: 1, queries: 1, time, d_head: d_model, d_model, padding }
    }

    fn identity(width: usize) -> Vec<f32> {
        (0..width * width).map(|i| if i % (width + 1) == 0 { 1.0 } else { 0.0 }).collect()
    }

    #[test]
    fn scores_may_grow_by_far() {
        if !StateAttention::available() {
            return;
        }
        // One state of each block has a score beyond all before it: exp(score) alone would be infinite.
        let (time, width) = (3 * BLOCK, 16);
        let mut states = random(time * width, 3);
        (0..3).for_each(|block| states[(block * BLOCK + 9) * width] = 400.0 * (block + 1) as f32);
        let mut query = vec![0.0; width];
        query[0] = 1.0;
        let last = states[(2 * BLOCK + 9) * width..][..width].to_vec();
        assert_eq!(forward(&plain(1, time, width, None), &[query, states, identity(width), identity(width)]), last);
    }

    #[test]
    fn without_a_visible_state_it_is_zero_and_without_a_number_none() {
        if !StateAttention::available() {
            return;
        }
        let (time, width) = (70, 4);
        let (query, mut states) = (random(2 * width, 1), random(2 * time * width, 2));
        let padding: Vec<bool> = (0..2 * time).map(|i| i < time).collect();
        let a = plain(2, time, width, Some(&padding));
        let run = |states: &[f32]| forward(&a, &[query.clone(), states.to_vec(), identity(width), identity(width)]);
        let out = run(&states);
        assert!(out[..width].iter().all(|y| *y == 0.0) && out[width..].iter().all(|y| *y != 0.0), "{out:?}");
        for odd in [f32::NAN, f32::INFINITY] {
            states[(time + 3) * width] = odd;
            let out = run(&states);
            assert!(out[width..].iter().any(|y| y.is_nan()), "{out:?}");
        }
    }

    #[test]
    fn any_number_of_threads_and_any_batch_gives_the_same_bits() {
        if !StateAttention::available() {
            return;
        }
        let a = StateAttention { batch: 3, heads: 7, queries: 2, time: 130, d_head: 16, d_model: 112, padding: None };
        let inputs = inputs(&a);
        let (one, three) = on_threads(|| forward(&a, &inputs));
        assert_eq!(one, three);
        let [query, states, key, value] = inputs;
        let (of_query, of_states) = (query.len() / 3, states.len() / 3);
        let alone = StateAttention { batch: 1, ..a };
        let first = [query[..of_query].to_vec(), states[..of_states].to_vec(), key, value];
        assert_eq!(forward(&alone, &first), one[..of_query]);
    }
}
