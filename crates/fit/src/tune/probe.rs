//! A probe of one batch size: what to try, and its outcome.

use serde::{Deserialize, Serialize};
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

/// Outcome of a probe of one batch size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It can be trained.
    Fits {
        /// Peak memory in bytes: of the process on a CPU, of the device's allocator elsewhere, if that reports it.
        peak_bytes: Option<u64>,
        /// Samples per second of training steps after the first.
        samples_per_second: f64,
    },
    /// It exceeded its memory budget, and stopped itself.
    OverBudget {
        /// Memory by then, in bytes.
        peak_bytes: u64,
    },
    /// An allocation failed, or the system killed the process.
    OutOfMemory {
        /// Error message.
        reason: String,
    },
    /// Its steps took longer than the limit of a probe.
    TooSlow {
        /// Time until it was stopped, in seconds.
        seconds: f64,
    },
    /// It failed for another reason.
    Crashed {
        /// Error message.
        reason: String,
    },
}

impl Outcome {
    /// Whether it failed for lack of memory.
    pub fn wants_memory(&self) -> bool {
        matches!(self, Self::OverBudget { .. } | Self::OutOfMemory { .. })
    }

    /// Whether the batch can be trained.
    pub fn fits(&self) -> bool {
        matches!(self, Self::Fits { .. })
    }

    /// Peak memory in bytes, if it is known.
    pub fn peak_bytes(&self) -> Option<u64> {
        match self {
            Self::Fits { peak_bytes, .. } => *peak_bytes,
            Self::OverBudget { peak_bytes } => Some(*peak_bytes),
            _ => None,
        }
    }

    /// Samples per second, if the batch can be trained.
    pub fn samples_per_second(&self) -> Option<f64> {
        match self {
            Self::Fits { samples_per_second, .. } => Some(*samples_per_second),
            _ => None,
        }
    }
}

/// A batch size and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Samples per batch.
    pub batch: usize,
    /// Batches per optimizer step in the probe.
    pub accumulation: usize,
    /// Outcome of the probe.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_one_json_line_each() {
        let outcomes = [
            Outcome::Fits { peak_bytes: Some(5), samples_per_second: 1.5 },
            Outcome::OverBudget { peak_bytes: 7 },
            Outcome::TooSlow { seconds: 2.0 },
            Outcome::Crashed { reason: "two\nlines".into() },
        ];
        for outcome in outcomes {
            let line = serde_json::to_string(&outcome).expect("JSON");
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Outcome>(&line).expect(&line), outcome);
        }
    }
}
