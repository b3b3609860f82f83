//! Losses, returned as a sum and a count so that a caller can average over more than one batch exactly.

mod cross_entropy;
mod distillation;
mod linear_cross_entropy;
mod output_layer;

pub use cross_entropy::{CrossEntropyOptions, LossSum, cross_entropy};
pub use distillation::{Distillation, Taught, linear_distillation};
pub use linear_cross_entropy::linear_cross_entropy;
