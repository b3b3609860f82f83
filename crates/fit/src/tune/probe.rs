use std::time::Duration;

/// A batch to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Samples per batch.
    pub batch: usize,
    /// Batches per optimizer step.
    pub accumulation: usize,
    /// Whether every block runs again in the backward pass, whatever the configuration says.
    pub checkpointing: bool,
}

/// What ends a probe early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most memory, in bytes: of the process on a CPU, of the device elsewhere.
    pub memory: Option<u64>,
    /// The longest time, loading included.
    pub time: Duration,
}
