//! Scaled-dot-product attention that stores no `[queries, keys]` matrix.
//!
//! The forward pass works on tiles of queries against all keys. It keeps the output and the logarithm of each row's sum
//! of exponentials, from which the backward pass recomputes the weights (Dao et al., 2022, FlashAttention).

mod one_query;
mod states;

use crate::matrix::{Matrix, MatrixMut, RightFactor, Threads, add_product, product_by};
use crate::numbers::{Numbers, with_slice};
use crate::random::kept;
use crate::simd::{LANES, exp, halve, max_of, simd_fn, sum_by};
use crate::vector::{assume_written, written};
use rayon::prelude::*;

pub use states::{Projections, StateAttention};

/// Attention: `softmax(q kᵀ / √d_head) v` per head.
///
/// Queries and output are `[batch, queries, heads · d_head]`, keys and values `[batch, keys, heads · d_head]`.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Number of sequences.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Queries per sequence.
    pub queries: usize,
    /// Keys per sequence.
    pub keys: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Whether query `i` sees key `j` only if `j ≤ i + (keys - queries)`.
    pub causal: bool,
    /// Padding mask, `[batch, keys]`, true where a key is padding. A row of weights without a visible key is all zeros.
    pub key_padding: Option<&'a [bool]>,
    /// Probability of dropping a weight.
    pub dropout: f32,
    /// Seed of the dropped weights.
    pub seed: u64,
}

/// Gradients that [`Attention::backward`] returns, shaped as its inputs.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// `[batch, queries, heads · d_head]`.
    pub query: Vec<f32>,
    /// `[batch, keys, heads · d_head]`.
    pub key: Vec<f32>,
    /// `[batch, keys, heads · d_head]`.
    pub value: Vec<f32>,
}

/// Number of queries in a tile. Its scores, 64 · 1500 · 4 bytes for Whisper's encoder, stay in a core's L2 cache beside
/// the keys; from 32 to 128 queries the speed is the same within 5 %.
const TILE: usize = 64;

/// Number of queries in a piece of parallel work of the forward pass.
const PIECE: usize = 16 * TILE;

/// One head of one sequence: rows of `d_head` elements, `width` apart.
#[derive(Clone, Copy)]
struct Head<'a> {
    attention: Attention<'a>,
    index: usize,
    padding: Option<&'a [bool]>,
}

impl<'a> Attention<'a> {
    /// Returns the output and the logarithm of each row's sum of exponentials, `[batch, heads, queries]`.
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    #[allow(unsafe_code)]
    pub fn forward(&self, query: &[f32], key: &[f32], value: &[f32]) -> (Vec<f32>, Vec<f32>) {
        self.check(query.len(), key.len(), value.len());
        if self.queries == 1 {
            return self.forward_one(query, key, value);
        }
        let mut sums = vec![0.0; self.batch * self.heads * self.queries];
        // SAFETY: the blocks cover the output, and `Head::forward` writes every row of its block.
        let out = unsafe {
            written(query.len(), |out| {
                let blocks = self.blocks(MatrixMut::unwritten(out, self.batch * self.queries, self.width()), PIECE);
                let sums = sums.chunks_mut(self.queries.max(1)).flat_map(|row| row.chunks_mut(PIECE));
                let work: Vec<_> = blocks.into_iter().zip(sums).collect();
                work.into_par_iter().for_each(|((head, first, block), sums)| {
                    self.head(head).forward(first, query, key, value, block, sums);
                });
            })
        };
        (out, sums)
    }

