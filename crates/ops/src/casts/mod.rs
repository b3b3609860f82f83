//! Casts to half precision that several products share.
//!
//! On a CPU kernels round as they read, but what the backward pass needs of inputs is kept rounded.
//!
//! On CubeCL each cast is a launch. So the input of queries, keys and values is cast once, and a weight is cast once for all passes of
//! an optimizer step; after the step, the weights that it replaced are cast many at a time.

mod kept;
#[cfg(feature = "cube")]
mod known;

#[cfg(feature = "cube")]
use crate::device::Backing;
use crate::graph::AnyFloat;
#[cfg(feature = "cube")]
use burn::tensor::Bool;
use burn::tensor::{DType, Tensor};

pub(crate) use kept::{kept_input, known, remember};

/// Type that products have read a weight in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastType(DType);

/// Returns an input without autodiff in the type `dtype`. It is cast once for all products in a row that read it.
pub(crate) fn input_cast<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if Backing::of(&x.device()).is_cube() {
        return known::input(x, dtype);
    }
    x.cast(dtype)
}

/// Returns a weight without autodiff in the type `dtype`. In training it is cast once, until it is replaced.
pub(crate) fn weight_cast(weight: Tensor<2>, dtype: DType, in_training: bool) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if in_training && Backing::of(&weight.device()).is_cube() {
        return known::weight(weight, dtype);
    }
    let _ = in_training;
    weight.cast(dtype)
}

/// Returns a mask without autodiff as f32 numbers, `[.., rows, columns]`, 1 where it is true. They are made once for all attentions
/// in a row that read the mask.
#[cfg(feature = "cube")]
pub(crate) fn mask_numbers<const D: usize>(mask: Tensor<2, Bool>) -> Tensor<D> {
    known::mask(mask)
}

/// Forgets the cast of a weight without autodiff, which is about to be replaced. Returns the type that products have read it in, if
/// they shared a cast.
pub fn forget_cast<const D: usize>(weight: &Tensor<D>) -> Option<CastType> {
    #[cfg(feature = "cube")]
    if Backing::of(&weight.device()).is_cube() {
        return known::forget(weight.clone()).map(CastType);
    }
    let _ = weight;
    None
}

/// Casts weights without autodiff for the products that will read them, by few kernels.
pub fn cast_weights(weights: Vec<(CastType, AnyFloat)>) {
    #[cfg(feature = "cube")]
    known::cast_all(weights.into_iter().map(|(CastType(dtype), weight)| (dtype, weight)).collect());
    #[cfg(not(feature = "cube"))]
    drop(weights);
}

/// Time in which this thread computes in half precision. At its end, the casts of weights that were not used in it are forgotten: those
/// of models that are gone.
pub(crate) struct Scope;

impl Scope {
    pub fn begin() -> Self {
        #[cfg(feature = "cube")]
        known::begin();
        Self
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        kept::forget();
        #[cfg(feature = "cube")]
        known::end();
    }
}
