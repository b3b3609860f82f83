//! Judging a model on an experiment's data.

use crate::setup::Setup;
use crate::{Experiment, LongAudio, LossConfig, RunError, SpeechModel, Split};
use std::path::Path;
use undertone_train::{Evaluation, Objective, TrainError};

/// Judges what was `trained`, a folder, or else the model that the experiment begins with, on a split of its data.
///
/// Long recordings are cut as the model at the beginning hears them, as in training: what is judged does not choose what it is
/// judged on.
///
/// # Errors
/// When device, model or data cannot be had.
pub fn evaluate(experiment: &Experiment, trained: Option<&Path>, split: Split) -> Result<Evaluation, RunError> {
    let mut judged = experiment.clone();
    if let Some(trained) = trained {
        judged.model.path = Some(trained.to_owned());
    }
    let setup = Setup::new(&judged)?;
    let loader = match (trained, experiment.data.long_audio) {
        (Some(_), LongAudio::Align) => Setup::new(experiment)?.loader(split)?,
        _ => setup.loader(split)?,
    };
    let objective = setup.objective(loader)?;
    let model = SpeechModel::new(&setup.whisper, &LossConfig::default(), &setup.device);
    let metrics = &experiment.train.evaluate.metrics;
    Ok(objective.evaluate(&model, metrics).map_err(TrainError::Data)?)
}
