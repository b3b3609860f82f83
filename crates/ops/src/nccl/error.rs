//! Errors of sums over devices.

use std::time::Duration;

/// Reason why devices cannot sum tensors with NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// The device is not a CUDA device of CubeCL.
    #[error("the device is not one of CUDA's")]
    NotCuda,
    /// The library is not installed.
    #[error(
        "the loader finds no libnccl.so.2: install NCCL (Debian and Ubuntu: libnccl2, PyPI: nvidia-nccl-cu12) and let \
         LD_LIBRARY_PATH name its folder"
    )]
    NotInstalled,
    /// A call of the library or of the driver failed.
    #[error("NCCL failed: {0}")]
    Failed(String),
    /// Another process did not take part in time.
    #[error("NCCL has waited {} s for another process", .0.as_secs())]
    Late(Duration),
}
