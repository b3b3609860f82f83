//! Results of a run: `metrics.jsonl` and `summary.json`.

use crate::TrainConfig;
use crate::objective::Example;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use undertone_metrics::{Direction, Interval};
use undertone_store::write_atomically;

/// Contents of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the run.
    pub name: String,
    /// Whether the run ended, as opposed to being interrupted.
    pub completed: bool,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Samples trained on.
    pub samples: u64,
    /// Numbers of trainable and of all parameters.
    pub parameters: ParameterCount,
    /// Seconds of training, evaluations included, over all sessions.
    pub seconds: f64,
    /// Samples trained on per second spent in training steps, this session.
    pub samples_per_second: f64,
    /// Share of the training steps' time spent waiting for batches, this session.
    pub data_wait: f64,
    /// Peak memory of the process in bytes, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// Metrics before training.
    pub before: BTreeMap<String, f64>,
    /// Metrics of the latest evaluation: after the last step, if the run is complete.
    pub after: BTreeMap<String, f64>,
    /// Confidence intervals of the metrics of the latest evaluation, by metric. Absent from older summaries.
    #[serde(default)]
    pub intervals: BTreeMap<String, Interval>,
    /// Directions of the metrics, as far as they are known. Absent from older summaries.
    #[serde(default)]
    pub directions: BTreeMap<String, Direction>,
    /// Best value of the deciding metric, and its step.
    pub best: Option<(f64, u64)>,
    /// Number of evaluations since the last improvement for early stopping. Absent from older summaries.
    #[serde(default)]
    pub stalled: u64,
    /// Remarks on the metrics, in sentences. Absent from older summaries.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// A few samples with the model's output before and after training.
    pub examples: Vec<ExampleChange>,
}

impl Summary {
    /// Reads the `summary.json` in a run's directory. `None` if there is no readable one.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.join("summary.json")).ok()?).ok()
    }

    /// Whether the run is finished under `config` with `steps` optimizer steps: it has taken them, or early stopping
    /// would end it at its current state.
    pub fn is_finished(&self, config: &TrainConfig, steps: u64) -> bool {
        let stopped = config.stops_after(self.stalled) && self.best.is_some();
        self.completed && (self.steps >= steps || stopped)
    }
}

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCount {
    /// Number of trainable parameters.
    pub trainable: usize,
    /// Number of all parameters.
    pub total: usize,
}

/// One sample before and after training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleChange {
    /// Name of the sample for messages.
    pub name: String,
    /// Reference text.
    pub reference: String,
    /// Hypothesis before training.
    pub before: Option<String>,
    /// Hypothesis now.
    pub after: String,
}

impl ExampleChange {
    /// Pairs the examples of two evaluations of the same data.
    pub fn pair(before: &[Example], after: &[Example]) -> Vec<Self> {
        let change = |(i, e): (usize, &Example)| Self {
            name: e.name.clone(),
            reference: e.reference.clone(),
            before: before.get(i).map(|b| b.hypothesis.clone()),
            after: e.hypothesis.clone(),
        };
        after.iter().enumerate().map(change).collect()
    }
}

/// Name of the file in a run's directory.
pub(crate) const METRICS: &str = "metrics.jsonl";

/// Writer of `metrics.jsonl`: a JSON object per line with step, split, and name → value.
#[derive(Debug)]
pub struct MetricsLog {
    file: File,
}

impl MetricsLog {
    /// Opens the file for a session whose first step is `from`. Lines of that step and later, from a session that was
    /// lost after its last checkpoint, are removed, because they will be written again.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path, from: u64) -> std::io::Result<Self> {
        Ok(Self { file: open_lines(path, from)? })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn write<'a>(
        &mut self,
        step: u64,
        split: &str,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> std::io::Result<()> {
        let mut line = Map::new();
        line.insert("step".into(), step.into());
        line.insert("split".into(), split.into());
        for (name, value) in values {
            line.insert(name.to_owned(), rounded(value));
        }
        writeln!(self.file, "{}", Value::Object(line))
    }
}

