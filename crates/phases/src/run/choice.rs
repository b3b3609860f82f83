//! The choice of a stage and a task of a run, by a directory and the name of the task.

use super::folder::describe;
use super::model::TaskModel;
use super::phase::Phase;
use super::setup::Setup;
use super::spec::{Layout, StageSpec, all_stages, stages};
use crate::config::{CONFIG, TaskConfig};
use crate::{Experiment, ModelConfig, RunError};
use std::path::{Path, PathBuf};
use undertone_model::frozen::FrozenDtype;

/// Model that one stage of a run trained for one task.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Configuration of the run, with its current directory.
    pub experiment: Experiment,
    /// Stage whose best model is chosen.
    pub stage: StageSpec,
    /// Index of the task; 0 for a run without tasks.
    pub(super) task: usize,
    /// Whether no task was named of a stage with one head for several.
    pub(super) for_all: bool,
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
        let experiment = Experiment::of_run(&root, settings)?;
        let asked = directory.strip_prefix(&root).unwrap_or(Path::new(""));
        // The directory of a stage's model stands for the stage.
        let is_average = asked.ends_with("best_ema");
        let asked = if asked.ends_with("best") || is_average { asked.parent().unwrap_or(asked) } else { asked };
        let number = task.map(|task| number_of(&experiment.tasks, task)).transpose()?;
        let (mut stage, task) = match (asked.as_os_str().is_empty(), experiment.tasks.len()) {
            (true, 0) => (StageSpec::first(&experiment), 0),
            (true, _) => {
                let task = number.map_or_else(|| only_task(&experiment), Ok)?;
                (latest_with(&experiment, task)?, task)
            }
            (false, _) => {
                let directory = root.join(asked);
                let found = all_stages(&experiment).into_iter().find(|stage| stage.directory == directory);
                let stage = found.ok_or(RunError::NoStage(directory))?;
                let task = task_of(&experiment, &stage, number)?;
                (stage, task)
            }
        };
        stage.is_average = is_average;
        if !stage.best().is_dir() {
            return Err(RunError::NoModel(stage.directory));
        }
        let for_all = number.is_none() && stage.task.is_none() && experiment.tasks.len() > 1;
        Ok(Self { experiment, stage, task, for_all })
    }

    /// Refuses a model for several tasks of which none was named.
    ///
    /// # Errors
    /// Names the tasks.
    pub fn for_one_task(self) -> Result<Self, RunError> {
        if self.for_all { Err(RunError::WhichTask(known(&self.experiment.tasks))) } else { Ok(self) }
    }

    /// Returns the folder of the adapter, in PEFT's layout; `None` if the stage trains no adapter.
    pub fn adapter(&self) -> Option<PathBuf> {
        let adapters = self.stage.description.only(self.task).adapters;
        adapters.first().map(|adapter| self.stage.best().join("adapters").join(&adapter.name))
    }

    /// Whether it has trained a head for the task.
    pub fn has_head(&self) -> bool {
        !self.stage.description.heads.is_empty()
    }

    /// Maximum number of tokens of the task's input, for a task on text.
    pub fn max_tokens(&self) -> usize {
        self.tasks()[0].head.max_input()
    }

    /// Returns the chosen task as a list.
    pub(super) fn tasks(&self) -> Vec<TaskConfig> {
        vec![self.experiment.all_tasks().swap_remove(self.task)]
    }

    /// Returns the experiment with the backbone to load: the initial one, or the trained one if the stage trained its
    /// weights.
    pub(super) fn backbone(&self) -> Experiment {
        let mut experiment = self.experiment.clone();
        if self.stage.layout == Layout::Model {
            experiment.model = ModelConfig { path: Some(self.stage.best()), ..experiment.model };
        }
        if self.stage.description.trained_backbone {
            experiment.model.frozen_dtype = FrozenDtype::F32;
        }
        experiment
    }

    /// Loads the model with the adapter and the head of the task alone. `setup` is that of
    /// [`backbone`](Self::backbone).
    pub(super) fn model(&self, setup: &Setup) -> Result<TaskModel, RunError> {
        self.stage.only(self.task).best_model(setup)
    }
}

/// Returns the directory of the run that `directory` is or belongs to.
pub(crate) fn root_of(directory: &Path) -> Option<PathBuf> {
    // The deepest directory with a model is `baselines/head/TASK/best`.
    let above = directory.ancestors().take(5).find(|above| above.join(CONFIG).is_file());
    above.filter(|root| !root.as_os_str().is_empty()).map(Path::to_owned)
}

/// Returns the index of the task with a name.
pub(super) fn number_of(tasks: &[TaskConfig], name: &str) -> Result<usize, RunError> {
    let found = tasks.iter().position(|known| known.name == name);
    found.ok_or_else(|| RunError::NoSuchTask { task: name.to_owned(), known: known(tasks) })
}

fn only_task(experiment: &Experiment) -> Result<usize, RunError> {
    if experiment.tasks.len() == 1 { Ok(0) } else { Err(RunError::WhichTask(known(&experiment.tasks))) }
}

/// Returns the names of the tasks for a message.
fn known(tasks: &[TaskConfig]) -> String {
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Returns the latest finished stage that has the task. One that finished before the task was added has not.
fn latest_with(experiment: &Experiment, task: usize) -> Result<StageSpec, RunError> {
    let name = &experiment.tasks[task].name;
    let later = Phase::ALL.iter().rev().flat_map(|phase| stages(experiment, *phase));
    let later = later.filter(|stage| stage.task.is_none_or(|own| own == task) && stage.is_complete());
    // A folder that cannot be read is refused where it is loaded.
    let found = later.into_iter().find(|stage| describe(&stage.best()).map_or(true, |made| made.has(name)));
    found.ok_or_else(|| RunError::NothingTrained(experiment.directory()))
}

/// Returns the task of a stage that has one, or the named task of a stage that has several.
fn task_of(experiment: &Experiment, stage: &StageSpec, named: Option<usize>) -> Result<usize, RunError> {
    match (stage.task, named) {
        (Some(own), None) => Ok(own),
        (Some(own), Some(named)) if own != named => Err(RunError::NoSuchTask {
            task: experiment.tasks[named].name.clone(),
            known: experiment.tasks[own].name.clone(),
        }),
        // An only head is for all tasks.
        (None, None) if stage.description.heads.len() == 1 => Ok(0),
        (_, Some(named)) => Ok(named),
        (_, None) => only_task(experiment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_from_every_model_in_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = dir.path().join("run");
        for model in ["best", "phase1/a/best", "phase3/best", "baselines/head/a/best"] {
            std::fs::create_dir_all(run.join(model)).expect("made");
            std::fs::write(run.join(CONFIG), "seed: 1").expect("written");
            assert_eq!(root_of(&run.join(model)), Some(run.clone()), "{model}");
        }
    }
}
