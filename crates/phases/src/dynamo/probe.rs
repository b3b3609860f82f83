//! A few steps of a run, to see what they take.

use super::batch::TaskCollate;
use super::objective::DynamoObjective;
use super::run::check_fit;
use super::setup::Setup;
use super::stage::Stage;
use crate::tune::{Ahead, Attempt, Timed, probing, steps};
use crate::{Experiment, RunError, Split};
use std::path::Path;
use undertone_data::loader::Collate;
use undertone_train::{BoxError, Learner, TrainError};

/// The stage that keeps most in memory: with tasks phase 3, or phase 1 where there is one task and nothing to route.
pub(crate) fn probed_stage(experiment: &Experiment) -> Stage {
    match experiment.tasks.len() {
        0 => Stage::Whole,
        1 => Stage::Adapter(0),
        _ => Stage::Joint,
    }
}

/// Steps of that stage, from untrained adapters, on batches of the task with the longest input and answer; a curriculum has
/// such batches. Samples per second.
///
/// # Errors
/// As for a run of that stage.
pub(crate) fn probe(experiment: &Experiment, attempt: Attempt, directory: &Path) -> Result<f64, RunError> {
    let setup = Setup::new(experiment)?;
    check_fit(&setup)?;
    let stage = probed_stage(experiment);
    let config = probing(&stage.config(&setup)?, attempt);
    let model = stage.untrained(&setup)?.with_gradient_checkpointing(config.gradient_checkpointing.every());
    let sample = setup.dataset(&stage.tasks(experiment), Split::Train)?.most_demanding().map_err(unusable)?;
    let batch = setup.collate(true)?.collate(vec![sample; attempt.batch]).map_err(unusable)?;
    let (objective, device) = (stage.objective(&setup)?, setup.device.clone());
    let learner = |timed: Timed<DynamoObjective>| {
        Learner::builder(config, timed, model, directory).with_device(device).with_seed(experiment.seed)
    };
    let bytes = TaskCollate::bytes(&batch);
    Ok(steps(objective, learner, &Ahead::new(batch, bytes, experiment), attempt)?)
}

fn unusable(error: BoxError) -> RunError {
    TrainError::Data(error).into()
}
