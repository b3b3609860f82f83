//! Products of matrices.

mod plain;
mod sum;

pub use plain::matmul;
pub(crate) use plain::{matmul_as, matmul_to_f32};
pub(crate) use sum::{Matrix, Products, adds_up, lowered_type, result_type};
