//! Search for a learning rate: what is trained at each rate, and where trials are recorded.

use crate::run::{Baseline, Phase, Setup, StageKind, StageSpec, stages, train, train_baseline, train_phases};
use crate::run_directory::has_learned;
use crate::{Experiment, RunError, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use undertone_fit::{RateError, RateOptions, RateSearch, RateTrial, search_rates};
use undertone_metrics::Direction;
use undertone_report::{RateCurve, RatePage, ReportError};
use undertone_store::{DirectoryLock, StoreError, write_json};
use undertone_train::{Display, Summary, TrainConfig, TrainError};

/// What a search trains at each rate: the stages of a run that have one learning rate.
#[derive(Clone, Debug)]
pub struct RateSubject {
    experiment: Experiment,
    part: Part,
    kind: StageKind,
    /// Training configuration of its first stage.
    config: TrainConfig,
    /// Optimizer steps of that stage.
    planned: u64,
    /// Direction of the metric that decides.
    direction: Direction,
}

/// Part of an experiment with a learning rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The model of a run without tasks.
    Model,
    /// Phase 1 of a task.
    Task(usize),
    /// Phase 1 of all tasks at once.
    Adapters,
    Baseline(Baseline),
}

/// Reason why a search has no result.
#[derive(Debug, thiserror::Error)]
pub enum RateSearchError {
    /// A trial failed, for another reason than that training diverged.
    #[error(transparent)]
    Run(Box<RunError>),
    /// The search itself has no result.
    #[error("{0} (`train.checkpoint.metric` decides; in a run with tasks the first of a task's `metrics`)")]
    Search(#[from] RateError),
    /// It was interrupted.
    #[error("the search was interrupted: the same command goes on with it")]
    Interrupted,
    /// The directory holds another search.
    #[error(
        "`{}` holds a search with another configuration or other steps or rates: add `--set run.overwrite=true` to replace it, \
         or `--set run.name=...` for another place",
        .0.display()
    )]
    Other(PathBuf),
    /// A trial has no value of the metric.
    #[error("an evaluation has no `{metric}`: it has {found}")]
    NoMetric {
        /// Metric that decides.
        metric: String,
        /// Metrics that there are.
        found: String,
    },
    /// Its records cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its page cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl From<RunError> for RateSearchError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

/// Name of the records of a search in its directory.
const RECORDS: &str = "search.json";

/// Records of a search, from which the same search goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Records {
    /// Configuration that is searched for.
    config: String,
    rates: Vec<f64>,
    steps: u64,
    /// Finished trials: rate, steps and value.
    trials: Vec<(f64, u64, Option<f64>)>,
}

/// Returns what there is to search in a run: its model, or phase 1 of each of its tasks, or of all if they train at once; with
/// `baseline`, that baseline of a run with tasks.
///
/// # Errors
/// When the experiment cannot be trained.
pub fn rate_subjects(experiment: &Experiment, baseline: Option<Baseline>) -> Result<Vec<RateSubject>, RunError> {
    let parts: Vec<Part> = match baseline {
        _ if experiment.tasks.is_empty() && baseline.is_some() => return Err(RunError::NoTasks),
        // A trial has a directory of its own, without the adapters that teach.
        Some(Baseline::Distilled) => return Err(RunError::Setting(NO_TEACHER_IN_A_TRIAL.into())),
        Some(baseline) => vec![Part::Baseline(baseline)],
        None if experiment.tasks.is_empty() => vec![Part::Model],
        None if experiment.phases.adapters.mixed => vec![Part::Adapters],
        None => (0..experiment.tasks.len()).map(Part::Task).collect(),
    };
    let setup = Setup::new(experiment)?;
    parts.into_iter().map(|part| RateSubject::new(experiment, &setup, part)).collect()
}

const NO_TEACHER_IN_A_TRIAL: &str = "no rate can be searched for the baseline `distilled`, which learns from adapters of a finished run: search with \
     `--baseline shared`, and use its rate in `phases.baselines.distilled`";

