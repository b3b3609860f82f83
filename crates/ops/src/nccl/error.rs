//! Why a sum over devices fails.

use std::time::Duration;

/// Why devices cannot add up tensors among themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// The device is none of CUDA's through CubeCL.
    #[error("the device is not one of CUDA's")]
    NotCuda,
    /// The library is not on this machine.
    #[error(
        "the loader finds no libnccl.so.2: install NCCL (Debian and Ubuntu: libnccl2, PyPI: nvidia-nccl-cu12) and let \
         LD_LIBRARY_PATH name its folder"
    )]
    NotInstalled,
    /// A call of the library or of the driver failed.
    #[error("NCCL failed: {0}")]
    Failed(String),
    /// Another process has not taken part.
    #[error("NCCL has waited {} s for another process", .0.as_secs())]
    Late(Duration),
}
