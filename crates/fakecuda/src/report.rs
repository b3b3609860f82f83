//! Report of a program's operations.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters of a run, as in `report.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the emulated card, as the driver reports it.
    pub card: String,
    /// Compute capability: 90 for 9.0.
    pub architecture: u32,
    /// CUDA version of the driver: 12080 is 12.8.
    pub driver: i32,
    /// Seconds since the program initialised CUDA.
    pub seconds: f64,
    /// Number of kernel launches.
    pub launches: u64,
    /// Operations that hardware would have rejected or done wrong, each as a sentence, with their number.
    pub problems: BTreeMap<String, u64>,
    /// Waits of the host and of streams.
    pub waits: Waits,
    /// Copies from the host to the device.
    pub to_device: Copies,
    /// Copies from the device to the host.
    pub to_host: Copies,
    /// Copies within the device.
    pub on_device: Copies,
    /// Contributions to sums over the devices of several processes.
    pub between_devices: Copies,
    /// Fills of memory with a value.
    pub set: Copies,
    /// Device memory.
    pub memory: Memory,
    /// Work of NVRTC.
    pub nvrtc: Nvrtc,
    /// All kernels that were loaded.
    pub kernels: Vec<Kernel>,
}

/// Numbers of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Waits of the host for a stream.
    pub streams: u64,
    /// Waits of the host for an event.
    pub events: u64,
    /// Waits of the host for all work.
    pub contexts: u64,
    /// Waits of a stream for an event.
    pub between_streams: u64,
}

/// Copies of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Total bytes.
    pub bytes: u64,
    /// Number of copies.
    pub count: u64,
    /// Number of copies of at most 1 KiB.
    pub small: u64,
}

impl Copies {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
        self.small += u64::from(bytes <= 1024);
    }
}

/// Device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes in use now.
    pub now: u64,
    /// Maximum bytes in use.
    pub peak: u64,
    /// Number of requested allocations.
    pub allocations: u64,
    /// Number of allocations that did not fit.
    pub refused: u64,
    /// Number of queries for free memory.
    pub asked: u64,
    /// Bytes of pinned host memory.
    pub pinned: u64,
}

/// Compilations by NVRTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nvrtc {
    /// Number of programs.
    pub programs: u64,
    /// Number of rejected programs.
    pub refused: u64,
    /// Total seconds.
    pub seconds: f64,
    /// Seconds of the slowest program.
    pub longest: f64,
}

/// Kernel of a loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of the kernel.
    pub name: String,
    /// File in `FAKECUDA_OUT` with its PTX.
    pub file: String,
    /// Bytes of its module's PTX.
    pub bytes: u64,
    /// Number of launches.
    pub launches: u64,
    /// Maximum threads of a block, if the kernel declares it.
    pub max_threads: Option<u64>,
    /// Bytes of static shared memory.
    pub shared_memory: u64,
    /// Bytes of dynamic shared memory of its last launch.
    pub dynamic_shared_memory: u64,
}
