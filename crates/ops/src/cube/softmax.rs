//! Attention weights from scores, one cube per row: what lies between the products of attention on matrix units.

use super::launch::{UNITS, cube_each, element, empty, highest_of_cube, row_of_cube, sum_of_cube};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

/// Softmax over the last axis of scores, `[batch, heads, queries, keys]` in f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softmax {
    /// Query `i` sees keys up to `i + offset`; `None` if it sees all.
    pub offset: Option<i64>,
    /// Whether the mask, `[batch, keys]`, is read; it hides keys where it is not 0.
    pub padded: bool,
    /// Type of the weights.
    pub dtype: DType,
}

/// Sizes of a call, in rows and in vectors of the last axis.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
struct Sizes {
    rows: usize,
    queries: usize,
    /// Rows of a sample.
    sample: usize,
    vectors: usize,
    offset: i32,
}

impl Softmax {
    /// Returns the weights in the type of products, and the logarithm of each row's sum of exponentials, `[batch, heads, queries, 1]`.
    pub fn forward(&self, [scores, mask]: [CubeTensor; 2]) -> [CubeTensor; 2] {
        let (scores, mask) = (in_rows(scores), into_contiguous(mask));
        let shape = scores.shape();
        let weights = self.made_like(&scores);
        let sums = empty(&scores, [shape[0], shape[1], shape[2], 1]);
        if scores.meta.num_elements() > 0 {
            let width = self.vector_width([&scores, &weights]);
            let (cubes, sizes, pitches) =
                (cubes(&scores), self.sizes(&scores, width), pitches([&scores, &weights], width));
            let client = scores.client.clone();
            let [x, mask, w, s] = [&scores, &mask, &weights, &sums].map(|x| x.clone().into_tensor_arg());
            let (causal, padded) = (self.offset.is_some(), self.padded);
            let dtype = element(self.dtype);
            softmax_forward::launch(
                &client,
                cubes,
                units(),
                width,
                x,
                mask,
                w,
                s,
                sizes,
                pitches[0],
                pitches[1],
                causal,
                padded,
                dtype,
            );
        }
        [weights, sums]
    }

    /// Returns the gradients of the scores and the weights, both in the type of products. `change` is the gradient of the weights, and
    /// `deltas`, as long as `sums`, is each row's sum of weights times their gradients.
    pub fn backward(&self, [scores, change, sums, deltas, mask]: [CubeTensor; 5]) -> [CubeTensor; 2] {
        let [scores, change] = [scores, change].map(in_rows);
        let [sums, deltas, mask] = [sums, deltas, mask].map(into_contiguous);
        let [d_scores, weights] = [(); 2].map(|()| self.made_like(&scores));
        if scores.meta.num_elements() > 0 {
            let width = self.vector_width([&scores, &change, &d_scores]);
            let (cubes, sizes) = (cubes(&scores), self.sizes(&scores, width));
            let pitches = pitches([&scores, &change, &d_scores], width);
            let client = scores.client.clone();
            let [x, c, s, d, mask] = [&scores, &change, &sums, &deltas, &mask].map(|x| x.clone().into_tensor_arg());
            let [dx, w] = [&d_scores, &weights].map(|x| x.clone().into_tensor_arg());
            let (causal, padded) = (self.offset.is_some(), self.padded);
            let dtype = element(self.dtype);
            softmax_backward::launch(
                &client,
                cubes,
                units(),
                width,
                x,
                c,
                s,
                d,
                mask,
                dx,
                w,
                sizes,
                pitches[0],
                pitches[1],
                pitches[2],
                causal,
                padded,
                dtype,
            );
        }
        [d_scores, weights]
    }

    /// Allocates numbers of the weights' type, with rows as the kernels for products prefer them.
    fn made_like(&self, scores: &CubeTensor) -> CubeTensor {
        empty_device_dtype(scores.client.clone(), scores.device.clone(), scores.shape(), self.dtype)
    }

    /// Number of keys that are read at once. Masks are read key by key.
    fn vector_width<const N: usize>(&self, tensors: [&CubeTensor; N]) -> usize {
        let is_masked = self.padded || self.offset.is_some();
        let keys = tensors[0].shape()[3];
        let is_whole =
            |x: &&CubeTensor| pitch(x).is_multiple_of(4) && x.handle.offset_start.unwrap_or(0).is_multiple_of(16);
        if !is_masked && keys.is_multiple_of(4) && tensors.iter().all(is_whole) { 4 } else { 1 }
    }

    fn sizes(&self, scores: &CubeTensor, width: usize) -> SizesLaunch {
        let shape = scores.shape();
        let (sample, rows) = (shape[1] * shape[2], shape[0] * shape[1] * shape[2]);
        let offset = self.offset.unwrap_or(0).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        SizesLaunch::new(rows, shape[2], sample, shape[3] / width, offset)
    }
}

fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

fn cubes(scores: &CubeTensor) -> CubeCount {
    cube_each(scores.meta.num_elements() / scores.shape()[3].max(1))
}

