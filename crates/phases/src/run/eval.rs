//! Evaluation of one model on an experiment's data, without routing.

use super::batch::TaskLoader;
use super::choice::Choice;
use super::evaluator::RouterKind;
use super::model::TaskModel;
use super::setup::Setup;
use crate::config::TaskConfig;
use crate::{Experiment, LongAudio, RunError, Split};
use std::path::Path;
use undertone_train::{Evaluation, TrainError};

/// Evaluates the model in the folder `trained`, or else the initial model of the experiment, on a split of its data.
///
/// Long recordings are aligned by the initial model, as in training, so that the evaluated model does not affect the
/// data that it is evaluated on.
///
/// # Errors
/// When device, model or data are not available.
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

/// Evaluates the model of a stage for one task on a split of the task's data, without routing.
///
/// # Errors
/// When device, model or data are not available.
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
