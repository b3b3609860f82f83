//! Settings that determine the memory of training.

use crate::{Experiment, Pad, Trainable};
use undertone_fit::RunSettings;
use undertone_train::Algorithm;

/// Returns the settings that a run's memory depends on, for advice when memory does not suffice.
pub(crate) fn run_settings(experiment: &Experiment) -> RunSettings {
    RunSettings {
        batch_size: experiment.data.batch_size,
        max_batch_seconds: experiment.data.max_batch_seconds,
        eval_batch_size: experiment.data.eval_batch_size,
        accumulation: experiment.train.accumulation,
        kernels: experiment.kernels,
        checkpointed: experiment.train.gradient_checkpointing.every().is_some(),
        trains_all: experiment.tasks.is_empty() && experiment.model.trainable == Trainable::All,
        reads_text: experiment.model.backbone.is_text(),
        pads_to_window: experiment.data.pad == Pad::Window,
        adamw: matches!(experiment.train.optimizer.algorithm, Algorithm::AdamW(_)),
    }
}
