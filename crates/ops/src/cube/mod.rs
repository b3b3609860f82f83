//! Kernels for CubeCL's backends, for operations that Burn does not offer or does by many launches.
//!
//! They are launched below fusion, on contiguous f32 tensors. Their callers are the operations that they implement.

#![allow(clippy::too_many_arguments, reason = "each of a kernel's buffers is an argument")]

mod attention;
mod conv;
mod depthwise;
mod dropout;
mod embedding;
mod launch;
mod lora;
mod loss;
mod norm;
mod optimizer;
mod product;
mod step;
mod sum;

pub(crate) use attention::Attention;
pub(crate) use conv::Unfold;
pub(crate) use depthwise::Depthwise;
pub(crate) use dropout::{Drop, dropout};
pub(crate) use embedding::embedding_backward;
#[cfg(feature = "cuda")]
pub(crate) use launch::empty;
pub(crate) use launch::{launched, launched_all, launched_as};
pub(crate) use lora::LowRank;
pub(crate) use loss::ClassLoss;
pub(crate) use norm::LayerNorm;
pub(crate) use optimizer::{AdamW, Rates, mix};
pub(crate) use product::{Rounding, matmul, product_shape};
pub(crate) use step::StepControl;
pub(crate) use sum::{sum, sum_of_squares};
