//! Probe of a run: a few training steps that measure speed and memory.

use super::batch::TaskCollate;
use super::objective::TaskObjective;
use super::phase::Phase;
use super::setup::Setup;
use super::spec::{StageSpec, stages};
use super::stages::check_fit;
use crate::{Experiment, RunError, Split};
use std::path::Path;
use undertone_data::loader::Collate;
use undertone_fit::tune::{Attempt, ProbeObjective, RepeatedBatch, probe_config, probe_steps};
use undertone_train::{BoxError, Learner, TrainError};

/// Returns the stage that needs the most memory: with several tasks phase 3, otherwise the first.
pub(crate) fn probed_stage(experiment: &Experiment) -> StageSpec {
    match experiment.tasks.len() {
        0 | 1 => StageSpec::first(experiment),
        _ => stages(experiment, Phase::Joint).swap_remove(0),
    }
}

/// Takes steps of that stage with untrained adapters, on batches of the task with the longest input and answer, which
/// occur in a curriculum. Returns the number of samples per second.
pub(crate) fn probe(experiment: &Experiment, attempt: Attempt, directory: &Path) -> Result<f64, RunError> {
    let setup = Setup::new(experiment)?;
    check_fit(&setup)?;
    let stage = probed_stage(experiment);
    let config = probe_config(&stage.config(&setup)?, attempt);
    let model = stage.untrained(&setup)?.with_gradient_checkpointing(config.gradient_checkpointing.every());
    let dataset = setup.dataset(&stage.tasks, Split::Train)?;
    let sample = dataset.most_demanding().map_err(unusable)?;
    let collate = setup.collate(true)?.labelled(&dataset);
    let batch = collate.collate(vec![sample; attempt.batch]).map_err(unusable)?;
    let (objective, device) = (stage.objective(&setup)?, setup.device.clone());
    let learner = |timed: ProbeObjective<TaskObjective>| {
        Learner::builder(config, timed, model, directory).with_device(device).with_seed(experiment.seed)
    };
    let (bytes, data) = (TaskCollate::bytes(&batch), &experiment.data);
    let batches = RepeatedBatch::new(batch, bytes, data.prefetch_batches, data.prefetch_bytes);
    Ok(probe_steps(objective, learner, &batches, attempt)?)
}

fn unusable(error: BoxError) -> RunError {
    TrainError::Data(error).into()
}
