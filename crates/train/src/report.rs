//! What a run leaves behind for people and scripts: `metrics.jsonl` and `summary.json`.

use crate::TrainConfig;
use crate::objective::Example;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use undertone_metrics::Direction;
use undertone_store::write_atomically;

/// What `summary.json` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// Whether it ran to its end, or was interrupted.
    pub completed: bool,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Samples trained on.
    pub samples: u64,
    /// Parameters that training changed, and all of them.
    pub parameters: ParameterCount,
    /// Seconds of training, evaluations included, over all sessions.
    pub seconds: f64,
    /// Samples trained on per second spent in training steps, this session.
    pub samples_per_second: f64,
    /// The share of the training steps' time spent waiting for batches, this session.
    pub data_wait: f64,
    /// The most memory the process held, in bytes, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Metrics before training.
    pub before: BTreeMap<String, f64>,
    /// Metrics of the latest evaluation: after the last step, if the run is complete.
    pub after: BTreeMap<String, f64>,
    /// Which way those are better, as far as that is known; older summaries do not have it.
    #[serde(default)]
    pub directions: BTreeMap<String, Direction>,
    /// The deciding metric's best value and its step.
    pub best: Option<(f64, u64)>,
    /// Evaluations since the last one that was better by what early stopping asks for; older summaries do not have it.
    #[serde(default)]
    pub stalled: u64,
    /// What is to be known of the metrics, in sentences; older summaries do not have it.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// A few samples as the model read them before and after.
    pub examples: Vec<ExampleChange>,
}

impl Summary {
    /// What the `summary.json` of a run's directory says; nothing where there is none that can be read.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.join("summary.json")).ok()?).ok()
    }

    /// Whether nothing is left to do of a run that `config` asks `steps` optimizer steps of by now: it has taken them, or
    /// early stopping would end it where it stands.
    pub fn is_finished(&self, config: &TrainConfig, steps: u64) -> bool {
        let stopped = config.early_stopping.ends(self.stalled) && self.best.is_some();
        self.completed && (self.steps >= steps || stopped)
    }
}

/// How many parameters there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCount {
    /// Those that training changes.
    pub trainable: usize,
    /// All of them.
    pub total: usize,
}

/// One sample before and after training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExampleChange {
    /// What a person would call the sample.
    pub name: String,
    /// What it says.
    pub reference: String,
    /// What the model made of it before training.
    pub before: Option<String>,
    /// What it makes of it now.
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

/// The file's name in a run's directory.
pub(crate) const METRICS: &str = "metrics.jsonl";

/// `metrics.jsonl`: one JSON object a line with step, split, and name → value.
#[derive(Debug)]
pub struct MetricsLog {
    file: File,
}

impl MetricsLog {
    /// Opens it for a session whose first step will be `from`: lines of that step and later, left by a session that was
    /// lost after its last checkpoint, are dropped, for they will be written again.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path, from: u64) -> std::io::Result<Self> {
        Ok(Self { file: open_lines(path, from)? })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// When the disk refuses.
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

/// A file of JSON lines with steps, ready for more, without its lines of step `from` and later.
pub(crate) fn open_lines(path: &Path, from: u64) -> std::io::Result<File> {
    retain_lines(path, |step, _| step < from)?;
    OpenOptions::new().append(true).open(path)
}

/// Drops what an evaluation at `step` wrote into `metrics.jsonl`, where that step is judged again: a session may have been
/// lost between writing it down and saving that it had.
pub(crate) fn drop_evaluation(path: &Path, step: u64) -> std::io::Result<()> {
    retain_lines(path, |at, line| at != step || line["split"] == "train")
}

/// Writes a file of JSON lines with steps again, without those that `keeps` is false of and those that are none.
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

/// Seven significant digits: what an f32 has.
pub(crate) fn rounded(value: f64) -> Value {
    format!("{value:.6e}").parse::<f64>().ok().and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number)
}

/// The most memory this process has held, in bytes, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_run_is_unfinished_once_more_steps_are_asked_of_it_unless_it_stopped_early() {
        let config = |patience| {
            let mut config = TrainConfig::default();
            config.early_stopping.patience = patience;
            config
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
