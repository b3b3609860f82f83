//! What the inputs of a run's tasks look like to its router.

use super::arrays::input;
use super::batch::{TaskBatch, TaskLoader};
use super::model::TaskModel;
use super::order::TaskOrder;
use super::setup::Setup;
use super::spec::StageSpec;
use crate::{RunError, Split};
use std::path::{Path, PathBuf};
use undertone_data::loader::LoaderError;
use undertone_model::known_inputs::KnownInputs;
use undertone_store::{Dtype, TensorFile, write_tensors};

/// Name of the file in the directory of a stage with a router.
pub(crate) const INPUTS: &str = "inputs.safetensors";

/// Number of training inputs for each task that the distribution is fitted to.
const OF_TASK: usize = 256;

/// Mixes the training inputs of all tasks evenly.
const EVENLY: f64 = 1e6;

/// Returns the path of the file of a stage.
pub(super) fn path(stage: &StageSpec) -> PathBuf {
    stage.directory.join(INPUTS)
}

/// Fits the distribution of the router's inputs to training data of a stage's tasks, compares it with their validation data,
/// and writes it into the directory of the stage, unless it is there. Below the router nothing is trained, so it belongs to
/// every model of the stage.
pub(super) fn record(stage: &StageSpec, setup: &Setup) -> Result<(), RunError> {
    let path = path(stage);
    if !stage.is_routed() || path.exists() {
        return Ok(());
    }
    let error = |source| RunError::Adapt { task: stage.title.clone(), source };
    let network = setup.pretrained.network();
    let model = TaskModel::new(network, &[], &[], stage.description.router.tap, &setup.device).map_err(error)?;
    let dataset = setup.dataset(&stage.tasks, Split::Train)?;
    let order = TaskOrder::new(dataset.lengths(), &setup.training_loader()).with_temperature(EVENLY)?;
    let training = setup.training_batches(dataset, Some(Box::new(order)))?;
    let inputs = pooled(&model, &training, OF_TASK * stage.tasks.len(), setup)?;
    let others = pooled(&model, &setup.evaluation_batches(&stage.tasks, Split::Valid)?, usize::MAX, setup)?;
    let others: Vec<Vec<f32>> = others.into_iter().map(|(input, _)| input).collect();
    match KnownInputs::fit(model.backbone.d_model(), &inputs, stage.tasks.len(), &others) {
        Some(known) => Ok(write_tensors(&path, &known.tensors(), Dtype::F32)?),
        None => Ok(()),
    }
}

/// Returns the router's inputs for the first samples of an epoch, with their tasks.
pub(super) fn pooled(
    model: &TaskModel,
    batches: &TaskLoader,
    most: usize,
    setup: &Setup,
) -> Result<Vec<(Vec<f32>, usize)>, RunError> {
    let mut found = Vec::new();
    for batch in batches.epoch(0, 0) {
        let mut batch: TaskBatch = batch.map_err(|error| match error {
            LoaderError::GivenUp { .. } => RunError::Interrupted,
            error => RunError::Evaluate(error.into()),
        })?;
        let (input, padding) = input(&mut batch, 0, &setup.device);
        let Some(input) = input else { continue };
        let tapped = model.tap(input, padding).map_err(|error| RunError::Evaluate(error.into()))?;
        let values: Vec<f32> = undertone_ops::read(tapped.pooled());
        let width = values.len() / batch.tasks.len().max(1);
        found.extend(values.chunks(width.max(1)).map(<[f32]>::to_vec).zip(batch.tasks.iter().copied()));
        if found.len() >= most {
            break;
        }
    }
    Ok(found)
}

/// Reads the distribution of a stage's inputs for a router of this width; `None` if the stage has none, as those of earlier
/// versions.
pub(super) fn read(path: &Path, d_model: usize) -> Result<Option<KnownInputs>, RunError> {
    if !path.exists() {
        return Ok(None);
    }
    Ok(KnownInputs::read(&TensorFile::open(path)?, d_model)?)
}