/// Opens a file of JSON lines with steps for appending, and removes its lines of step `from` and later.
pub(crate) fn open_lines(path: &Path, from: u64) -> std::io::Result<File> {
    retain_lines(path, |step, _| step < from)?;
    OpenOptions::new().append(true).open(path)
}

/// Removes the lines of an evaluation at `step` from `metrics.jsonl`, because that step is evaluated again. A session
/// may have been lost after logging the evaluation and before saving that it was done.
pub(crate) fn drop_evaluation(path: &Path, step: u64) -> std::io::Result<()> {
    retain_lines(path, |at, line| at != step || line["split"] == "train")
}

/// Rewrites a file of JSON lines with steps, without those for which `keeps` is false and without invalid lines.
fn retain_lines(path: &Path, keeps: impl Fn(u64, &Value) -> bool) -> std::io::Result<()> {
    let mut kept = String::new();
    if path.exists() {
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            if value["step"].as_u64().is_some_and(|step| keeps(step, &value)) {
                kept.push_str(&line);
                kept.push('\n');
            }
        }
    }
    write_atomically(path, kept.as_bytes()).map_err(std::io::Error::other)
}

/// Rounds to seven significant digits, the precision of an f32.
pub(crate) fn rounded(value: f64) -> Value {
    format!("{value:.6e}").parse::<f64>().ok().and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_run_is_unfinished_once_more_steps_are_asked_of_it_unless_it_stopped_early() {
        let config = |patience| {
            let early_stopping = (patience > 0).then(|| crate::EarlyStoppingConfig::after(patience));
            TrainConfig { early_stopping, ..Default::default() }
        };
        let summary = Summary {
            name: "run".into(),
            completed: true,
            steps: 10,
            samples: 80,
            parameters: ParameterCount { trainable: 1, total: 2 },
            seconds: 1.5,
            samples_per_second: 60.0,
            data_wait: 0.1,
            peak_memory_bytes: None,
            before: BTreeMap::new(),
            after: BTreeMap::new(),
            intervals: BTreeMap::new(),
            directions: BTreeMap::new(),
            best: Some((0.1, 4)),
            stalled: 3,
            remarks: Vec::new(),
            examples: Vec::new(),
        };
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Summary::read(dir.path()), None);
        let mut json = serde_json::to_value(&summary).expect("JSON");
        let write = |json: &Value| std::fs::write(dir.path().join("summary.json"), json.to_string()).expect("written");
        write(&json);
        assert_eq!(Summary::read(dir.path()).as_ref(), Some(&summary));
        let finished = |summary: &Summary, patience, steps| summary.is_finished(&config(patience), steps);
        assert!(finished(&summary, 0, 10) && finished(&summary, 0, 9));
        assert!(!finished(&summary, 0, 11), "more steps");
        assert!(finished(&summary, 3, 11), "stopped early");
        assert!(!finished(&summary, 4, 11), "more patience");
        assert!(!finished(&Summary { completed: false, ..summary.clone() }, 3, 10), "interrupted");
        assert!(!finished(&Summary { best: None, ..summary.clone() }, 3, 11), "nothing was ever scored");
        json.as_object_mut().expect("an object").shift_remove("stalled").expect("a count");
        write(&json);
        assert_eq!(Summary::read(dir.path()).expect("an older summary"), Summary { stalled: 0, ..summary });
    }

    #[test]
    fn lines_from_the_resumed_step_on_are_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        let mut log = MetricsLog::open(&path, 0).expect("opened");
        for step in 1..=4 {
            log.write(step, "train", [("loss", 1.0 / 3.0)]).expect("written");
        }
        let mut log = MetricsLog::open(&path, 3).expect("opened");
        log.write(3, "valid", [("error", f64::NAN)]).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], r#"{"step":1,"split":"train","loss":0.3333333}"#);
        assert_eq!(lines[2], r#"{"step":3,"split":"valid","error":null}"#);
        let mut log = MetricsLog::open(&path, 4).expect("opened");
        log.write(3, "train", [("loss", 0.5)]).expect("written");
        drop_evaluation(&path, 3).expect("dropped");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text.lines().last(), Some(r#"{"step":3,"split":"train","loss":0.5}"#), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
