//! Kernels for CubeCL's backends, for operations that Burn does not offer or does by many launches.
//!
//! They are launched below fusion, on contiguous f32 tensors. Their callers are the operations that they implement.

#![allow(clippy::too_many_arguments, reason = "each of a kernel's buffers is an argument")]

mod attention;
mod cast;
mod conv;
mod depthwise;
mod dropout;
mod embedding;
mod flash;
mod fragments;
mod gelu;
mod heads;
mod launch;
mod lora;
mod loss;
mod norm;
mod optimizer;
mod product;
mod softmax;
mod step;
mod sum;
mod warpgroup;

pub(crate) use attention::Attention;
pub(crate) use cast::cast_all;
pub(crate) use conv::Unfold;
pub(crate) use depthwise::Depthwise;
pub(crate) use dropout::{Drop, dropout};
pub(crate) use embedding::embedding_backward;
pub(crate) use flash::Flash;
pub(crate) use fragments::has_fragments;
pub(crate) use gelu::{gelu, gelu_backward};
pub(crate) use heads::Heads;
#[cfg(feature = "cuda")]
pub(crate) use launch::empty;
pub(crate) use launch::{identity, launched, launched_all, launched_as, queue};
pub(crate) use lora::LowRank;
pub(crate) use loss::ClassLoss;
pub(crate) use norm::LayerNorm;
pub(crate) use optimizer::{AdamW, Rates, mix};
pub(crate) use product::{Rounding, matmul, product_shape, sum_of_products};
pub(crate) use softmax::Softmax;
pub(crate) use step::StepControl;
pub(crate) use sum::{column_sums, sum, sum_of_squares};
