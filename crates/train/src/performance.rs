//! `performance.jsonl`: training speed and where the time goes, with a line each time that the run logs.
//!
//! It is separate from `metrics.jsonl`, which is the same for every run of a seed and so holds nothing that depends on
//! time.

use crate::Hardware;
use crate::report::open_lines;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A line of `performance.jsonl`: training steps since the line before, without evaluations and checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Performance {
    /// Last optimizer step of the line.
    pub step: u64,
    /// Number of optimizer steps.
    pub steps: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Samples trained on per second.
    pub samples_per_second: f64,
    /// Seconds of audio per second; speech only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_seconds_per_second: Option<f64>,
    /// Tokens per second, if the objective counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Floating-point operations of forward and backward pass per second, if the objective counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_per_second: Option<f64>,
    /// The same as a share of the device's peak (model FLOPs utilization, MFU; Chowdhery et al., 2022).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// Shares of the time.
    pub time: TimeSplit,
    /// Comparison of the ranks, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankPerformance>,
    /// Load of the machine meanwhile, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

/// Time of training steps by section, as shares that sum to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// Waiting for the data loader.
    pub data_wait: f64,
    /// Copying batches to the device.
    pub transfer: f64,
    /// Forward pass and losses.
    pub forward: f64,
    /// Backward pass.
    pub backward: f64,
    /// Waiting for the other ranks, and all-reduce of gradients.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub ranks: f64,
    /// Clipping and optimizer step.
    pub optimizer: f64,
    /// Everything else.
    pub other: f64,
}

/// Comparison of the ranks that train together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankPerformance {
    /// Number of ranks.
    pub count: usize,
    /// Share of the time of gradient sums that the first rank spent on something else.
    pub overlap: f64,
    /// Rank whose forward and backward passes took longest.
    pub slowest: usize,
    /// Relative excess of its time over the mean of all ranks.
    pub imbalance: f64,
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

impl RankPerformance {
    /// Combines several lines: means, and the rank that was slowest most often.
    fn over(ranks: &[Self]) -> Option<Self> {
        let last = ranks.last()?;
        let mean = |value: &dyn Fn(&Self) -> f64| ranks.iter().map(value).sum::<f64>() / ranks.len() as f64;
        let times = |rank: usize| ranks.iter().filter(|line| line.slowest == rank).count();
        let slowest = ranks.iter().map(|line| line.slowest).max_by_key(|rank| times(*rank))?;
        Some(Self { overlap: mean(&|line| line.overlap), slowest, imbalance: mean(&|line| line.imbalance), ..*last })
    }
}

impl TimeSplit {
    /// Names and shares, in the order of a step.
    pub fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("data wait", self.data_wait),
            ("transfer", self.transfer),
            ("forward", self.forward),
            ("backward", self.backward),
            ("ranks", self.ranks),
            ("optimizer", self.optimizer),
            ("other", self.other),
        ]
    }
}

impl Performance {
    /// Combines several lines: rates and shares over their total time. `None` without lines.
    pub fn over(lines: &[Self]) -> Option<Self> {
        let last = lines.last()?;
        let steps = lines.iter().map(|line| line.steps).sum();
        let seconds: f64 = lines.iter().map(|line| line.seconds).sum();
        // A rate times its seconds is an amount, and amounts add up. If the total time is zero, lines have equal
        // weights.
        let weight = |line: &Self| if seconds > 0.0 { line.seconds / seconds } else { 1.0 / lines.len() as f64 };
        let mean = |value: &dyn Fn(&Self) -> f64| lines.iter().map(|line| weight(line) * value(line)).sum::<f64>();
        // A rate that some lines lack is unknown over all of them.
        let rate = |value: &dyn Fn(&Self) -> Option<f64>| {
            lines.iter().map(|line| value(line).map(|rate| weight(line) * rate)).sum::<Option<f64>>()
        };
        Some(Self {
            step: last.step,
            steps,
            seconds,
            samples_per_second: mean(&|line| line.samples_per_second),
            audio_seconds_per_second: rate(&|line| line.audio_seconds_per_second),
            tokens_per_second: rate(&|line| line.tokens_per_second),
            flops_per_second: rate(&|line| line.flops_per_second),
            mfu: rate(&|line| line.mfu),
            time: TimeSplit {
                data_wait: mean(&|line| line.time.data_wait),
                transfer: mean(&|line| line.time.transfer),
                forward: mean(&|line| line.time.forward),
                backward: mean(&|line| line.time.backward),
                ranks: mean(&|line| line.time.ranks),
                optimizer: mean(&|line| line.time.optimizer),
                other: mean(&|line| line.time.other),
            },
            ranks: RankPerformance::over(&lines.iter().filter_map(|line| line.ranks).collect::<Vec<_>>()),
            hardware: Hardware::mean(lines.iter().filter_map(|line| line.hardware.as_ref())),
        })
    }

