//! The process of a probe: a few real optimizer steps on the most demanding batch.

use crate::{Experiment, RunError, run};
use burn::tensor::Device;
use std::path::Path;
use undertone_fit::tune::{Attempt, Limits, Outcome, within_limits};
use undertone_ops::runs_on_host;
use undertone_train::{BackendFailure, GradientCheckpointing, catch_backend_failure, peak_bytes};

/// Tries a batch within limits. Call it in a separate process: if a limit is exceeded, `report` is called from another
/// thread and the process ends.
///
/// # Errors
/// When the configuration cannot be run. Lack of memory is an outcome, not an error.
pub fn run_probe(
    experiment: &Experiment,
    attempt: Attempt,
    limits: Limits,
    directory: &Path,
    report: impl Fn(&Outcome) + Send + 'static,
) -> Result<Outcome, RunError> {
    let device = experiment.device.resolve()?;
    within_limits(limits, runs_on_host(&device), report, || attempted(experiment, attempt, &device, directory))
}

fn attempted(
    experiment: &Experiment,
    attempt: Attempt,
    device: &Device,
    directory: &Path,
) -> Result<Outcome, RunError> {
    let mut experiment = experiment.clone();
    experiment.data.batch_size = attempt.batch;
    if attempt.checkpointing {
        experiment.train.gradient_checkpointing = GradientCheckpointing::Flag(true);
    }
    Ok(match catch_backend_failure(|| run::probe(&experiment, attempt, directory)) {
        Ok(samples_per_second) => {
            Outcome::Fits { samples_per_second: samples_per_second?, peak_bytes: peak_bytes(device) }
        }
        Err(BackendFailure::OutOfMemory(reason)) => Outcome::OutOfMemory { reason },
        Err(BackendFailure::Device(reason)) => return Err(RunError::DeviceFailed { step: None, reason, saved: None }),
    })
}
