//! Attention of one query per sequence, as when a decoder writes a token.
//!
//! Then all keys and values are read for one query, and reading them is what takes the time: 18 MB per sequence and token
//! for Whisper tiny's audio. So they are read in the order in which they lie in memory, all heads of a key together; a
//! product per head would jump from row to row.

use crate::simd::{simd_fn, sum_by};

simd_fn! {
    /// Writes `scale · query · key` of each head, `[heads, keys]`. Rows of `key` are `stride` apart.
    pub(super) fn scores<S>(query: &[f32], key: &[f32], stride: usize, d_head: usize, scale: f32, scores: &mut [f32]) {
        let heads = query.len() / d_head;
        let keys = scores.len() / heads;
        for k in 0..keys {
            let row = &key[k * stride..][..query.len()];
            for h in 0..heads {
                let (query, row) = (&query[h * d_head..][..d_head], &row[h * d_head..][..d_head]);
                scores[h * keys + k] = scale * sum_by(d_head, |c| query[c] * row[c]);
            }
        }
    }
}

simd_fn! {
    /// Adds rows of `value`, `stride` apart, each head times its weight. Four rows at a time, so that the sums are read and
    /// written less often.
    pub(super) fn add_weighted<S>(weights: &[f32], value: &[f32], stride: usize, d_head: usize, sums: &mut [f32]) {
        let heads = sums.len() / d_head;
        let keys = weights.len() / heads;
        let mut k = 0;
        while k < keys {
            let rows = &value[k * stride..];
            for h in 0..heads {
                let sums = &mut sums[h * d_head..][..d_head];
                let weights = &weights[h * keys + k..];
                if k + 4 <= keys {
                    let a = &rows[h * d_head..][..d_head];
                    let b = &rows[stride + h * d_head..][..d_head];
                    let c = &rows[2 * stride + h * d_head..][..d_head];
                    let d = &rows[3 * stride + h * d_head..][..d_head];
                    for n in 0..d_head {
                        let sum = S::fma(weights[1], b[n], S::fma(weights[0], a[n], sums[n]));
                        sums[n] = S::fma(weights[3], d[n], S::fma(weights[2], c[n], sum));
                    }
                } else {
                    for i in 0..keys - k {
                        let row = &rows[i * stride + h * d_head..][..d_head];
                        for n in 0..d_head {
                            sums[n] = S::fma(weights[i], row[n], sums[n]);
                        }
                    }
                }
            }
            k += 4;
        }
    }
}
