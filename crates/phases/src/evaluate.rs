//! Judging a model on an experiment's data.

use crate::setup::Setup;
use crate::{Experiment, LossConfig, RunError, SpeechModel, Split};
use undertone_train::{Evaluation, Objective, TrainError};

/// Judges the experiment's model as it is, on a split of its data.
///
/// # Errors
/// When device, model or data cannot be had.
pub fn evaluate(experiment: &Experiment, split: Split) -> Result<Evaluation, RunError> {
    let setup = Setup::new(experiment)?;
    let objective = setup.objective(split)?;
    let model = SpeechModel::new(&setup.whisper, &LossConfig::default(), &setup.device);
    let metrics = &experiment.train.evaluate.metrics;
    Ok(objective.evaluate(&model, metrics).map_err(TrainError::Data)?)
}