impl RateSubject {
    fn new(experiment: &Experiment, setup: &Setup, part: Part) -> Result<Self, RunError> {
        let kind = match part {
            Part::Model => StageKind::Model,
            Part::Task(_) | Part::Adapters => StageKind::Phase(Phase::Adapters),
            Part::Baseline(baseline) => StageKind::Baseline(baseline),
        };
        let of_part = |stage: &StageSpec| match part {
            Part::Task(index) => stage.task == Some(index),
            _ => true,
        };
        let stage = stages(experiment, kind).into_iter().find(of_part).ok_or(RunError::NoTasks)?;
        let (config, planned) = stage.planned(setup)?;
        let direction = stage.direction(&config.checkpoint.metric);
        Ok(Self { experiment: experiment.clone(), part, kind, config, planned, direction })
    }

    /// Name of what is trained.
    pub fn name(&self) -> String {
        match self.part {
            Part::Model => self.experiment.run.name.clone(),
            Part::Task(index) => format!("task `{}`", self.experiment.tasks[index].name),
            Part::Adapters => "phase 1".into(),
            Part::Baseline(baseline) => format!("baseline `{}`", baseline.name()),
        }
    }

    /// Key of its learning rate.
    pub fn key(&self) -> String {
        let section = match self.part {
            Part::Model => "train".into(),
            Part::Task(index) => format!("tasks.{}.train", self.experiment.tasks[index].name),
            Part::Adapters => "phases.1.train".into(),
            Part::Baseline(baseline) => format!("phases.baselines.{}", baseline.name()),
        };
        format!("{section}.optimizer.lr")
    }

    /// Configured learning rate.
    pub fn rate(&self) -> f64 {
        self.config.optimizer.lr
    }

    /// Optimizer steps that its training takes.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Metric that decides.
    pub fn metric(&self) -> &str {
        &self.config.checkpoint.metric
    }

    /// Directory of the search.
    pub fn directory(&self) -> PathBuf {
        let root = root(&self.experiment);
        match self.part {
            Part::Model => root,
            Part::Task(index) => root.join(&self.experiment.tasks[index].name),
            Part::Adapters => root.join("phase1"),
            Part::Baseline(baseline) => root.join("baselines").join(baseline.name()),
        }
    }

    /// Writes a learning rate into a configuration that has the part.
    pub fn set_rate(&self, experiment: &mut Experiment, rate: f64) {
        match self.section(experiment) {
            _ if self.part == Part::Model => experiment.train.optimizer.lr = rate,
            Some(section) => insert(section, "optimizer", "lr", rate.into()),
            // An experiment without that task.
            None => {}
        }
    }

