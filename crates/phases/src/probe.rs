//! What a probe's process does: a few real optimizer steps on the most demanding batch there can be.

use crate::dynamo::{self, DynamoError};
use crate::setup::Setup;
use crate::{Experiment, RunError, SpeechModel, Split, WhisperCollate, WhisperObjective};
use burn::tensor::Device;
use std::path::Path;
use undertone_data::loader::Collate;
use undertone_fit::tune::{Attempt, Limits, ProbeObjective, RepeatedBatch, probe_config, probe_steps, within_limits};
use undertone_ops::runs_on_host;
use undertone_train::tune::Outcome;
use undertone_train::{
    BackendFailure, GradientCheckpointing, Learner, TrainError, catch_backend_failure, peak_memory_bytes,
};

/// Tries a batch within limits. This is the whole work of a process: where a limit is passed, `report` is called from
/// another thread, and the process ends.
///
/// # Errors
/// When the configuration makes no run. Lack of memory is an outcome.
pub fn run_probe(
    experiment: &Experiment,
    attempt: Attempt,
    limits: Limits,
    directory: &Path,
    report: impl Fn(&Outcome) + Send + 'static,
) -> Result<Outcome, DynamoError> {
    let device = experiment.device.resolve().map_err(RunError::from)?;
    within_limits(limits, runs_on_host(&device), report, || attempted(experiment, attempt, &device, directory))
}

fn attempted(
    experiment: &Experiment,
    attempt: Attempt,
    device: &Device,
    directory: &Path,
) -> Result<Outcome, DynamoError> {
    let mut experiment = experiment.clone();
    experiment.data.batch_size = attempt.batch;
    if attempt.checkpointing {
        experiment.train.gradient_checkpointing = GradientCheckpointing::Flag(true);
    }
    let work = || match experiment.tasks.is_empty() {
        true => speech(&experiment, attempt, directory).map_err(DynamoError::from),
        false => dynamo::probe(&experiment, attempt, directory),
    };
    Ok(match catch_backend_failure(work) {
        Ok(samples_per_second) => {
            Outcome::Fits { samples_per_second: samples_per_second?, peak_bytes: peak_bytes(device) }
        }
        Err(BackendFailure::OutOfMemory(reason)) => Outcome::OutOfMemory { reason },
        Err(BackendFailure::Device(reason)) => return Err(RunError::DeviceFailed { reason, saved: None }.into()),
    })
}

/// What an accelerator's allocator has reserved, where that is known: it keeps what it once had. Of the process on a CPU.
fn peak_bytes(device: &Device) -> Option<u64> {
    match runs_on_host(device) {
        true => peak_memory_bytes(),
        false => device.memory_pool_usage().map(|usage| usage.bytes_reserved),
    }
}

fn speech(experiment: &Experiment, attempt: Attempt, directory: &Path) -> Result<f64, RunError> {
    let setup = Setup::new(experiment)?;
    let objective = setup.objective(setup.loader(Split::Valid)?)?;
    let model = SpeechModel::new(&setup.whisper, &experiment.loss, &setup.device)
        .with_gradient_checkpointing(experiment.train.gradient_checkpointing.every());
    let sample = setup.dataset(Split::Train)?.most_demanding().map_err(TrainError::Data)?;
    let batch = setup.collate(Split::Train)?.collate(vec![sample; attempt.batch]).map_err(TrainError::Data)?;
    let bytes = WhisperCollate::bytes(&batch);
    let batches = RepeatedBatch::new(batch, bytes, experiment.data.prefetch_batches, experiment.data.prefetch_bytes);
    let (config, device) = (probe_config(&experiment.train, attempt), setup.device);
    let learner = |timed: ProbeObjective<WhisperObjective>| {
        Learner::new(config, timed, model, device, directory, experiment.seed)
    };
    Ok(probe_steps(objective, learner, &batches, attempt)?)
}
