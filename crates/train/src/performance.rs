//! `performance.jsonl`: how fast a run goes and where its time goes.
//!
//! It stands beside `metrics.jsonl` because none of it is the same twice: what must be reproducible is there, what is
//! measured is here.

use crate::report::open_lines;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A line: the optimizer steps since the line before, evaluations and checkpoints left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Performance {
    /// The last of the steps.
    pub step: u64,
    /// How many they are.
    pub steps: u64,
    /// How long they took.
    pub seconds: f64,
    /// Samples trained on in a second.
    pub samples_per_second: f64,
    /// Seconds of audio, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_seconds_per_second: Option<f64>,
    /// Tokens that count in the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Floating-point operations that the model asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_per_second: Option<f64>,
    /// Those as a share of what the device can do (model FLOPs utilisation; Chowdhery et al., 2022).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// What `seconds` were spent on.
    pub time: TimeSplit,
}

/// Shares of the time of training steps; together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// Waiting for batches.
    pub data_wait: f64,
    /// Batches on their way to the device.
    pub transfer: f64,
    /// From inputs to losses.
    pub forward: f64,
    /// From losses to gradients.
    pub backward: f64,
    /// Clipping, and moving the parameters.
    pub optimizer: f64,
    /// All else.
    pub other: f64,
}

impl Performance {
    /// Every number of it by name, for records that know names and numbers alone.
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let mut values = vec![("samples_per_second", self.samples_per_second)];
        let rates = [
            ("audio_seconds_per_second", self.audio_seconds_per_second),
            ("tokens_per_second", self.tokens_per_second),
            ("flops_per_second", self.flops_per_second),
            ("mfu", self.mfu),
        ];
        values.extend(rates.into_iter().filter_map(|(name, rate)| Some((name, rate?))));
        let TimeSplit { data_wait, transfer, forward, backward, optimizer, other } = self.time;
        values.extend([
            ("time/data_wait", data_wait),
            ("time/transfer", transfer),
            ("time/forward", forward),
            ("time/backward", backward),
            ("time/optimizer", optimizer),
            ("time/other", other),
        ]);
        values
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct PerformanceLog {
    file: File,
}

impl PerformanceLog {
    /// Opens that of the run in `dir` for a session whose first step will be `from`, without the lines of that step and
    /// later.
    pub fn open(dir: &Path, from: u64) -> std::io::Result<Self> {
        Ok(Self { file: open_lines(&dir.join("performance.jsonl"), from)? })
    }

    /// Appends a line.
    pub fn write(&mut self, line: &Performance) -> std::io::Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(line)?)
    }
}
