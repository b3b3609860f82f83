//! Collective operations between the GPUs of several processes, by NVIDIA's NCCL.

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "NCCL is called with pointers")]
mod communicator;
#[cfg(not(feature = "cuda"))]
#[path = "without.rs"]
mod communicator;
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "its functions are found by name")]
mod library;

mod error;
mod sum;

use burn::tensor::{Device, Tensor};
pub use error::NcclError;
use std::time::Duration;
pub use sum::DeviceSum;

/// A CUDA device in a group of processes with one device each, for sums of tensors over all of them.
///
/// All processes must request the same sums in the same order. A separate thread performs them while the process
/// continues. NCCL chooses the order of additions: the same devices with the same interconnect give the same bits.
#[derive(Debug)]
pub struct Communicator(communicator::Communicator);

impl Communicator {
    /// Creates the id of a new group: one process calls it, and all of them [`join`](Self::join) with it.
    ///
    /// # Errors
    /// When the device is not a CUDA device or NCCL is not installed, so that this process could not join the group.
    pub fn new_id(device: &Device) -> Result<Vec<u8>, NcclError> {
        communicator::new_id(device)
    }

    /// Joins the group `id` as member `rank` of `count`. Waits at most `patience` for the others.
    ///
    /// # Errors
    /// When NCCL refuses, as it does if two processes have the same device, or when others do not join in time.
    pub fn join(device: &Device, id: &[u8], rank: usize, count: usize, patience: Duration) -> Result<Self, NcclError> {
        communicator::Communicator::join(device, id, rank, count, patience).map(Self)
    }

    /// Begins an all-reduce: sums `values`, `[n]` in f32, over all processes. Each gets the sum.
    pub fn all_reduce(&self, values: Tensor<1>) -> DeviceSum {
        self.0.all_reduce(values)
    }

    /// Begins a reduce-scatter: sums `values`, `[count · n]` in f32, over all processes. Each gets its own part, `[n]`.
    pub fn reduce_scatter(&self, values: Tensor<1>) -> DeviceSum {
        self.0.reduce_scatter(values)
    }

    /// Aborts pending sums, so that no device waits for another.
    pub fn abort(&self) {
        self.0.abort();
    }
}
