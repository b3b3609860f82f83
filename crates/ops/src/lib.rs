//! Differentiable operations for Undertone's models, and the devices they run on.
//!
//! This is the only crate that may name a backend. Every operation has one signature and a reference body composed of
//! Burn's own operations. Callers do not see which body runs:
//!
//! - On the CPU, operations run as fused kernels of `undertone-kernels`, each with its own backward pass and tested
//!   against the reference body. [`set_kernels`] selects the reference bodies instead.
//! - On CubeCL's backends (CUDA, Vulkan, Metal), kernels for CubeCL in `cube` replace Burn's operations where those
//!   would keep more memory, launch more kernels or compute something else.
//! - On LibTorch, the operations that dominate a step are LibTorch's own, in `libtorch`.
//!
//! The results of a training step stay on the accelerator until they are read. [`StepControl`] decides there whether
//! parameters are updated, and [`read_behind`] copies numbers to the host without blocking.
//!
//! This is not a layer library: operations take tensors, hold no parameters and know no model.
//!
//! Shapes are written as `[batch, time, d_model]`. Linear weights are `[out, in]`, as Hugging Face stores them.
//!
//! ```
//! use burn::tensor::Tensor;
//! use undertone_ops::{AttentionOptions, DeviceSpec, attention};
//!
//! let device = "cpu".parse::<DeviceSpec>()?.resolve()?;
//! let x = Tensor::<3>::ones([2, 5, 8], &device);
//! let y = attention(x.clone(), x.clone(), x, AttentionOptions::new(2).causal());
//! assert_eq!(y.dims(), [2, 5, 8]);
//! # Ok::<(), undertone_ops::DeviceError>(())
//! ```

mod activation;
mod attention;
mod capacity;
mod casts;
mod checkpoint;
mod conv;
mod ctc;
#[cfg(feature = "cube")]
mod cube;
mod depthwise;
mod device;
#[cfg_attr(feature = "tch", allow(deprecated))]
mod exact;
#[cfg(feature = "cube")]
mod fusion;
mod graph;
mod groups;
mod hook;
mod host;
#[cfg(feature = "autotune")]
mod kernel_cache;
mod launches;
#[cfg(feature = "tch")]
#[allow(deprecated, reason = "as the feature says")]
mod libtorch;
mod linear;
mod lora;
mod lora_linear;
mod loss;
mod nccl;
mod norm;
#[cfg(feature = "cuda")]
mod nvrtc;
mod optimizer;
mod precision;
mod product;
mod random;
mod read;
mod reshape;
mod rotary;
mod settled;
mod sigmoid;
mod step;
mod step_rules;
mod sum;
#[cfg(test)]
mod testing;

pub use activation::{dropout, gelu, residual_dropout};
pub use attention::{AttentionOptions, attention, prefers_states, scores_at_once, state_attention};
pub use capacity::{Capacity, Implementation, kept_bytes};
pub use casts::{CastType, cast_weights, forget_cast};
pub use checkpoint::checkpoint;
pub use conv::conv1d;
pub use ctc::{ctc_greedy, ctc_loss, linear_ctc_loss};
pub use depthwise::depthwise_conv1d;
pub use device::{
    DeviceError, DeviceSpec, backends, check_backend, compiles_kernels, driver_name, on_upload_stream, runs_on_host,
};
pub use exact::{exactly_halved, prefers_half};
pub use graph::{AnyFloat, fork};
pub use groups::{add, average, sum_of_squares};
pub use hook::{BackwardHook, GradientsSoFar, with_backward_hook};
pub use host::{Kernels, on_pool, runs_ahead, set_kernels};
pub use launches::{LaunchCounter, Launched};
pub use linear::{embedding, linear, linear_lowered};
pub use lora::lora_bank;
pub use lora_linear::{LoraGates, LoraUpdate, lora_linear, lora_linear_lowered};
pub use loss::{
    CrossEntropyOptions, Distillation, LossSum, Taught, cross_entropy, linear_cross_entropy, linear_distillation,
};
pub use nccl::{Communicator, DeviceSum, NcclError};
pub use norm::layer_norm;
pub use optimizer::{AdafactorRule, AdamWRule, AdamWStep, FactoredMoments, Moments, adamw};
pub use precision::{Compute, autocast};
pub use product::matmul;
pub use random::{normal, seed, undrawn, uniform};
pub use read::{Reading, read, read_behind, wait, waits};
pub use reshape::{flatten_all, unflatten_all};
pub use rotary::Rotary;
pub use settled::{settle, settle_trained, settled};
pub use sigmoid::{glu, silu};
pub use step::{StepControl, StepNumbers, StepReading};
pub use step_rules::StepRules;
pub use sum::sum;
pub use undertone_kernels::{argmax, log_sum_exp, seeds};
