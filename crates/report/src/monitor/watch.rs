use super::find::{self, MonitorError};
use super::plan::ReadPlan;
use super::recommend::{MEASURED_STEPS, all_is_well, recommend};
use super::snapshot::{STALE_SECONDS, Snapshot, State};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use undertone_store::DirectoryLock;
use undertone_train::{Performance, Summary, TrainConfig};

/// Follows a run; of a run with tasks, the stage that is being trained.
#[derive(Debug)]
pub struct Monitor {
    run: PathBuf,
    plan: ReadPlan,
}

/// Number of lines of `performance.jsonl` that are combined: enough to average over batches of different lengths, few
/// enough to show a change.
const WINDOW: usize = 10;

/// Number of bytes that are read of a log, from its end: thousands of lines, among which the last evaluation is.
const TAIL: u64 = 4 << 20;

/// Directory of a Learner, with the last lines of its logs.
#[derive(Debug)]
struct Stage {
    dir: PathBuf,
    train: Option<Map<String, Value>>,
    valid: Option<Map<String, Value>>,
    latest: Vec<Performance>,
}

impl Monitor {
    /// Opens the run at the path `run`, or of that name below `runs`; without `run`, the most recently written run
    /// below `runs`. `plan` reads the configuration of a stage.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn open(run: Option<&Path>, runs: &Path, plan: ReadPlan) -> Result<Self, MonitorError> {
        Ok(Self { run: find::find_run(run, runs)?, plan })
    }

    /// Reads the run's files. Of several stages the most recently written one is read.
    pub fn look(&self) -> Snapshot {
        let stage = Stage::read(find::newest_stage(&self.run).unwrap_or_else(|| self.run.clone()));
        let root = find::root(&stage.dir).unwrap_or_else(|| self.run.clone());
        let plan = (self.plan)(&root, &stage.dir);
        let performance = Performance::over(&stage.latest);
        let summary = Summary::read(&stage.dir).filter(|summary| Some(summary.steps) >= stage.step());
        // A time that is still to come, by the clock of a file server, says nothing.
        let written = find::written(&stage.dir);
        let age = written.and_then(|at| Some(at.elapsed().ok()?.as_secs_f64()));
        let is_stale = written.is_some() && age.is_none_or(|seconds| seconds > STALE_SECONDS);
        let is_free = || [&root, &stage.dir].into_iter().all(|dir| DirectoryLock::is_held(dir) == Some(false));
        let state = match &summary {
            Some(summary) if summary.completed => State::Finished,
            Some(_) => State::Interrupted,
            None if is_stale && is_free() => State::Stopped,
            None => State::Running,
        };
        let step = summary.as_ref().map(|summary| summary.steps).or(stage.step());
        let steps = match state {
            State::Finished => step,
            _ => plan.as_ref().filter(|plan| plan.counted).and_then(|plan| stage.steps(&plan.train)),
        };
        let left = steps.zip(step).map(|(steps, step)| steps.saturating_sub(step) as f64);
        let each = performance.as_ref().filter(|p| p.steps > 0).map(|p| p.seconds / p.steps as f64);
        let settings = plan.as_ref().map(|plan| &plan.settings);
        let recommendations = performance.as_ref().map(|p| recommend(p, settings)).unwrap_or_default();
        let measured = performance.as_ref().filter(|p| recommendations.is_empty() && p.steps >= MEASURED_STEPS);
        Snapshot {
            stage: stage.dir.strip_prefix(&root).ok().filter(|s| *s != Path::new("")).map(|s| s.display().to_string()),
            run: root.display().to_string(),
            state,
            seconds_since_update: age,
            step,
            steps,
            eta_seconds: left.zip(each).filter(|_| state == State::Running).map(|(left, each)| left * each),
            train: stage.train,
            valid: stage.valid,
            all_is_well: measured.map(|performance| all_is_well(performance, settings)),
            performance,
            recommendations,
        }
    }
}

impl Stage {
    fn read(dir: PathBuf) -> Self {
        let [metrics, performance] = find::LOGS.map(|name| tail(&dir.join(name)).unwrap_or_default());
        let newest = performance.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
        let mut latest: Vec<Performance> = newest.take(WINDOW).collect();
        latest.reverse();
        Self { dir, train: last(&metrics, "train"), valid: last(&metrics, "valid"), latest }
    }

    /// Returns the last logged step.
    fn step(&self) -> Option<u64> {
        let of = |line: &Option<Map<String, Value>>| line.as_ref()?.get("step")?.as_u64();
        [of(&self.train), of(&self.valid), self.latest.last().map(|line| line.step)].into_iter().flatten().max()
    }

    /// Returns the total number of steps. If it is given in epochs, the batches per epoch are read from a checkpoint.
    fn steps(&self, train: &TrainConfig) -> Option<u64> {
        if train.max_steps.is_some() || train.epochs.is_none() {
            return Some(train.steps(1));
        }
        let checkpoints = std::fs::read_dir(self.dir.join("checkpoints")).ok()?;
        let newest =
            checkpoints.flatten().map(|entry| entry.path().join("state.json")).filter(|p| p.is_file()).max()?;
        let state: Value = serde_json::from_slice(&std::fs::read(newest).ok()?).ok()?;
        let number = |at: usize| usize::try_from(state.get("batching")?.get(at)?.as_u64()?).ok();
        let batches = number(0)?;
        // Batches of all processes make a step.
        Some(train.steps_of_windows(number(1)?, |_| batches))
    }
}

/// Returns the end of a file. A line that the beginning of it cuts, or that is still being written, is no JSON.
fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last line of `metrics.jsonl` of a split, without the split.
fn last(metrics: &str, split: &str) -> Option<Map<String, Value>> {
    let lines = metrics.lines().rev().filter(|line| line.contains(split));
    let mut parsed = lines.filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok());
    parsed.find_map(|mut line| (line.shift_remove("split")? == split).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_read_without_the_lines_that_are_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        assert!(tail(&path).is_err(), "there is no file yet");
        let long = format!("{{\"step\":0,\"split\":\"valid\",\"note\":\"{}\"}}", "x".repeat(4 << 20));
        let whole = r#"{"step":1,"split":"train"}"#;
        std::fs::write(&path, format!("{long}\n{whole}\n{{\"step\":2,\"split\":\"train\"")).expect("written");
        let end = tail(&path).expect("read");
        assert_eq!(last(&end, "valid"), None);
        assert_eq!(last(&end, "train").expect("a line")["step"], 1);
    }
}
