//! The choice of a stage and a task of a run, by a directory and the name of the task.

use super::model::TaskModel;
use super::phase::Phase;
use super::setup::Setup;
use super::stage::{ADAPTER, SHARED, Stage, is_complete};
use super::stages::{all_stages, stages};
use crate::config::TaskConfig;
use crate::run_directory::CONFIG;
use crate::{Experiment, ModelConfig, RunError};
use std::path::{Path, PathBuf};

/// Model that one stage of a run trained for one task.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Configuration of the run, with its current directory.
    pub experiment: Experiment,
    /// Stage whose best model is chosen.
    pub stage: Stage,
    /// Index of the task; 0 for a run without tasks.
    pub(super) task: usize,
}

impl Choice {
    /// Chooses the model for `task` of the run in `directory`, or of one of its stages if `directory` is that of a
    /// stage. If there is only one task, its name may be left out. In the directory of a run, the finished stage of the
    /// latest phase is chosen. `settings` change the run's configuration.
    ///
    /// # Errors
    /// When there is no run, no such task, or nothing trained; and when there are several tasks and none is named.
    pub fn of(directory: &Path, task: Option<&str>, settings: &[String]) -> Result<Self, RunError> {
        let root = root_of(directory).ok_or_else(|| RunError::NoRun(directory.to_owned()))?;
        let mut experiment = Experiment::load(Some(&root.join(CONFIG)), settings)?;
        experiment.at(&root);
        let asked = directory.strip_prefix(&root).unwrap_or(Path::new(""));
        // The directory of a stage's model stands for the stage.
        let asked = if asked.ends_with("best") { asked.parent().unwrap_or(asked) } else { asked };
        let number = task.map(|task| number_of(&experiment, task)).transpose()?;
        let (stage, task) = match (asked.as_os_str().is_empty(), experiment.tasks.len()) {
            (true, 0) => (Stage::Whole, 0),
            (true, _) => {
                let task = number.map_or_else(|| only_task(&experiment), Ok)?;
                (latest_with(&experiment, task)?, task)
            }
            (false, _) => {
                let stage = stage_in(&experiment, &root.join(asked))?;
                let task = task_of(&experiment, &stage, number)?;
                (stage, task)
            }
        };
        let best = stage.directory(&experiment).join("best");
        if !best.is_dir() {
            return Err(RunError::NoModel(stage.directory(&experiment)));
        }
        Ok(Self { experiment, stage, task })
    }

    /// Returns the folder of the adapter, in PEFT's layout; `None` if the stage trains no adapter.
    pub fn adapter(&self) -> Option<PathBuf> {
        let name = match self.stage {
            Stage::Head(_) | Stage::Full => return None,
            Stage::Whole if self.stage.is_plain(&self.experiment) => return None,
            Stage::Whole => ADAPTER,
            Stage::Shared => SHARED,
            _ => &self.experiment.tasks[self.task].name,
        };
        Some(self.stage.directory(&self.experiment).join("best/adapters").join(name))
    }

    /// Whether its model is a complete folder in the Hugging Face layout.
    pub fn is_whole(&self) -> bool {
        self.stage.is_plain(&self.experiment)
    }

    /// Whether it has trained a head for the task.
    pub fn has_head(&self) -> bool {
        self.stage != Stage::Whole
    }

    /// Returns the chosen task as a list.
    pub(super) fn tasks(&self) -> Vec<TaskConfig> {
        vec![self.experiment.all_tasks().swap_remove(self.task)]
    }

    /// Returns the experiment with the backbone to load: the initial one, or the trained one if the stage trained its
    /// weights.
    pub(super) fn backbone(&self) -> Experiment {
        let mut experiment = self.experiment.clone();
        if self.stage.is_plain(&experiment) {
            let best = self.stage.directory(&experiment).join("best");
            experiment.model = ModelConfig { path: Some(best), ..experiment.model };
        }
        experiment
    }

    /// Loads the model with the adapter and the head of the task alone. `setup` is that of
    /// [`backbone`](Self::backbone).
    pub(super) fn model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        match self.stage.is_plain(&self.experiment) {
            true => Ok(TaskModel::plain(setup.pretrained.network())),
            false => self.stage.trained_for(self.task, setup),
        }
    }
}

/// Returns the directory of the run that `directory` is or belongs to.
pub(crate) fn root_of(directory: &Path) -> Option<PathBuf> {
    // The deepest stage directory is `baselines/head/TASK`.
    let above = directory.ancestors().take(4).find(|above| above.join(CONFIG).is_file());
    above.filter(|root| !root.as_os_str().is_empty()).map(Path::to_owned)
}

fn number_of(experiment: &Experiment, task: &str) -> Result<usize, RunError> {
    let found = experiment.tasks.iter().position(|known| known.name == task);
    found.ok_or_else(|| RunError::NoSuchTask { task: task.to_owned(), known: known(experiment) })
}

fn only_task(experiment: &Experiment) -> Result<usize, RunError> {
    if experiment.tasks.len() == 1 { Ok(0) } else { Err(RunError::WhichTask(known(experiment))) }
}

/// Returns the names of the tasks for a message.
fn known(experiment: &Experiment) -> String {
    let names: Vec<&str> = experiment.tasks.iter().map(|task| task.name.as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Returns the latest finished stage that has the task's adapter.
fn latest_with(experiment: &Experiment, task: usize) -> Result<Stage, RunError> {
    let later = Phase::ALL.iter().rev().flat_map(|phase| stages(experiment, *phase));
    let mut with_task = later.filter(|stage| !matches!(stage, Stage::Adapter(other) if *other != task));
    let found = with_task.find(|stage| is_complete(&stage.directory(experiment)));
    found.ok_or_else(|| RunError::NothingTrained(experiment.directory()))
}

fn stage_in(experiment: &Experiment, directory: &Path) -> Result<Stage, RunError> {
    let found = all_stages(experiment).into_iter().find(|stage| stage.directory(experiment) == directory);
    found.ok_or_else(|| RunError::NoStage(directory.to_owned()))
}

/// Returns the task of a stage that has one, or the named task of a stage that has several.
fn task_of(experiment: &Experiment, stage: &Stage, named: Option<usize>) -> Result<usize, RunError> {
    match (stage, named) {
        (Stage::Adapter(own) | Stage::Head(own), None) => Ok(*own),
        (Stage::Adapter(own) | Stage::Head(own), Some(named)) if *own != named => Err(RunError::NoSuchTask {
            task: experiment.tasks[named].name.clone(),
            known: experiment.tasks[*own].name.clone(),
        }),
        // One adapter, or the backbone itself, is for all tasks.
        (Stage::Shared | Stage::Full, None) if !experiment.model.backbone.is_text() => Ok(0),
        (_, Some(named)) => Ok(named),
        (_, None) => only_task(experiment),
    }
}
