//! Heads side by side, as linear maps make them, and one after the other, as products take them.

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::host;
use burn::tensor::{DType, Tensor};

/// Splits heads of tensors, `[batch, time, heads · d_head]`, multiplies each tensor by its factor and casts it to `dtype`; returns `[batch,
/// heads, time, d_head]`. One launch on CubeCL.
pub(super) fn split<const N: usize>(
    tensors: [Tensor<3>; N],
    heads: usize,
    factors: [f64; N],
    dtype: DType,
) -> [Tensor<4>; N] {
    #[cfg(feature = "cube")]
    if Backing::of(&tensors[0].device()).is_cube() {
        let shapes = tensors.each_ref().map(|x| {
            let [batch, time, width] = x.dims();
            vec![batch, heads, time, width / heads]
        });
        return exchanged(tensors, shapes, cube::Heads { heads, split: true, factors: narrow(factors), dtype });
    }
    let mut factors = factors.into_iter();
    tensors.map(|x| {
        let [batch, time, width] = x.dims();
        let x = scaled(x, factors.next()).reshape([batch, time, heads, width / heads]);
        host::restored(x.swap_dims(1, 2), dtype)
    })
}

/// Merges heads of tensors, `[batch, heads, time, d_head]`, and multiplies each tensor by its factor; returns `[batch, time, heads ·
/// d_head]` in f32. One launch on CubeCL.
pub(super) fn merge<const N: usize>(tensors: [Tensor<4>; N], factors: [f64; N]) -> [Tensor<3>; N] {
    #[cfg(feature = "cube")]
    if Backing::of(&tensors[0].device()).is_cube() {
        let heads = tensors[0].dims()[1];
        let shapes = tensors.each_ref().map(|x| {
            let [batch, heads, time, d_head] = x.dims();
            vec![batch, time, heads * d_head]
        });
        let (factors, dtype) = (narrow(factors), DType::F32);
        return exchanged(tensors, shapes, cube::Heads { heads, split: false, factors, dtype });
    }
    let mut factors = factors.into_iter();
    tensors.map(|x| {
        let [batch, heads, time, d_head] = x.dims();
        scaled(x, factors.next()).swap_dims(1, 2).reshape([batch, time, heads * d_head])
    })
}

/// Returns a tensor times a factor, in f32.
fn scaled<const D: usize>(x: Tensor<D>, factor: Option<f64>) -> Tensor<D> {
    let x = host::f32(x);
    match factor {
        None | Some(1.0) => x,
        Some(factor) => x.mul_scalar(factor),
    }
}

#[cfg(feature = "cube")]
fn narrow<const N: usize>(factors: [f64; N]) -> Vec<f32> {
    factors.iter().map(|factor| *factor as f32).collect()
}

#[cfg(feature = "cube")]
fn exchanged<const N: usize, const D: usize, const E: usize>(
    tensors: [Tensor<D>; N],
    shapes: [Vec<usize>; N],
    heads: cube::Heads,
) -> [Tensor<E>; N] {
    let outputs = shapes.map(|shape| (shape.into(), heads.dtype));
    // A kernel reads numbers of one type.
    let dtype = tensors[0].dtype();
    let dtype = if tensors.iter().all(|x| x.dtype() == dtype) { dtype } else { DType::F32 };
    let inputs = tensors.map(|x| host::restored(x, dtype).into_dispatch());
    cube::launched_as("heads", inputs, outputs, move |inputs| heads.exchange(inputs)).map(Tensor::from_dispatch)
}