    /// As [`forward`](Self::forward), for one query per sequence. A task computes all heads of a sequence, unless there are
    /// too few sequences for the threads.
    fn forward_one(&self, query: &[f32], key: &[f32], value: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let tasks = (2 * rayon::current_num_threads()).div_ceil(self.batch.max(1));
        let heads = self.heads.div_ceil(tasks.clamp(1, self.heads));
        let (mut out, mut sums) = (vec![0.0; query.len()], vec![0.0; self.batch * self.heads]);
        let sequences = out.par_chunks_mut(self.width()).zip(sums.par_chunks_mut(self.heads)).enumerate();
        sequences.for_each(|(sequence, (out, sums))| {
            let parts = out.par_chunks_mut(heads * self.d_head).zip(sums.par_chunks_mut(heads)).enumerate();
            parts.for_each(|(part, (out, sums))| {
                let first = part * heads;
                let query = &query[sequence * self.width() + first * self.d_head..][..out.len()];
                let rows = sequence * self.keys * self.width() + first * self.d_head;
                self.attend(sequence * self.heads + first, query, [&key[rows..], &value[rows..]], out, sums);
            });
        });
        (out, sums)
    }

    /// Computes one query of some heads of a sequence, of which `first` is the first among all heads of the batch. `key`
    /// and `value` begin with their first row of that head.
    fn attend(&self, first: usize, query: &[f32], [key, value]: [&[f32]; 2], out: &mut [f32], sums: &mut [f32]) {
        let mut weights = vec![0.0; sums.len() * self.keys];
        one_query::scores(query, key, self.width(), self.d_head, self.head(first).scale(), &mut weights);
        let mut factors = vec![0.0; sums.len()];
        for (index, ((weights, sum), factor)) in weights.chunks_mut(self.keys).zip(sums).zip(&mut factors).enumerate() {
            let total;
            (*sum, total) = self.head(first + index).normalise(0, weights);
            *factor = if total == 0.0 { 0.0 } else { total.recip() };
        }
        one_query::add_weighted(&weights, value, self.width(), self.d_head, out);
        for (out, factor) in out.chunks_mut(self.d_head).zip(factors) {
            out.iter_mut().for_each(|x| *x *= factor);
        }
    }

    /// Returns the gradients, given queries, keys and values, the output, its gradient and the row sums of
    /// [`forward`](Self::forward).
    ///
    /// # Panics
    /// If the length of a slice differs from its shape.
    #[allow(unsafe_code)]
    pub fn backward(&self, inputs: [Numbers; 3], out: Numbers, sums: &[f32], d_out: &[f32]) -> Gradients {
        let [query, key, value] = inputs.map(Numbers::len);
        self.check(query, key, value);
        assert!(out.len() == query && d_out.len() == query, "output and gradient are shaped as the queries");
        assert_eq!(sums.len(), self.batch * self.heads * self.queries, "row sums are [batch, heads, queries]");
        let (mut d_key, mut d_value) = (Vec::new(), Vec::new());
        // SAFETY: the blocks cover the three gradients, and `Head::backward` writes every row of its blocks.
        let d_query = unsafe {
            written(query, |d_query| {
                d_key = written(key, |d_key| {
                    d_value = written(value, |d_value| {
                        let (q_rows, k_rows) = (self.batch * self.queries, self.batch * self.keys);
                        let queries = self.blocks(MatrixMut::unwritten(d_query, q_rows, self.width()), usize::MAX);
                        let keys = self.key_blocks(MatrixMut::unwritten(d_key, k_rows, self.width()));
                        let values = self.key_blocks(MatrixMut::unwritten(d_value, k_rows, self.width()));
                        let work: Vec<_> = queries.into_iter().zip(keys).zip(values).collect();
                        work.into_par_iter().for_each(|(((head, _, d_query), d_key), d_value)| {
                            let rows = &sums[head * self.queries..][..self.queries];
                            self.head(head).backward(inputs, out, d_out, rows, [d_query, d_key, d_value]);
                        });
                    });
                });
            })
        };
        Gradients { query: d_query, key: d_key, value: d_value }
    }

    fn width(&self) -> usize {
        self.heads * self.d_head
    }

