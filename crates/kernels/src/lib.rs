//! Fused training operations for CPUs: slices of `f32` in, vectors of `f32` out, with handwritten backward passes. The
//! crate also has the filter bank of log-mel features, and [`seeds`] derives seeds for all crates above.
//!
//! This crate knows no tensors and no autodiff: `undertone-ops` binds these functions to Burn. So all `unsafe` code of
//! Undertone's arithmetic is in one small crate that builds in seconds and can run under a sanitizer.
//!
//! It is not a linear-algebra library: matrix products are the `gemm` crate's, behind [`matrix::product`].
//!
//! Matrices are row-major; `[rows, columns]` is written beside each slice. Work is split into pieces whose size does
//! not depend on the number of threads, and each piece is summed in one order. So results have the same bits on any
//! number of threads. The instruction set (AVX-512, AVX2 with FMA, or the target's baseline) is selected at run time.
//!
//! ```
//! use undertone_kernels::numbers::Numbers;
//! use undertone_kernels::{activation, linear};
//!
//! // Two rows through a layer of two outputs: `x · weightᵀ + bias`, then GELU.
//! let x = [1.0, 2.0, 3.0, 4.0];
//! let y = linear::forward(&x, Numbers::F32(&[1.0, 0.0, 0.0, 1.0]), Some(&[0.5, -0.5]), 2, 2);
//! assert_eq!(y, [1.5, 1.5, 3.5, 3.5]);
//! assert!((activation::gelu(&y)[0] - 1.399_8).abs() < 1e-4);
//! ```

pub mod activation;
pub mod adafactor;
pub mod adamw;
pub mod attention;
mod bf16;
pub mod conv;
pub mod depthwise;
pub mod distillation;
pub mod embedding;
mod few_rows;
pub mod filter_bank;
pub mod linear;
mod log_sum_exp;
pub mod lora;
pub mod loss;
pub mod matrix;
pub mod norm;
pub mod numbers;
pub mod pool;
mod random;
#[cfg(target_arch = "x86_64")]
mod registers;
pub mod roofline;
pub mod seeds;
mod simd;
#[cfg(test)]
mod testing;
mod transpose;
mod vector;

pub use log_sum_exp::{argmax, log_sum_exp};
