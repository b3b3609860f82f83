//! How training passes run.

use undertone_ops::{Kernels, scores_at_once};

/// Execution of the training passes, as far as it affects memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Kernels. Composed kernels keep parts of norms that fused ones do not, and hold a piece of all scores and logits
    /// at a time.
    pub kernels: Kernels,
    /// Bytes per element of an activation: 4, or 2 for bf16 and f16.
    pub element_bytes: u64,
    /// Whether activation checkpointing is on: each block keeps only its input and runs again in the backward pass.
    pub checkpointed: bool,
    /// Maximum number of attention scores that composed kernels hold at a time.
    pub scores: u64,
}

impl Execution {
    /// Default on a CPU.
    pub const CPU: Self = Self { kernels: Kernels::Fused, element_bytes: 4, checkpointed: false, scores: 1 << 26 };
    /// Default on other devices.
    pub const ACCELERATOR: Self = Self { kernels: Kernels::Composed, ..Self::CPU };

    /// Returns the execution on a device with this memory in bytes, if it is known.
    pub fn with_memory(self, bytes: Option<u64>) -> Self {
        Self { scores: scores_at_once(bytes) as u64, ..self }
    }
}