    /// Checks the lengths of queries, keys and values.
    fn check(&self, query: usize, key: usize, value: usize) {
        // Without queries no block would write the keys' gradients, and without keys none the queries'.
        assert!(self.queries > 0 && self.keys > 0, "attention needs a query and a key");
        assert_eq!(query, self.batch * self.queries * self.width(), "queries are [batch, queries, width]");
        assert_eq!(key, self.batch * self.keys * self.width(), "keys are [batch, keys, width]");
        assert_eq!(value, key, "values are shaped as the keys");
        if let Some(padding) = self.key_padding {
            assert_eq!(padding.len(), self.batch * self.keys, "key padding is [batch, keys]");
        }
    }

    fn head(&self, index: usize) -> Head<'a> {
        let sequence = index / self.heads;
        let padding = self.key_padding.map(|padding| &padding[sequence * self.keys..][..self.keys]);
        Head { attention: *self, index, padding }
    }

    /// Splits every head of every sequence into pieces of at most `piece` queries: (head, first query, rows).
    fn blocks<'m>(&self, rows: MatrixMut<'m>, piece: usize) -> Vec<(usize, usize, MatrixMut<'m>)> {
        let mut blocks = Vec::new();
        for (sequence, rows) in rows.split(self.queries.max(1), self.width()).into_iter().enumerate() {
            let pieces = self.queries.div_ceil(piece).max(1);
            for (i, block) in rows.split(piece, self.d_head).into_iter().enumerate() {
                blocks.push((sequence * self.heads + i / pieces, i % pieces * piece.min(self.queries), block));
            }
        }
        blocks
    }

    fn key_blocks<'m>(&self, rows: MatrixMut<'m>) -> Vec<MatrixMut<'m>> {
        let sequences = rows.split(self.keys.max(1), self.width());
        sequences.into_iter().flat_map(|rows| rows.split(usize::MAX, self.d_head)).collect()
    }
}

