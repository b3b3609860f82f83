use std::time::Duration;

/// A batch to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Samples per batch.
    pub batch: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Whether to use activation checkpointing, whatever the configuration says.
    pub checkpointing: bool,
}

/// Limits of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory limit in bytes: of the process on a CPU, of the device elsewhere.
    pub memory: Option<u64>,
    /// Time limit, loading included.
    pub time: Duration,
}