    /// Returns the part's own keys of `train`; none for the model of a run without tasks.
    fn section<'a>(&self, experiment: &'a mut Experiment) -> Option<&'a mut Map<String, Value>> {
        let phases = &mut experiment.phases;
        match self.part {
            Part::Model => None,
            Part::Task(index) => {
                let name = &self.experiment.tasks[index].name;
                experiment.tasks.iter_mut().find(|task| task.name == *name).map(|task| &mut task.train)
            }
            Part::Adapters => Some(&mut phases.adapters.train),
            Part::Baseline(Baseline::Head) => Some(&mut phases.baselines.head),
            Part::Baseline(Baseline::Shared) => Some(&mut phases.baselines.shared),
            Part::Baseline(Baseline::Distilled) => Some(&mut phases.baselines.distilled),
            Part::Baseline(Baseline::Full) => Some(&mut phases.baselines.full),
        }
    }

    /// Searches for the rate. `found` is called with each trial, also with those of an earlier session.
    ///
    /// # Errors
    /// When no rate is better than another, a trial fails, or the session is interrupted.
    pub fn search(
        &self,
        options: &RateOptions,
        session: &Session,
        mut found: impl FnMut(&RateTrial),
    ) -> Result<RateSearch, RateSearchError> {
        options.validate()?;
        let _heeding = session.interrupt.heed();
        let directory = self.directory();
        let _lock = DirectoryLock::acquire(&directory).map_err(RunError::from)?;
        let mut records = self.records(&directory, options)?;
        // Before the first trial, so that one which was interrupted is known to be of this search.
        records.write(&directory)?;
        let search = search_rates(options, self.direction, |rate, steps| {
            let known = records.trials.iter().find(|(tried, length, _)| *tried == rate && *length == steps);
            let value = match known {
                Some((.., value)) => *value,
                None if session.interrupt.is_asked() => return Err(RateSearchError::Interrupted),
                None => {
                    let value = self.trial(&directory, rate, steps, session)?;
                    records.trials.push((rate, steps, value));
                    records.write(&directory)?;
                    // Killed before the record, a trial needs them to go on.
                    remove_weights(&directory.join(trial_name(rate, steps)));
                    value
                }
            };
            found(&RateTrial { rate, steps, value });
            Ok::<_, RateSearchError>(value)
        })?;
        self.page(&search).write(&directory)?;
        Ok(search)
    }

    /// Returns the records of this search: those in its directory, or new ones.
    fn records(&self, directory: &Path, options: &RateOptions) -> Result<Records, RateSearchError> {
        let (config, rates, steps) = (without_overwrite(&self.experiment), options.rates.clone(), options.steps);
        let new = Records { config, rates, steps, trials: Vec::new() };
        match Records::read(directory)? {
            Some(earlier) if (Records { trials: Vec::new(), ..earlier.clone() }) == new => Ok(earlier),
            None if trials(directory).is_empty() => Ok(new),
            // Trials of another search would otherwise be resumed.
            _ if self.experiment.run.overwrite => {
                let io = |source| StoreError::Io { action: "clear", path: directory.to_owned(), source };
                trials(directory).iter().try_for_each(std::fs::remove_dir_all).map_err(io)?;
                Ok(new)
            }
            _ => Err(RateSearchError::Other(directory.to_owned())),
        }
    }

    /// Trains with a rate. Returns the metric; `None` if training diverged.
    fn trial(
        &self,
        directory: &Path,
        rate: f64,
        steps: u64,
        session: &Session,
    ) -> Result<Option<f64>, RateSearchError> {
        let experiment = self.trial_experiment(directory, rate, steps);
        let begun = stages(&experiment, self.kind).iter().any(|stage| has_learned(&stage.directory));
        let session = Session { resume: begun, display: Display::Nothing, ..session.clone() };
        let outcomes = match self.part {
            Part::Model => train(&experiment, &session),
            Part::Task(_) | Part::Adapters => train_phases(&experiment, &[Phase::Adapters], &session),
            Part::Baseline(baseline) => train_baseline(&experiment, baseline, &session),
        };
        let outcomes = match outcomes {
            Err(RunError::Train(TrainError::Guard { .. })) => return Ok(None),
            outcomes => outcomes?,
        };
        let mut values = Vec::new();
        for outcome in outcomes {
            let Some(summary) = Summary::read(&outcome.directory) else { return Err(RateSearchError::Interrupted) };
            if !summary.completed {
                return Err(RateSearchError::Interrupted);
            }
            let Some(value) = summary.after.get(self.metric()) else {
                // Numbers that are not finite are in no summary.
                if summary.before.contains_key(self.metric()) {
                    return Ok(None);
                }
                let found = summary.after.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(RateSearchError::NoMetric { metric: self.metric().to_owned(), found });
            };
            values.push(*value);
        }
        // Of several stages with one rate, the mean.
        Ok(Some(values.iter().sum::<f64>() / values.len() as f64))
    }

    /// Returns the experiment of a trial: a whole run of its length, evaluated before and after.
    fn trial_experiment(&self, directory: &Path, rate: f64, steps: u64) -> Experiment {
        let mut trial = self.experiment.clone();
        trial.run.dir = directory.to_owned();
        trial.run.name = trial_name(rate, steps);
        trial.run.overwrite = true;
        // The same share of the steps as in the whole training.
        let warmup = self.config.optimizer.warmup(self.planned) as f64 / self.planned.max(1) as f64 * steps as f64;
        let warmup = (warmup.round() as u64).min(steps - 1);
        let base = &mut trial.train;
        (base.early_stopping, base.evaluate.every, base.checkpoint.every) = (None, 0, 0);
        let phases = &mut trial.phases;
        let baselines = &mut phases.baselines;
        let of_baselines = [&mut baselines.head, &mut baselines.shared, &mut baselines.distilled, &mut baselines.full];
        let sections = [&mut phases.adapters.train]
            .into_iter()
            .chain(of_baselines)
            .chain(trial.tasks.iter_mut().map(|task| &mut task.train));
        for section in sections {
            section.remove("early_stopping");
        }
        match self.section(&mut trial) {
            None => {
                let train = &mut trial.train;
                (train.max_steps, train.epochs) = (Some(steps), None);
                train.optimizer.warmup_steps = Some(warmup);
            }
            Some(section) => {
                section.remove("epochs");
                section.insert("max_steps".into(), steps.into());
                insert(section, "optimizer", "warmup_steps", warmup.into());
                insert(section, "evaluate", "every", 0.into());
                insert(section, "checkpoint", "every", 0.into());
            }
        }
        self.set_rate(&mut trial, rate);
        if let Part::Task(index) = self.part {
            trial.tasks = vec![trial.tasks.swap_remove(index)];
        }
        trial
    }

    /// Returns the page of a finished search.
    fn page(&self, search: &RateSearch) -> RatePage {
        let mut lengths: Vec<u64> = search.trials.iter().map(|trial| trial.steps).collect();
        lengths.dedup();
        let curve = |steps: u64| {
            let mut points: Vec<(f64, Option<f64>)> =
                search.trials.iter().filter(|t| t.steps == steps).map(|t| (t.rate, t.value)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            RateCurve { steps, points }
        };
        RatePage {
            name: self.name(),
            metric: self.metric().to_owned(),
            direction: self.direction,
            curves: lengths.into_iter().map(curve).collect(),
            best: search.best,
        }
    }
}

