//! Reads the records in a run's directory.

use crate::draw::areas::{Interval, Part};
use crate::error::ReportError;
use crate::evaluation::record::EvaluationRecord;
use crate::series::Series;
use serde_json::Value;
use std::path::Path;
use undertone_train::{Environment, Performance, Summary};

/// Parts of a training step's time, from the bottom of the picture up, each with the index of its colour.
const TIME: [Part; 7] =
    [("forward", 0), ("backward", 4), (RANKS, 3), ("optimizer", 2), ("transfer", 1), ("data wait", 5), ("other", 6)];

/// Part that only runs with several ranks have.
const RANKS: &str = "ranks";

/// All records of a training run; only the metrics are required.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunRecords {
    /// Values logged in training, by name, in the order in which the names occur.
    pub train: Vec<Series>,
    /// Values of the evaluations, likewise.
    pub valid: Vec<Series>,
    /// Values of the evaluations of the weights' moving average; empty if there is none.
    pub valid_ema: Vec<Series>,
    /// Lines of `performance.jsonl`.
    pub performance: Vec<Performance>,
    /// Summary; `None` if the run has not ended yet.
    pub summary: Option<Summary>,
    /// The configuration, as YAML.
    pub configuration: Option<String>,
    /// Program and machine of each session.
    pub sessions: Vec<Environment>,
    /// The evaluation that was made for the page, if there was one.
    pub evaluation: Option<EvaluationRecord>,
}

impl RunRecords {
    /// Reads the records in `directory`, and the configuration of the run that it belongs to.
    pub fn read(directory: &Path) -> Result<Self, ReportError> {
        let path = directory.join("metrics.jsonl");
        let metrics = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ReportError::NoRun(directory.to_owned()));
            }
            Err(source) => return Err(ReportError::Unreadable { path, source }),
        };
        let performance = std::fs::read_to_string(directory.join("performance.jsonl")).unwrap_or_default();
        let root = root(directory);
        let records = Self {
            train: series(&metrics, "train"),
            valid: series(&metrics, "valid"),
            valid_ema: series(&metrics, "valid_ema"),
            performance: performance_lines(&performance),
            summary: None,
            configuration: std::fs::read_to_string(root.unwrap_or(directory).join("config.yaml")).ok(),
            sessions: Environment::sessions(directory),
            evaluation: EvaluationRecord::read(directory),
        };
        // That of an earlier session says nothing of a run that has gone on.
        let summary = Summary::read(directory).filter(|summary| summary.steps as f64 >= records.last_logged());
        Ok(Self { summary, ..records })
    }

    /// Returns the last step that is logged; 0 if there is none.
    fn last_logged(&self) -> f64 {
        let steps =
            self.train.iter().chain(&self.valid).flat_map(|series| &series.points).map(|(step, _)| *step as f64);
        steps.fold(0.0, f64::max)
    }

    /// Returns the training values of a name.
    pub fn trained(&self, name: &str) -> Option<&Series> {
        self.train.iter().find(|series| series.name == name)
    }

    /// Returns the first and the last step of all records.
    pub fn steps(&self) -> (f64, f64) {
        let steps = self.train.iter().chain(&self.valid).flat_map(|series| &series.points).map(|(step, _)| *step);
        let last = steps.clone().chain(self.performance.iter().map(|line| line.step)).max().unwrap_or(1);
        let first = steps.chain(self.performance.iter().map(|line| line.step.saturating_sub(line.steps))).min();
        let first = first.unwrap_or(0).min(last.saturating_sub(1));
        (first as f64, last as f64)
    }

    /// Returns the parts of the time of the training steps.
    pub fn time_parts(&self) -> Vec<Part> {
        let together = self.performance.iter().any(|line| line.time.ranks > 0.0);
        TIME.into_iter().filter(|(part, _)| together || *part != RANKS).collect()
    }

    /// Returns the time of the training steps, in the order of [`time_parts`](Self::time_parts).
    pub fn time(&self) -> Vec<Interval> {
        let parts = self.time_parts();
        let interval = |line: &Performance| {
            let share =
                |part: &str| line.time.parts().iter().find(|(name, _)| *name == part).map_or(0.0, |found| found.1);
            let shares: Vec<f64> = parts.iter().map(|(part, _)| share(part)).collect();
            let sum: f64 = shares.iter().sum();
            let from = line.step.saturating_sub(line.steps);
            (sum.is_finite() && sum > 0.0).then(|| Interval {
                from,
                to: line.step,
                weight: line.seconds,
                shares: shares.iter().map(|share| share / sum).collect(),
            })
        };
        self.performance.iter().filter_map(interval).collect()
    }
}

