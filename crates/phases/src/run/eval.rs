//! Evaluation of one model on an experiment's data, without routing.

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
/// # Errors
/// When device, model or data are not available.
pub fn evaluate(experiment: &Experiment, trained: Option<&Path>, split: Split) -> Result<Evaluation, RunError> {
    let mut result = experiment.clone();
    if let Some(trained) = trained {
        result.model.path = Some(trained.to_owned());
    }
    let setup = Setup::new(&result)?;
    let model = TaskModel::plain(setup.pretrained.network());
    evaluate_with(experiment, &setup, &model, experiment.all_tasks(), split)
}

/// Evaluates the model of a stage for one task on a split of the task's data, without routing.
///
/// # Errors
/// When device, model or data are not available.
pub fn evaluate_choice(choice: &Choice, split: Split) -> Result<Evaluation, RunError> {
    let setup = Setup::new(&choice.backbone())?;
    evaluate_with(&choice.experiment, &setup, &choice.model(&setup)?, choice.tasks(), split)
}

/// Evaluates a model on data of `experiment`. `setup` has the backbone of the model.
fn evaluate_with(
    experiment: &Experiment,
    setup: &Setup,
    model: &TaskModel,
    tasks: Vec<TaskConfig>,
    split: Split,
) -> Result<Evaluation, RunError> {
    // Long recordings are aligned by the initial model, as in training, so that the evaluated model does not affect the
    // data that it is evaluated on.
    let is_aligned_by_another =
        experiment.data.long_audio == LongAudio::Align && setup.experiment.model != experiment.model;
    let data = match is_aligned_by_another {
        true => Setup::new(experiment)?.evaluation_batches(&tasks, split)?,
        false => setup.evaluation_batches(&tasks, split)?,
    };
    let evaluator = setup.evaluator(tasks)?;
    evaluator.remark().inspect(|remark| tracing::info!("{remark}"));
    let result = evaluator.evaluate(model, &data, RouterKind::Oracle).map_err(TrainError::Data)?;
    Ok(result.into_evaluation())
}
