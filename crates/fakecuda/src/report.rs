//! What a program did, as numbers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that was counted, as `report.json` has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The card that was pretended, as the driver calls it.
    pub card: String,
    /// Its compute capability: 90 for 9.0.
    pub architecture: u32,
    /// The version of CUDA that the driver is for: 12080 is 12.8.
    pub driver: i32,
    /// Seconds from when the program initialised CUDA.
    pub seconds: f64,
    /// Launches of kernels.
    pub launches: u64,
    /// What hardware would have refused or done wrong, in a sentence each, and how often.
    pub problems: BTreeMap<String, u64>,
    /// What the host or a stream waited for.
    pub waits: Waits,
    /// Copies from the host to the device.
    pub to_device: Copies,
    /// Copies from the device to the host.
    pub to_host: Copies,
    /// Copies from the device to itself.
    pub on_device: Copies,
    /// What it gave to sums over the devices of several processes.
    pub between_devices: Copies,
    /// What was set to a value.
    pub set: Copies,
    /// The device's memory.
    pub memory: Memory,
    /// What NVRTC did.
    pub nvrtc: Nvrtc,
    /// Every kernel that was loaded.
    pub kernels: Vec<Kernel>,
}

/// How often somebody waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The host for a stream.
    pub streams: u64,
    /// The host for an event.
    pub events: u64,
    /// The host for everything.
    pub contexts: u64,
    /// A stream for an event.
    pub between_streams: u64,
}

/// Copies of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Bytes of all together.
    pub bytes: u64,
    /// How many there were.
    pub count: u64,
    /// How many were of at most 1 KiB.
    pub small: u64,
}

impl Copies {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
        self.small += u64::from(bytes <= 1024);
    }
}

/// A device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes in use now.
    pub now: u64,
    /// The most bytes that were in use at a time.
    pub peak: u64,
    /// Allocations that were asked for.
    pub allocations: u64,
    /// Allocations that did not fit.
    pub refused: u64,
    /// How often the program asked how much is free.
    pub asked: u64,
    /// Bytes of pinned memory of the host.
    pub pinned: u64,
}

/// What NVRTC compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nvrtc {
    /// Programs that it was given.
    pub programs: u64,
    /// Programs that it refused.
    pub refused: u64,
    /// Seconds for all together.
    pub seconds: f64,
    /// Seconds for the slowest.
    pub longest: f64,
}

/// A kernel of a module that was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The file of `FAKECUDA_OUT` with its PTX.
    pub file: String,
    /// Bytes of its module's PTX.
    pub bytes: u64,
    /// How often it was launched.
    pub launches: u64,
    /// Threads of a block, by what the kernel says; nothing where it does not.
    pub max_threads: Option<u64>,
    /// Bytes of shared memory that it has by itself.
    pub shared_memory: u64,
    /// Bytes of shared memory that its last launch brought.
    pub dynamic_shared_memory: u64,
}
