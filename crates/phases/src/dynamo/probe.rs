//! A few steps of a run with tasks, to see what they take.

use super::batch::TaskCollate;
use super::error::DynamoError;
use super::objective::DynamoObjective;
use super::run::check_fit;
use super::setup::Setup;
use super::stage::{Stage, valid};
use crate::tune::{Ahead, Attempt, Timed, probing, steps};
use crate::{Experiment, RunError, Split};
use std::path::Path;
use undertone_data::loader::Collate;
use undertone_train::{BoxError, Learner, TrainError};

/// The stage that keeps most in memory: phase 3, or phase 1 where there is one task and nothing to route.
pub(crate) fn probed_stage(experiment: &Experiment) -> Stage {
    if experiment.tasks.len() > 1 { Stage::Joint } else { Stage::Adapter(0) }
}

/// Steps of that stage, from untrained adapters, on batches of the task with the longest input and answer; a curriculum has
/// such batches. Samples per second.
///
/// # Errors
/// As for a run of that stage.
pub(crate) fn probe(experiment: &Experiment, attempt: Attempt, directory: &Path) -> Result<f64, DynamoError> {
    let setup = Setup::new(experiment)?;
    check_fit(&setup)?;
    let stage = probed_stage(experiment);
    let tasks = stage.tasks(experiment);
    let config = probing(&stage.config(&setup)?, attempt);
    let model = stage.untrained(&setup)?.with_gradient_checkpointing(config.gradient_checkpointing.every());
    let dataset = setup.dataset(&tasks, Split::Train)?;
    let sample = dataset.most_demanding().map_err(unusable)?;
    let collate = setup.collate(true)?.labelled(&dataset);
    let batch = collate.collate(vec![sample; attempt.batch]).map_err(unusable)?;
    let objective = DynamoObjective {
        scheme: stage.scheme(experiment),
        judge: setup.judge(tasks.clone()),
        valid: valid(&setup, &tasks)?,
        description: stage.description(experiment),
    };
    let device = setup.device.clone();
    let learner =
        |timed: Timed<DynamoObjective>| Learner::new(config, timed, model, device, directory, experiment.seed);
    let bytes = TaskCollate::bytes(&batch);
    Ok(steps(objective, learner, &Ahead::new(batch, bytes, experiment), attempt).map_err(RunError::from)?)
}

fn unusable(error: BoxError) -> RunError {
    TrainError::Data(error).into()
}
