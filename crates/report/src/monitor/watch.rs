use super::find::{self, MonitorError};
use super::follow::Follower;
use super::plan::ReadPlan;
use super::recommend::{MEASURED_STEPS, all_is_well, recommend};
use super::snapshot::{STALE_SECONDS, Snapshot, State};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use undertone_store::DirectoryLock;
use undertone_train::{Performance, Summary, TrainConfig};

/// Follows a run; of a run with tasks, the stage that is being trained.
#[derive(Debug)]
pub struct Monitor {
    run: PathBuf,
    stage: Stage,
    plan: ReadPlan,
}

/// Number of lines of `performance.jsonl` that are combined: enough to average over batches of different lengths, few
/// enough to show a change.
const WINDOW: usize = 10;

/// Directory of a Learner, with what was read from it so far.
#[derive(Debug)]
struct Stage {
    dir: PathBuf,
    metrics: Follower,
    performance: Follower,
    train: Option<Map<String, Value>>,
    valid: Option<Map<String, Value>>,
    latest: VecDeque<Performance>,
}

impl Monitor {
    /// Opens the run at the path `run`, or of that name below `runs`; without `run`, the most recently written run
    /// below `runs`. `plan` reads the configuration of a stage.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn open(run: Option<&Path>, runs: &Path, plan: ReadPlan) -> Result<Self, MonitorError> {
        let run = find::find_run(run, runs)?;
        let stage = Stage::new(find::newest_stage(&run).unwrap_or_else(|| run.clone()));
        Ok(Self { run, stage, plan })
    }

    /// Reads what was written since the last call. Of several stages the most recently written one is read.
    pub fn look(&mut self) -> Snapshot {
        if let Some(newest) = find::newest_stage(&self.run).filter(|newest| *newest != self.stage.dir) {
            self.stage = Stage::new(newest);
        }
        self.stage.read();
        self.snapshot()
    }

    fn snapshot(&self) -> Snapshot {
        let stage = &self.stage;
        let root = find::root(&stage.dir).unwrap_or_else(|| self.run.clone());
        let plan = (self.plan)(&root, &stage.dir);
        let performance = Performance::over(&Vec::from(stage.latest.clone()));
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
            train: stage.train.clone(),
            valid: stage.valid.clone(),
            all_is_well: measured.map(|performance| all_is_well(performance, settings)),
            performance,
            recommendations,
        }
    }
}

impl Stage {
    fn new(dir: PathBuf) -> Self {
        let [metrics, performance] = find::LOGS.map(|name| Follower::new(dir.join(name)));
        Self { dir, metrics, performance, train: None, valid: None, latest: VecDeque::new() }
    }

    fn read(&mut self) {
        let metrics = self.metrics.look::<Map<String, Value>>();
        if metrics.restarted {
            (self.train, self.valid) = (None, None);
        }
        for mut line in metrics.lines {
            match line.shift_remove("split").as_ref().and_then(Value::as_str) {
                Some("train") => self.train = Some(line),
                Some("valid") => self.valid = Some(line),
                _ => {}
            }
        }
        let performance = self.performance.look::<Performance>();
        if performance.restarted {
            self.latest.clear();
        }
        self.latest.extend(performance.lines);
        self.latest.drain(..self.latest.len().saturating_sub(WINDOW));
    }

    /// Returns the last logged step.
    fn step(&self) -> Option<u64> {
        let of = |line: &Option<Map<String, Value>>| line.as_ref()?.get("step")?.as_u64();
        [of(&self.train), of(&self.valid), self.latest.back().map(|line| line.step)].into_iter().flatten().max()
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