impl<'a> Head<'a> {
    /// Returns rows `start..start + count` of this head in a `[batch, time, width]` slice.
    fn rows<'s, T>(&self, data: &'s [T], time: usize, start: usize, count: usize) -> Matrix<'s, T> {
        let a = &self.attention;
        Matrix::strided(&data[self.first_element(time, start)..], count, a.d_head, a.width())
    }

    /// Index of this head's first element of row `start` in a `[batch, time, width]` slice.
    fn first_element(&self, time: usize, start: usize) -> usize {
        let a = &self.attention;
        let (sequence, head) = (self.index / a.heads, self.index % a.heads);
        (sequence * time + start) * a.width() + head * a.d_head
    }

    /// Returns a factor whose columns are this head's keys or values, for products with each tile of `queries`.
    fn columns<'s>(&self, data: Numbers<'s>, queries: usize) -> RightFactor<'s> {
        let columns = self.keys(data).transposed();
        if queries > TILE { columns.shared() } else { columns }
    }

    /// Returns a factor whose rows are this head's keys or values, for products with each tile of `queries`.
    fn factor<'s>(&self, data: Numbers<'s>, queries: usize) -> RightFactor<'s> {
        let rows = self.keys(data);
        // A causal tile sees some of the rows.
        if queries > TILE && !self.attention.causal { rows.shared() } else { rows }
    }

    /// Returns this head's keys or values, `[keys, d_head]`.
    fn keys<'s>(&self, data: Numbers<'s>) -> RightFactor<'s> {
        let a = &self.attention;
        let first = self.first_element(a.keys, 0);
        RightFactor::new(data.slice(first..data.len()), a.keys, a.d_head, a.width())
    }

    /// Returns rows of this head in f32, `[count, d_head]`.
    fn wide_rows(&self, data: Numbers, time: usize, start: usize, count: usize) -> Vec<f32> {
        with_slice!(data, |data| self.rows(data, time, start, count).widened())
    }

    fn scale(&self) -> f32 {
        (self.attention.d_head as f32).powf(-0.5)
    }

    /// Number of keys that query `i` may see, apart from padding.
    fn visible(&self, i: usize) -> usize {
        let a = &self.attention;
        if a.causal { (i + a.keys + 1).saturating_sub(a.queries).min(a.keys) } else { a.keys }
    }

    /// Hides padded keys of query `i`: sets their scores to `-∞`.
    fn hide(&self, scores: &mut [f32]) {
        if let Some(padding) = self.padding {
            for (score, padded) in scores.iter_mut().zip(padding) {
                if *padded {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// Whether query `i` sees any key.
    fn sees_any(&self, i: usize) -> bool {
        let visible = self.visible(i);
        self.padding.map_or(visible > 0, |padding| padding[..visible].contains(&false))
    }

    /// Index of query `i`'s first weight among all weights, which dropout hashes.
    fn first_weight(&self, i: usize) -> u64 {
        ((self.index * self.attention.queries + i) * self.attention.keys) as u64
    }

    fn drop_weights(&self, i: usize, weights: &mut [f32]) {
        let a = &self.attention;
        if a.dropout > 0.0 {
            let first = self.first_weight(i);
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight *= kept(a.seed, first + j as u64, a.dropout);
            }
        }
    }

    /// Computes queries `first..first + out.rows()`.
    #[allow(unsafe_code)]
    fn forward(&self, first: usize, query: &[f32], key: &[f32], value: &[f32], mut out: MatrixMut, sums: &mut [f32]) {
        let a = &self.attention;
        let (keys, values) =
            (self.columns(Numbers::F32(key), out.rows()), self.factor(Numbers::F32(value), out.rows()));
        let mut scores = vec![0.0; TILE.min(out.rows()) * a.keys];
        for start in (0..out.rows()).step_by(TILE) {
            let count = TILE.min(out.rows() - start);
            // Later tiles of a causal head see more keys; keys that no query of this tile sees are skipped.
            let seen = self.visible(first + start + count - 1);
            let scores = &mut scores[..count * seen];
            let queries = self.rows(query, a.queries, first + start, count);
            product_by(MatrixMut::new(scores, count, seen), queries, &keys, self.scale(), Threads::One);
            let mut totals = [0.0; TILE];
            for (row, total) in totals.iter_mut().enumerate().take(count) {
                let i = first + start + row;
                (sums[start + row], *total) = self.normalise(i, &mut scores[row * seen..][..seen]);
            }
            product_by(out.rows_from(start, count), Matrix::new(scores, count, seen), &values, 1.0, Threads::One);
            for (row, total) in totals.iter().enumerate().take(count) {
                let factor = if *total == 0.0 { 0.0 } else { total.recip() };
                // SAFETY: the product above has written this row.
                let row = unsafe { assume_written(out.row(start + row)) };
                row.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }

    /// Replaces the scores of query `i` by exponentials, with dropout. Returns the logarithm of the sum that
    /// [`Attention::forward`] returns, and the sum to divide by; it is 0 if the query sees no key.
    fn normalise(&self, i: usize, scores: &mut [f32]) -> (f32, f32) {
        self.hide(scores);
        let (most, mut total) = exponentials(scores, self.visible(i));
        if total == 0.0 && self.sees_any(i) {
            // None of its scores is above -∞, although not all keys were hidden.
            total = f32::NAN;
        }
        self.drop_weights(i, scores);
        (if total == 0.0 { f32::INFINITY } else { most + total.ln() }, total)
    }

    fn backward(
        &self,
        [query, key, value]: [Numbers; 3],
        out: Numbers,
        d_out: &[f32],
        sums: &[f32],
        [mut d_query, mut d_key, mut d_value]: [MatrixMut; 3],
    ) {
        let a = &self.attention;
        let [key_columns, value_columns] = [key, value].map(|data| self.columns(data, a.queries));
        let keys = self.factor(key, a.queries);
        // Sums over tiles.
        let (mut dk, mut dv) = (vec![0.0; a.keys * a.d_head], vec![0.0; a.keys * a.d_head]);
        let (mut weights, mut d_scores) = (vec![0.0; TILE * a.keys], vec![0.0; TILE * a.keys]);
        for start in (0..a.queries).step_by(TILE) {
            let count = TILE.min(a.queries - start);
            let seen = self.visible(start + count - 1);
            let (weights, d_scores) = (&mut weights[..count * seen], &mut d_scores[..count * seen]);
            let [queries, outs] = [query, out].map(|data| self.wide_rows(data, a.queries, start, count));
            let [queries, outs] = [&queries, &outs].map(|rows| Matrix::new(rows, count, a.d_head));
            let d_outs = self.rows(d_out, a.queries, start, count);
            product_by(MatrixMut::new(weights, count, seen), queries, &key_columns, self.scale(), Threads::One);
            product_by(MatrixMut::new(d_scores, count, seen), d_outs, &value_columns, 1.0, Threads::One);
            for row in 0..count {
                let i = start + row;
                let (weights, d_scores) = (&mut weights[row * seen..][..seen], &mut d_scores[row * seen..][..seen]);
                self.hide(weights);
                // Σ weight · its gradient = output · its gradient, dropout or not.
                let delta = dot(outs.row(row), d_outs.row(row));
                self.drop_weights(i, d_scores);
                softmax_backward(weights, d_scores, self.visible(i), sums[i], delta, self.scale());
                self.drop_weights(i, weights);
            }
            let weights = Matrix::new(weights, count, seen);
            let d_scores = Matrix::new(d_scores, count, seen);
            add_product(&mut dv, a.d_head, weights.transposed(), d_outs, 1.0, Threads::One);
            add_product(&mut dk, a.d_head, d_scores.transposed(), queries, 1.0, Threads::One);
            product_by(d_query.rows_from(start, count), d_scores, &keys, 1.0, Threads::One);
        }
        for (gradient, sum) in [(&mut d_key, &dk), (&mut d_value, &dv)] {
            for (t, row) in sum.chunks(a.d_head).enumerate() {
                for (to, from) in gradient.row(t).iter_mut().zip(row) {
                    to.write(*from);
                }
            }
        }
    }
}

simd_fn! {
    fn dot<S>(a: &[f32], b: &[f32]) -> f32 {
        let b = &b[..a.len()];
        sum_by(a.len(), |i| a[i] * b[i])
    }
}

simd_fn! {
    /// Replaces the first `visible` scores by `exp(score - maximum)` and the rest by 0. Returns (maximum, sum). The sum
    /// is NaN if a score is NaN or +∞, and 0 if none is above -∞.
    fn exponentials<S>(scores: &mut [f32], visible: usize) -> (f32, f32) {
        let (seen, hidden) = scores.split_at_mut(visible);
        hidden.fill(0.0);
        let most = max_of(seen);
        if most == f32::NEG_INFINITY {
            seen.fill(0.0);
            return (most, 0.0);
        }
        // In the order of `sum_by`.
        let mut sums = [0.0_f32; LANES];
        let (chunks, rest) = seen.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (score, sum) in chunk.iter_mut().zip(&mut sums) {
                *score = exp::<S>(*score - most);
                *sum += *score;
            }
        }
        for (score, sum) in rest.iter_mut().zip(&mut sums) {
            *score = exp::<S>(*score - most);
            *sum += *score;
        }
        (most, halve(sums, |a, b| a + b))
    }
}

simd_fn! {
    /// Replaces scores by weights, `exp(score - sum)`, and gradients of weights by those of scores, times `scale`:
    /// `weight · (gradient - delta) · scale`. Beyond `visible` both become 0.
    fn softmax_backward<S>(scores: &mut [f32], gradients: &mut [f32], visible: usize, sum: f32, delta: f32, scale: f32) {
        let (seen, hidden) = scores.split_at_mut(visible);
        let (seen_gradients, hidden_gradients) = gradients.split_at_mut(visible);
        hidden.fill(0.0);
        hidden_gradients.fill(0.0);
        for (score, gradient) in seen.iter_mut().zip(seen_gradients) {
            let weight = exp::<S>(*score - sum);
            *score = weight;
            *gradient = weight * (*gradient - delta) * scale;
        }
    }
}

#[cfg(test)]
mod tests;
