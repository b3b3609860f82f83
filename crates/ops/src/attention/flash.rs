//! Attention by kernels for matrix units, on cards that have the instructions that they are made of.

use crate::capacity::properties;
use crate::casts::mask_numbers;
use crate::cube;
use crate::device::Backing;
use burn::tensor::{Bool, DType, Device, Tensor};

/// Kernels for matrix units, and the mask that they read.
pub(super) struct Flash {
    kernels: cube::Flash,
    /// Any tensor if there is none, because then it is not read.
    mask: Tensor<4>,
}

/// Whether the device has kernels for this type of products and width of heads.
pub(super) fn takes(device: &Device, dtype: DType, d_head: usize) -> bool {
    let properties = || properties(device).is_some_and(|found| cube::Flash::takes(&found, dtype, d_head));
    Backing::of(device) == Backing::Cuda && properties()
}

impl Flash {
    /// Returns the kernels for these factors, if there are any. `padding` is true where a key is hidden; `drop` is a probability and a seed.
    pub fn new(
        causal: bool,
        padding: Option<&Tensor<2, Bool>>,
        drop: Option<(f64, u64)>,
        [query, key, _]: &[Tensor<4>; 3],
    ) -> Option<Self> {
        let ([.., queries, d_head], keys) = (query.dims(), key.dims()[2]);
        let causal = causal && queries > 1;
        if !takes(&query.device(), query.dtype(), d_head) || (causal && queries > keys) {
            return None;
        }
        let kernels = cube::Flash {
            causal,
            padded: padding.is_some(),
            drop: drop.map(|(p, seed)| cube::Drop::new(p, seed)),
            dtype: query.dtype(),
        };
        let mask = padding.map_or_else(|| query.clone(), |mask| mask_numbers(mask.clone()));
        Some(Self { kernels, mask })
    }

    /// Returns the output, `[batch, queries, heads · d_head]` in `dtype` if that is the factors', and otherwise in f32, and the logarithm of each
    /// query's sum of exponentials, `[batch, heads, queries, 1]`.
    pub fn forward(self, factors: [Tensor<4>; 3], dtype: DType) -> (Tensor<3>, Tensor<4>) {
        let kernels = self.kernels;
        let dtype = if dtype == kernels.dtype { dtype } else { DType::F32 };
        let [batch, heads, queries, d_head] = factors[0].dims();
        let out = (vec![batch, queries, heads * d_head].into(), dtype);
        let sums = ([batch, heads, queries, 1].into(), DType::F32);
        let [query, key, value] = factors;
        let inputs = [query, key, value, self.mask].map(Tensor::into_dispatch);
        let run = move |inputs| kernels.forward(inputs, dtype);
        let [out, sums] = cube::launched_as("flash", inputs, [out, sums], run);
        (Tensor::from_dispatch(out), Tensor::from_dispatch(sums))
    }

    /// Returns the gradients of queries, keys and values, `[batch, time, heads · d_head]` in the type of `out`. `d_out` is split as the factors are, and
    /// `scale` is what the queries were multiplied by.
    pub fn backward(
        self,
        factors: [Tensor<4>; 3],
        (out, sums): (Tensor<3>, Tensor<4>),
        d_out: Tensor<4>,
        scale: f64,
    ) -> [Tensor<3>; 3] {
        let shapes = factors.each_ref().map(|x| {
            let [batch, heads, time, d_head] = x.dims();
            (vec![batch, time, heads * d_head].into(), out.dtype())
        });
        let [query, key, value] = factors.map(Tensor::into_dispatch);
        let [mask, sums, d_out] = [self.mask, sums, d_out].map(Tensor::into_dispatch);
        let kernels = self.kernels;
        let run = move |[query, key, value, mask, out, sums, d_out]: [_; 7]| {
            kernels.backward([query, key, value, mask], [out, sums, d_out], scale as f32)
        };
        let inputs = [query, key, value, mask, out.into_dispatch(), sums, d_out];
        cube::launched_as("flash_backward", inputs, shapes, run).map(Tensor::from_dispatch)
    }
}
