//! Judging one model on an experiment's data, with nothing to route.

use super::batch::TaskLoader;
use super::choice::Choice;
use super::evaluator::RouterKind;
use super::model::TaskModel;
use super::setup::Setup;
use crate::config::TaskConfig;
use crate::{Experiment, LongAudio, RunError, Split};
use std::path::Path;
use undertone_train::{Evaluation, TrainError};

/// Judges what was `trained`, a folder, or else the model that the experiment begins with, on a split of its data.
///
/// Long recordings are cut as the model at the beginning hears them, as in training: what is judged does not choose what it is
/// judged on.
///
/// # Errors
/// When device, model or data cannot be had.
pub fn evaluate(experiment: &Experiment, trained: Option<&Path>, split: Split) -> Result<Evaluation, RunError> {
    let mut result = experiment.clone();
    if let Some(trained) = trained {
        result.model.path = Some(trained.to_owned());
    }
    let setup = Setup::new(&result)?;
    let tasks = experiment.all_tasks();
    let data = match (trained, experiment.data.long_audio) {
        (Some(_), LongAudio::Align) => Setup::new(experiment)?.evaluation_batches(&tasks, split)?,
        _ => setup.evaluation_batches(&tasks, split)?,
    };
    let model = TaskModel::plain(setup.pretrained.network());
    evaluate_with(&setup, &model, tasks, &data)
}

/// Judges what a stage learned for a task, by itself, on a split of the task's data. Nothing is routed.
///
/// # Errors
/// When device, model or data cannot be had.
pub fn evaluate_choice(choice: &Choice, split: Split) -> Result<Evaluation, RunError> {
    let Choice { experiment, stage, .. } = choice;
    if stage.is_plain(experiment) {
        return evaluate(experiment, Some(&stage.directory(experiment).join("best")), split);
    }
    let setup = Setup::new(experiment)?;
    let (model, tasks) = (choice.model(&setup)?, choice.tasks());
    let data = setup.evaluation_batches(&tasks, split)?;
    evaluate_with(&setup, &model, tasks, &data)
}

fn evaluate_with(
    setup: &Setup,
    model: &TaskModel,
    tasks: Vec<TaskConfig>,
    data: &TaskLoader,
) -> Result<Evaluation, RunError> {
    let evaluator = setup.evaluator(tasks)?;
    evaluator.remark().inspect(|remark| tracing::info!("{remark}"));
    let result = evaluator.evaluate(model, data, RouterKind::Oracle).map_err(TrainError::Data)?;
    Ok(result.into_evaluation())
}
