//! The newest finished phase of a run, and its model.

use super::folder::describe;
use super::model::TaskModel;
use super::phase::Phase;
use super::setup::Setup;
use super::spec::{StageSpec, stages};
use crate::{Experiment, RunError};

/// Returns the newest finished phase and its model.
pub(super) fn newest(setup: &Setup) -> Result<(Phase, TaskModel), RunError> {
    let experiment = &*setup.experiment;
    if let Some((phase, stage)) = newest_routed(experiment) {
        return Ok((phase, stage.best_model(setup)?));
    }
    if stages(experiment, Phase::Adapters).iter().all(StageSpec::is_complete) {
        return Ok((Phase::Adapters, adapters(setup)?));
    }
    Err(RunError::NothingTrained(experiment.directory()))
}

/// Returns the newest finished phase with a router over all tasks, and its stage. A router from before a task was added is none.
pub(super) fn newest_routed(experiment: &Experiment) -> Option<(Phase, StageSpec)> {
    let stage =
        |phase| Some((phase, stages(experiment, phase).into_iter().find(|stage| is_routed(experiment, stage))?));
    [Phase::Joint, Phase::Router].into_iter().find_map(stage)
}

fn is_routed(experiment: &Experiment, stage: &StageSpec) -> bool {
    // A folder that cannot be read is refused where it is loaded.
    let has_all =
        || describe(&stage.best()).map_or(true, |made| experiment.tasks.iter().all(|task| made.has(&task.name)));
    stage.is_complete() && has_all()
}

/// Returns a model with the adapters and heads of phase 1.
pub(super) fn adapters(setup: &Setup) -> Result<TaskModel, RunError> {
    // Phase 2 starts from them, with a router that is still untrained.
    let mut model = stages(&setup.experiment, Phase::Router).swap_remove(0).model(setup)?;
    model.router = None;
    Ok(model)
}
