//! Memory of a device, and what training passes keep in it.

use crate::device::Backing;
use crate::host::fused;
use crate::precision::Compute;
#[cfg(feature = "cube")]
use burn::backend::DispatchDevice;
use burn::tensor::Device;
#[cfg(feature = "cube")]
use burn_cubecl::cubecl::ir::DeviceProperties;
#[cfg(feature = "cube")]
use std::sync::Arc;

/// Memory of a device in bytes, as far as its driver reports it. It is unknown for the CPU and for LibTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Total memory. CUDA and drivers of Vulkan and Metal report it; devices programmed in WGSL do not.
    pub total: Option<u64>,
    /// Maximum size of one tensor.
    pub tensor: Option<u64>,
}

impl Capacity {
    /// Returns the capacity of `device`.
    pub fn of(device: &Device) -> Self {
        #[cfg(feature = "cube")]
        if let Some(properties) = properties(device) {
            let memory = &properties.memory;
            return Self { total: memory.max_memory(), tensor: Some(memory.max_page_size) };
        }
        let _ = device;
        Self::default()
    }

    /// Returns the maximum number of f32 elements of a tensor, at most `most`.
    pub(crate) fn numbers(self, most: usize) -> usize {
        self.tensor.map_or(most, |bytes| most.min(usize::try_from(bytes / 4).unwrap_or(most)))
    }
}

/// Implementation of operations on a device, as far as it affects memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Undertone's kernels on a CPU.
    Host,
    /// Undertone's kernels on CubeCL: CUDA, Vulkan, Metal.
    Cube,
    /// Compositions of a backend's operations: LibTorch, or a CPU with [`Kernels::Composed`](crate::Kernels::Composed).
    Composed,
}

impl Implementation {
    /// Returns the implementation on `device`.
    pub fn of(device: &Device) -> Self {
        match Backing::of(device) {
            Backing::Cuda | Backing::Cube => Self::Cube,
            _ if fused(device) => Self::Host,
            _ => Self::Composed,
        }
    }
}

/// Bytes per element of tensors that only products read, such as the inputs of linear maps, while they are kept for a backward pass with
/// products in `compute`: 2 on CUDA and CPUs that multiply half precision, and otherwise 4.
pub fn kept_bytes(device: &Device, compute: Compute) -> u64 {
    let rounds = match (Backing::of(device), compute.on(device)) {
        (Backing::Cuda, Compute::Bf16 | Compute::F16) => true,
        (Backing::Flex, Compute::Bf16) => fused(device),
        _ => false,
    };
    if rounds { 2 } else { 4 }
}

/// Bytes of shared memory of a cube; `None` off CubeCL.
#[cfg(feature = "cube")]
pub(crate) fn shared_memory(device: &Device) -> Option<usize> {
    Some(properties(device)?.hardware.max_shared_memory_size)
}

/// Properties of a device of CubeCL.
#[cfg(feature = "cube")]
pub(crate) fn properties(device: &Device) -> Option<Arc<DeviceProperties>> {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Cube(device) => Some(device.client().properties_shared()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs_ahead;
    use crate::testing::device;

    #[test]
    fn only_half_precision_is_kept_in_half_precision() {
        let device = device();
        assert_eq!([Compute::F32, Compute::Tf32].map(|compute| kept_bytes(&device, compute)), [4, 4]);
        let halves = Compute::Bf16.on(&device) == Compute::Bf16;
        let keeps = matches!(Backing::of(&device), Backing::Flex | Backing::Cuda);
        assert_eq!(kept_bytes(&device.autodiff(), Compute::Bf16), if halves && keeps { 2 } else { 4 });
    }

    #[test]
    fn an_accelerator_says_how_large_a_tensor_may_be() {
        let found = Capacity::of(&device().autodiff());
        assert_eq!(found, Capacity::of(&device()));
        if !runs_ahead(&device()) {
            assert_eq!(found, Capacity::default());
        } else if let Some(bytes) = found.tensor {
            assert!(bytes >= 1 << 27, "WebGPU's least is 128 MiB, not {bytes} bytes");
        }
    }

    #[test]
    fn pieces_are_no_larger_than_a_tensor_may_be() {
        let of = |tensor| Capacity { total: None, tensor }.numbers(1 << 20);
        assert_eq!([of(None), of(Some(u64::MAX)), of(Some(4000))], [1 << 20, 1 << 20, 1000]);
    }
}