/// Distance from one row to the next, in elements.
fn pitch(x: &CubeTensor) -> usize {
    x.meta.strides()[2]
}

fn pitches<const N: usize>(tensors: [&CubeTensor; N], width: usize) -> [usize; N] {
    tensors.map(|x| pitch(x) / width)
}

/// Returns a tensor of four axes whose rows all have the same distance, as those of products have, which may be longer than a row.
fn in_rows(x: CubeTensor) -> CubeTensor {
    let (shape, strides) = (x.shape(), x.meta.strides());
    let is_in_rows = strides[3] == 1
        && strides[2] >= shape[3]
        && strides[1] == shape[2] * strides[2]
        && strides[0] == shape[1] * strides[1];
    if is_in_rows { x } else { into_contiguous(x) }
}

/// Whether a key is hidden from the query of a row.
#[cube]
fn is_hidden(
    mask: &Tensor<f32>,
    sizes: &Sizes,
    row: usize,
    key: usize,
    #[comptime] causal: bool,
    #[comptime] padded: bool,
) -> bool {
    let mut hidden = false;
    if causal {
        hidden = key as i32 > (row % sizes.queries) as i32 + sizes.offset;
    }
    if padded {
        hidden = hidden || mask[row / sizes.sample * sizes.vectors + key] != 0.0f32;
    }
    hidden
}

#[cube(launch)]
fn softmax_forward<T: Numeric, N: Size>(
    scores: &Tensor<Vector<f32, N>>,
    mask: &Tensor<f32>,
    weights: &mut Tensor<Vector<T, N>>,
    sums: &mut Tensor<f32>,
    sizes: Sizes,
    pitch: usize,
    pitch_of_weights: usize,
    #[comptime] causal: bool,
    #[comptime] padded: bool,
    #[define(T)] _dtype: ElemType,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let row = row_of_cube();
    let unit = UNIT_POS_X as usize;
    if row < sizes.rows {
        let first = row * pitch;
        let mut tops = Vector::<f32, N>::new(f32::MIN);
        let mut at = unit;
        while at < sizes.vectors {
            if !is_hidden(mask, &sizes, row, at, causal, padded) {
                tops = max(tops, scores[first + at]);
            }
            at += UNITS;
        }
        let mut own = tops.extract(0usize);
        #[unroll]
        for i in 1usize..tops.vector_size() {
            own = max(own, tops.extract(i));
        }
        let top = highest_of_cube(&mut shares, own);
        let tops = Vector::<f32, N>::new(top);
        let mut totals = Vector::<f32, N>::new(0.0f32);
        at = unit;
        while at < sizes.vectors {
            if !is_hidden(mask, &sizes, row, at, causal, padded) {
                totals += (scores[first + at] - tops).exp();
            }
            at += UNITS;
        }
        let mut own = 0.0f32;
        #[unroll]
        for i in 0..totals.vector_size() {
            own += totals.extract(i);
        }
        let total = sum_of_cube(&mut shares, own);
        at = unit;
        while at < sizes.vectors {
            let mut weight = Vector::<f32, N>::new(0.0f32);
            if !is_hidden(mask, &sizes, row, at, causal, padded) {
                weight = (scores[first + at] - tops).exp() / Vector::new(total);
            }
            weights[row * pitch_of_weights + at] = Vector::cast_from(weight);
            at += UNITS;
        }
        if unit == 0 {
            sums[row] = top + total.ln();
        }
    }
}

#[cube(launch)]
fn softmax_backward<T: Numeric, N: Size>(
    scores: &Tensor<Vector<f32, N>>,
    change: &Tensor<Vector<f32, N>>,
    sums: &Tensor<f32>,
    deltas: &Tensor<f32>,
    mask: &Tensor<f32>,
    d_scores: &mut Tensor<Vector<T, N>>,
    weights: &mut Tensor<Vector<T, N>>,
    sizes: Sizes,
    pitch: usize,
    pitch_of_change: usize,
    pitch_of_results: usize,
    #[comptime] causal: bool,
    #[comptime] padded: bool,
    #[define(T)] _dtype: ElemType,
) {
    let row = row_of_cube();
    if row < sizes.rows {
        let (sum, delta) = (Vector::<f32, N>::new(sums[row]), Vector::<f32, N>::new(deltas[row]));
        let mut at = UNIT_POS_X as usize;
        while at < sizes.vectors {
            let mut weight = Vector::<f32, N>::new(0.0f32);
            let mut gradient = Vector::<f32, N>::new(0.0f32);
            if !is_hidden(mask, &sizes, row, at, causal, padded) {
                weight = (scores[row * pitch + at] - sum).exp();
                gradient = weight * (change[row * pitch_of_change + at] - delta);
            }
            weights[row * pitch_of_results + at] = Vector::cast_from(weight);
            d_scores[row * pitch_of_results + at] = Vector::cast_from(gradient);
            at += UNITS;
        }
    }
}
