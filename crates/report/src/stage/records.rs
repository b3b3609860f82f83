//! What a run's directory says of its training.

use crate::draw::areas::{Interval, Part};
use crate::error::ReportError;
use crate::series::Series;
use serde_json::Value;
use std::path::Path;
use undertone_train::{Environment, Performance, Summary};

/// The parts of a training step's time, from the bottom of the picture up, each with the number of its colour.
const TIME: [Part; 7] =
    [("forward", 0), ("backward", 4), (RANKS, 3), ("optimizer", 2), ("transfer", 1), ("data wait", 5), ("other", 6)];

/// The part that only runs of several ranks have.
const RANKS: &str = "ranks";

/// Everything there is of a training run; only the metrics have to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunRecords {
    /// What was logged of training steps, by name, in the order in which the names occur.
    pub train: Vec<Series>,
    /// What evaluations found, likewise.
    pub valid: Vec<Series>,
    /// How fast it went.
    pub performance: Vec<Performance>,
    /// What it achieved; nothing where it has not ended yet.
    pub summary: Option<Summary>,
    /// The configuration, as YAML.
    pub configuration: Option<String>,
    /// Programme and machine of each session.
    pub sessions: Vec<Environment>,
}

impl RunRecords {
    /// Reads what `directory` holds, with the configuration of the run that it belongs to.
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
        Ok(Self {
            train: series(&metrics, "train"),
            valid: series(&metrics, "valid"),
            performance: performance_lines(&performance),
            summary: Summary::read(directory),
            configuration: std::fs::read_to_string(root.unwrap_or(directory).join("config.yaml")).ok(),
            sessions: Environment::sessions(directory),
        })
    }

    /// The values of a name in training.
    pub fn trained(&self, name: &str) -> Option<&Series> {
        self.train.iter().find(|series| series.name == name)
    }

    /// First and last step of all.
    pub fn steps(&self) -> (f64, f64) {
        let steps = self.train.iter().chain(&self.valid).flat_map(|series| &series.points).map(|(step, _)| *step);
        let last = steps.clone().chain(self.performance.iter().map(|line| line.step)).max().unwrap_or(1);
        let first = steps.chain(self.performance.iter().map(|line| line.step.saturating_sub(line.steps))).min();
        let first = first.unwrap_or(0).min(last.saturating_sub(1));
        (first as f64, last as f64)
    }

    /// The parts that the time of the training steps has.
    pub fn time_parts(&self) -> Vec<Part> {
        let together = self.performance.iter().any(|line| line.time.ranks > 0.0);
        TIME.into_iter().filter(|(part, _)| together || *part != RANKS).collect()
    }

    /// How the time of the training steps was spent, in the order of [`time_parts`](Self::time_parts).
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

/// The directory with the configuration: the run's own, or for a stage that of the run it is part of.
pub(crate) fn root(directory: &Path) -> Option<&Path> {
    directory.ancestors().take(4).find(|ancestor| ancestor.join("config.yaml").is_file())
}

/// Name → values of a split, out of the text of a `metrics.jsonl`. Lines that are none are passed over: the last one of a
/// run that is killed may be cut.
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

/// The lines in the order of their steps; of a session that was lost after its last checkpoint, only what no later one
/// did again.
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