    /// Lists every value with its name, for logs that know only names and numbers.
    pub(crate) fn values(&self) -> Vec<(String, f64)> {
        let mut values = vec![("samples_per_second".to_owned(), self.samples_per_second)];
        let mut add = |name: &str, value: Option<f64>| values.extend(value.map(|value| (name.to_owned(), value)));
        add("audio_seconds_per_second", self.audio_seconds_per_second);
        add("tokens_per_second", self.tokens_per_second);
        add("flops_per_second", self.flops_per_second);
        add("mfu", self.mfu);
        self.time
            .parts()
            .iter()
            .for_each(|(part, share)| add(&format!("time/{}", part.replace(' ', "_")), Some(*share)));
        if let Some(ranks) = &self.ranks {
            add("ranks/overlap", Some(ranks.overlap));
            add("ranks/imbalance", Some(ranks.imbalance));
        }
        if let Some(hardware) = &self.hardware {
            add("cpu", hardware.cpu);
            add("process_cpu", hardware.process_cpu);
            add("memory_bytes", hardware.memory_bytes.map(|bytes| bytes as f64));
            for (index, gpu) in hardware.gpus.iter().enumerate() {
                add(&format!("gpu{index}/utilization"), gpu.utilization);
                add(&format!("gpu{index}/memory_bytes"), gpu.memory_bytes.map(|bytes| bytes as f64));
                add(&format!("gpu{index}/power_watts"), gpu.power_watts);
                add(&format!("gpu{index}/temperature_celsius"), gpu.temperature_celsius);
            }
        }
        values
    }
}

/// Writer of `performance.jsonl`.
#[derive(Debug)]
pub(crate) struct PerformanceLog {
    file: File,
}

impl PerformanceLog {
    /// Opens the file of the run in `dir` for a session whose first step is `from`, and removes the lines of that step
    /// and later.
    pub fn open(dir: &Path, from: u64) -> std::io::Result<Self> {
        Ok(Self { file: open_lines(&dir.join("performance.jsonl"), from)? })
    }

    /// Appends a line.
    pub fn write(&mut self, line: &Performance) -> std::io::Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = concat!(
        r#"{"step":50,"steps":10,"seconds":12.3,"samples_per_second":49.2,"audio_seconds_per_second":295.1,"#,
        r#""tokens_per_second":1200.5,"flops_per_second":120000000000.0,"mfu":0.31,"#,
        r#""time":{"data_wait":0.01,"transfer":0.002,"forward":0.4,"backward":0.5,"optimizer":0.06,"other":0.028},"#,
        r#""hardware":{"cpu":0.93,"process_cpu":0.9,"memory_bytes":1073741824,"memory_total_bytes":8589934592,"#,
        r#""memory_available_bytes":5368709120,"gpus":[{"name":"NVIDIA L4","utilization":0.8,"memory_bytes":7,"#,
        r#""memory_total_bytes":10,"power_watts":61.5,"temperature_celsius":54.0}]}}"#
    );
    const RANKS: &str = concat!(
        r#"{"step":10,"steps":10,"seconds":2.5,"samples_per_second":4.0,"#,
        r#""time":{"data_wait":0.5,"transfer":0.0,"forward":0.2,"backward":0.2,"ranks":0.1,"optimizer":0.0,"other":0.0},"#,
        r#""ranks":{"count":4,"overlap":0.5,"slowest":3,"imbalance":0.25}}"#
    );
    const BARE: &str = concat!(
        r#"{"step":10,"steps":10,"seconds":2.5,"samples_per_second":4.0,"#,
        r#""time":{"data_wait":0.5,"transfer":0.0,"forward":0.25,"backward":0.25,"optimizer":0.0,"other":0.0}}"#
    );

    #[test]
    fn lines_read_back_as_they_were_written() {
        for line in [FULL, RANKS, BARE] {
            let read: Performance = serde_json::from_str(line).expect("a line");
            assert_eq!(serde_json::to_string(&read).expect("JSON"), line);
            assert!((read.time.parts().iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn several_lines_are_weighted_by_their_time() {
        let (bare, full): (Performance, Performance) =
            (serde_json::from_str(BARE).expect("a line"), serde_json::from_str(FULL).expect("a line"));
        let slow = Performance { step: 20, seconds: 7.5, samples_per_second: 2.0, ..bare.clone() };
        let slow = Performance { time: TimeSplit { data_wait: 0.1, forward: 0.65, ..slow.time }, ..slow };
        let both = Performance::over(&[bare.clone(), slow]).expect("two lines");
        assert_eq!((both.step, both.steps, both.seconds), (20, 20, 10.0));
        assert!((both.samples_per_second - 2.5).abs() < 1e-12, "(4 · 2.5 + 2 · 7.5) / 10");
        assert!((both.time.data_wait - 0.2).abs() < 1e-12 && (both.time.forward - 0.55).abs() < 1e-12);
        let mixed = Performance::over(&[bare, full.clone()]).expect("two lines");
        assert_eq!((mixed.tokens_per_second, mixed.hardware), (None, full.hardware.clone()));
        assert_eq!(Performance::over(std::slice::from_ref(&full)).expect("one line").mfu, full.mfu);
        assert_eq!(Performance::over(&[]), None);
    }
}
