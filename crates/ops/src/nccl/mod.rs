//! Sums over the cards of several processes, made by the cards themselves: NVIDIA's NCCL.

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

/// A CUDA device among those of other processes, one device each, which add up tensors over all of them.
///
/// All processes ask for the same sums in the same order, and each sum is made in a thread of its own while the process goes on.
/// The order in which NCCL adds is its own: the same devices with the same wiring give the same bits.
#[derive(Debug)]
pub struct Communicator(communicator::Communicator);

impl Communicator {
    /// What names a new group of devices: one process makes it, and all of them [`join`](Self::join) by it.
    ///
    /// # Errors
    /// When this process could not join such a group: the device is none of CUDA's, or there is no NCCL.
    pub fn new_id(device: &Device) -> Result<Vec<u8>, NcclError> {
        communicator::new_id(device)
    }

    /// Joins the group that `id` names as its member `rank` of `count`; waits so long for the others.
    ///
    /// # Errors
    /// When NCCL refuses, as it does where two processes have the same device, or others do not join in time.
    pub fn join(device: &Device, id: &[u8], rank: usize, count: usize, patience: Duration) -> Result<Self, NcclError> {
        communicator::Communicator::join(device, id, rank, count, patience).map(Self)
    }

    /// Begins to add up `values`, `[n]` in f32, over all processes; each gets the sum.
    pub fn all_reduce(&self, values: Tensor<1>) -> DeviceSum {
        self.0.all_reduce(values)
    }

    /// Begins to add up `values`, `[count · n]` in f32, over all processes; each gets its own part of the sum, `[n]`.
    pub fn reduce_scatter(&self, values: Tensor<1>) -> DeviceSum {
        self.0.reduce_scatter(values)
    }

    /// Gives up what is being added, so that no device waits for another any more.
    pub fn abort(&self) {
        self.0.abort();
    }
}
