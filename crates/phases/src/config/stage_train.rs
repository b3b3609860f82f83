//! Training configuration of a stage: `train` with the changes of its phase, baseline or task.

use super::choices::settle_train;
use super::error::ensure;
use super::layers::sentence;
use super::{AdapterPhase, ConfigError, TaskConfig};
use figment::Figment;
use figment::providers::Serialized;
use figment::value::Dict;
use serde_json::{Map, Value};
use undertone_train::TrainConfig;

/// Metric that every task has: the mean cross-entropy of the reference answers.
pub(crate) const LOSS: &str = "loss";

/// Metric that selects the best checkpoint in every phase: the mean over tasks of the error of each task's first
/// metric.
pub(crate) const ERROR: &str = "error";

/// Returns `train` with a phase's changes, evaluated by the tasks' error.
pub(crate) fn phase_train(base: &TrainConfig, changes: &Map<String, Value>) -> Result<TrainConfig, ConfigError> {
    for (section, key) in [("evaluate", "metrics"), ("checkpoint", "metric")] {
        let is_given = changes.get(section).is_some_and(|section| section.get(key).is_some());
        ensure(!is_given, || format!("`{section}.{key}` is for runs without `tasks`: tasks have their own"))?;
    }
    let mut train = changed(base, changes)?;
    train.evaluate.metrics = vec![ERROR.into()];
    train.checkpoint.metric = ERROR.into();
    train.validate().map_err(|e| e.to_string())?;
    Ok(train)
}

/// As [`phase_train`], for a task's own stage of phase 1.
pub(crate) fn task_train(
    base: &TrainConfig,
    phase: &AdapterPhase,
    task: &TaskConfig,
) -> Result<TrainConfig, ConfigError> {
    phase_train(&changed(base, &phase.train)?, &task.train)
}

fn changed(base: &TrainConfig, changes: &Map<String, Value>) -> Result<TrainConfig, ConfigError> {
    let mut base = base.clone();
    // A given duration replaces that of the base, whichever unit the two use.
    if changes.contains_key("max_steps") || changes.contains_key("epochs") {
        (base.max_steps, base.epochs) = (None, None);
    }
    let error = |e: figment::Error| sentence(&e);
    let keys = |layer: Figment| layer.extract::<Dict>().map_err(error);
    let mut layers =
        [keys(Figment::from(Serialized::defaults(&base)))?, keys(Figment::from(Serialized::defaults(changes)))?];
    settle_train(&mut layers, "");
    let merged = layers.into_iter().fold(Figment::new(), |below, keys| below.merge(Serialized::defaults(keys)));
    Ok(merged.extract().map_err(error)?)
}