/// Returns the directory with the configuration: the run's own, or for a stage that of its run.
pub(crate) fn root(directory: &Path) -> Option<&Path> {
    directory.ancestors().take(4).find(|ancestor| ancestor.join("config.yaml").is_file())
}

/// Returns the values that the stage in a directory has logged for a split, by name; none if there is no log.
pub fn logged_series(stage: &Path, split: &str) -> Vec<Series> {
    series(&std::fs::read_to_string(stage.join("metrics.jsonl")).unwrap_or_default(), split)
}

/// Returns the values of a split by name, from the text of a `metrics.jsonl`. Invalid lines are skipped: the last line
/// of a killed run may be incomplete.
pub(crate) fn series(metrics: &str, split: &str) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    for line in metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(step) = line.get("step").and_then(Value::as_u64) else { continue };
        if line.get("split").and_then(Value::as_str) != Some(split) {
            continue;
        }
        for (name, value) in line.as_object().into_iter().flatten().filter(|(name, _)| !is_key(name)) {
            let point = (step, value.as_f64().unwrap_or(f64::NAN));
            match found.iter_mut().find(|series| series.name == *name) {
                Some(series) => series.points.push(point),
                None => found.push(Series { name: name.clone(), points: vec![point] }),
            }
        }
    }
    found
}

fn is_key(name: &str) -> bool {
    ["step", "split"].contains(&name)
}

/// Returns the lines in the order of their steps. Steps that were lost after the last checkpoint and repeated by a
/// later session occur once, as the later session logged them.
fn performance_lines(text: &str) -> Vec<Performance> {
    let mut lines: Vec<Performance> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Performance>(line).ok()) {
        while lines.last().is_some_and(|last| last.step >= line.step) {
            lines.pop();
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_split_and_name() {
        let text = "{\"step\":0,\"split\":\"valid\",\"cer\":0.5}\n\
                    {\"step\":10,\"split\":\"train\",\"loss\":2.5,\"lr\":0.1}\n\
                    {\"step\":20,\"split\":\"train\",\"loss\":null,\"copy\":1}\n\
                    {\"step\":30,\"split\":\"tr";
        let train = series(text, "train");
        let names: Vec<&str> = train.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["loss", "lr", "copy"]);
        assert_eq!(train[0].points[0], (10, 2.5));
        assert!(train[0].points[1].1.is_nan());
        assert_eq!(series(text, "valid"), [Series { name: "cer".into(), points: vec![(0, 0.5)] }]);
    }

    #[test]
    fn what_was_done_again_counts_once() {
        let line = |step: u64, wait: f64| {
            format!(
                "{{\"step\":{step},\"steps\":10,\"seconds\":2.0,\"samples_per_second\":4.0,\"time\":{{\"data_wait\":{wait},\
                 \"transfer\":0.0,\"forward\":0.5,\"backward\":0.0,\"optimizer\":0.0,\"other\":0.0}}}}\n"
            )
        };
        let text = [line(10, 0.1), line(20, 0.2), line(30, 0.3), line(20, 0.5)].concat();
        let records = RunRecords { performance: performance_lines(&text), ..Default::default() };
        assert_eq!(records.performance.iter().map(|line| line.step).collect::<Vec<_>>(), [10, 20]);
        let time = records.time();
        assert_eq!((time[1].from, time[1].to, time[1].weight), (10, 20, 2.0));
        assert_eq!(time[1].shares, [0.5, 0.0, 0.0, 0.0, 0.5, 0.0]);
        assert_eq!(records.steps(), (0.0, 20.0));
    }
}
