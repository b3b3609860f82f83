//! Logs of a run: `metrics.jsonl`, and optionally `metrics.csv` and TensorBoard's event files.

use crate::performance::{Performance, PerformanceLog};
use crate::report::{METRICS, MetricsLog};
use crate::table::MetricsTable;
use crate::tensorboard::EventFile;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Logs of a session. Each value goes to all of them.
#[derive(Debug)]
pub(crate) struct Records {
    dir: PathBuf,
    metrics: MetricsLog,
    performance: PerformanceLog,
    table: Option<MetricsTable>,
    events: Option<EventFile>,
}

impl Records {
    /// Opens the logs of the run in `dir` for a session whose first step is `from`. Lines of that step and later from
    /// earlier sessions are removed, because they will be written again.
    pub fn open(dir: &Path, from: u64, csv: bool, tensorboard: bool) -> Result<Self> {
        let path = dir.join(METRICS);
        let metrics = MetricsLog::open(&path, from)?;
        let performance = PerformanceLog::open(dir, from)?;
        let table = csv.then(|| MetricsTable::open(&dir.join("metrics.csv"), &path)).transpose()?;
        let events = tensorboard.then(|| EventFile::open(dir, from, now())).transpose()?;
        Ok(Self { dir: dir.to_owned(), metrics, performance, table, events })
    }

    /// Removes the lines of step `from` and later.
    pub fn rewind(&mut self, from: u64) -> Result<()> {
        *self = Self::open(&self.dir, from, self.table.is_some(), self.events.is_some())?;
        Ok(())
    }

    /// Logs the configuration, in logs that have a place for it.
    pub fn configuration(&mut self, from: u64, yaml: &str) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        events.text(from, now(), "config", &format!("```yaml\n{yaml}\n```"))
    }

    /// Logs performance; TensorBoard shows it as `performance/name`.
    pub fn perform(&mut self, performance: &Performance) -> Result<()> {
        self.performance.write(performance)?;
        let Some(events) = &mut self.events else { return Ok(()) };
        let values = performance.values().into_iter();
        let tagged: Vec<(String, f64)> = values.map(|(name, value)| (format!("performance/{name}"), value)).collect();
        events.scalars(performance.step, now(), tagged.iter().map(|(tag, value)| (tag.as_str(), *value)))
    }

    /// Logs values of a step; TensorBoard shows them as `split/name`.
    pub fn write(&mut self, step: u64, split: &str, values: &[(&str, f64)]) -> Result<()> {
        self.metrics.write(step, split, values.iter().copied())?;
        if let Some(table) = &mut self.table {
            table.write(step, split, values)?;
        }
        let Some(events) = &mut self.events else { return Ok(()) };
        let tagged: Vec<(String, f64)> =
            values.iter().map(|(name, value)| (format!("{split}/{name}"), *value)).collect();
        events.scalars(step, now(), tagged.iter().map(|(tag, value)| (tag.as_str(), *value)))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorboard::tests::points;

    #[test]
    fn every_value_is_in_all_and_no_step_in_any_twice() {
        let dir = tempfile::tempdir().expect("a directory");
        let session = |from: u64, to: u64, offset: f64| {
            let mut records = Records::open(dir.path(), from, true, true).expect("opened");
            records.configuration(from, "seed: 1").expect("noted");
            for step in from..to {
                records.write(step, "train", &[("loss", step as f64 + offset), ("lr", 0.5)]).expect("written");
            }
        };
        session(0, 6, 0.0);
        // Lost after the checkpoint of step 2.
        session(3, 5, 10.0);
        let expected = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 13.0), (4, 14.0)];
        assert_eq!(points(dir.path(), "train/loss"), expected);
        assert_eq!(points(dir.path(), "train/lr").len(), 5);
        let text = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("read");
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let lines: Vec<(u64, f32)> =
            lines.map(|l| (l["step"].as_u64().expect("a step"), l["loss"].as_f64().expect("a loss") as f32)).collect();
        assert_eq!(lines, expected);
        let table = std::fs::read_to_string(dir.path().join("metrics.csv")).expect("read");
        assert_eq!(
            table,
            "step,split,loss,lr\n0,train,0.0,0.5\n1,train,1.0,0.5\n2,train,2.0,0.5\n3,train,13.0,0.5\n4,train,14.0,0.5\n"
        );
    }

    #[test]
    fn there_are_no_tables_and_event_files_unless_they_are_wanted() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut records = Records::open(dir.path(), 0, false, false).expect("opened");
        records.configuration(0, "seed: 1").expect("nothing to note");
        records.write(1, "train", &[("loss", 1.0)]).expect("written");
        let names: Vec<_> =
            std::fs::read_dir(dir.path()).expect("listed").map(|e| e.expect("an entry").file_name()).collect();
        let mut names = names;
        names.sort();
        assert_eq!(names, ["metrics.jsonl", "performance.jsonl"]);
    }
}
