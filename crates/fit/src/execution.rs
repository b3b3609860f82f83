//! How training passes run.

use burn::tensor::Device;
use undertone_ops::{Capacity, Compute, Implementation, kept_bytes, scores_at_once};

/// Execution of the training passes, as far as it affects memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Implementation of the operations.
    pub implementation: Implementation,
    /// Bytes per element of kept tensors that only products read: 4, or 2 where they are kept in half precision.
    pub element_bytes: u64,
    /// Whether activation checkpointing is on: each block keeps only its input and runs again in the backward pass.
    pub checkpointed: bool,
    /// Maximum number of attention scores that composed operations hold at a time.
    pub scores: u64,
}

impl Execution {
    /// Default on a CPU.
    pub const CPU: Self =
        Self { implementation: Implementation::Host, element_bytes: 4, checkpointed: false, scores: 1 << 26 };
    /// Default on a GPU with CubeCL, in f32.
    pub const GPU: Self = Self { implementation: Implementation::Cube, ..Self::CPU };
    /// Compositions of a backend's operations.
    pub const COMPOSED: Self = Self { implementation: Implementation::Composed, ..Self::CPU };

    /// Returns the execution on `device`, with products in `compute`.
    pub fn on(device: &Device, compute: Compute) -> Self {
        let implementation = Implementation::of(device);
        Self { implementation, element_bytes: kept_bytes(device, compute), ..Self::CPU }
            .with_memory(Capacity::of(device).total)
    }

    /// Returns the same execution with products in half precision, where what they read is kept in it.
    pub fn in_half(self) -> Self {
        Self { element_bytes: 2, ..self }
    }

    /// Returns the execution on a device with this memory in bytes, if it is known.
    pub fn with_memory(self, bytes: Option<u64>) -> Self {
        Self { scores: scores_at_once(bytes) as u64, ..self }
    }

    /// Whether tensors that only products read are kept in half precision.
    pub(crate) fn is_half(&self) -> bool {
        self.element_bytes < 4
    }

    /// What was fitted to measurements of this execution.
    pub(crate) fn fitted(&self) -> Fitted {
        match self.implementation {
            Implementation::Host => Fitted { fixed: 220_000_000, percent: 100, gradients: 2 },
            Implementation::Cube => Fitted { fixed: 150_000_000, percent: 120, gradients: 1 },
            Implementation::Composed => Fitted { fixed: 150_000_000, percent: 100, gradients: 2 },
        }
    }
}

/// Numbers of the memory model that follow from measurements, not from the dimensions of a model.
pub(crate) struct Fitted {
    /// Bytes of the program, its libraries, and buffers that do not grow with the batch.
    pub fixed: u64,
    /// Reserved memory per kept tensor, in percent of its size: CubeCL reserves more than the tensors take.
    pub percent: u64,
    /// Number of f32 gradients of a wide feed-forward layer that exist at the same time.
    pub gradients: u64,
}