impl Records {
    /// Reads those of a directory, if there are any. What cannot be understood is another search's.
    fn read(directory: &Path) -> Result<Option<Self>, StoreError> {
        let path = directory.join(RECORDS);
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
            Ok(text) => Ok(Some(serde_json::from_slice(&text).unwrap_or_default())),
        }
    }

    fn write(&self, directory: &Path) -> Result<(), StoreError> {
        write_json(&directory.join(RECORDS), self)
    }
}

/// Name of the run of a trial.
fn trial_name(rate: f64, steps: u64) -> String {
    format!("{rate:e}-{steps}")
}

/// Returns the directories of trials in that of a search. Other entries may be the user's own.
fn trials(directory: &Path) -> Vec<PathBuf> {
    let is_trial = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let parts = name.and_then(|name| name.rsplit_once('-'));
        let parsed = parts.and_then(|(rate, steps)| Some((rate.parse().ok()?, steps.parse().ok()?)));
        path.is_dir() && parsed.is_some_and(|(rate, steps)| name == Some(&trial_name(rate, steps)))
    };
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_trial).collect()
}

/// Directory of all searches for the rates of an experiment.
pub(super) fn root(experiment: &Experiment) -> PathBuf {
    experiment.run.dir.join(format!("{}-lr", experiment.run.name))
}

/// Configuration by which a search is known again.
pub(super) fn without_overwrite(experiment: &Experiment) -> String {
    let mut experiment = experiment.clone();
    experiment.run.overwrite = false;
    experiment.to_yaml()
}

/// Sets `section.key` in a map of keys.
fn insert(keys: &mut Map<String, Value>, section: &str, key: &str, value: Value) {
    let section = keys.entry(section).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(section) = section {
        section.insert(key.into(), value);
    }
}

/// Removes models and checkpoints of a finished trial: its curves and its summary stay. What cannot be removed stays as well.
fn remove_weights(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        match path.file_name().and_then(|name| name.to_str()) {
            Some("best" | "best_ema" | "checkpoints") => _ = std::fs::remove_dir_all(&path),
            _ => remove_weights(&path),
        }
    }
}
