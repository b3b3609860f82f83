//! What a probe's process does: a few real optimizer steps on the most demanding batch there can be.

use crate::dynamo::{self, DynamoError};
use crate::setup::Setup;
use crate::{Experiment, RunError, SpeechModel, Split, WhisperCollate, WhisperObjective};
use burn::tensor::Device;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use undertone_data::loader::Collate;
use undertone_fit::tune::{Attempt, Limits};
use undertone_ops::runs_on_host;
use undertone_train::tune::Outcome;
use undertone_train::{
    BackendFailure, BatchStream, Batches, BoxError, Evaluation, GradientCheckpointing, Learner, LossTerm, LrScaling,
    Objective, TrainConfig, TrainError, catch_backend_failure, peak_memory_bytes, resident_memory_bytes,
};

/// Optimizer steps of a probe. The first makes the optimizer's state and everything else that stays, so the second is the
/// one with the most memory; the third is there to be timed with it.
const STEPS: usize = 3;

/// How often the process looks at itself: memory of hundreds of MB a second can be in use by the next look, and what it
/// held in between is found in the end.
const LOOK: Duration = Duration::from_millis(5);

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
    let on_host = runs_on_host(&device);
    let done = Arc::new(AtomicBool::new(false));
    watch(Limits { memory: limits.memory.filter(|_| on_host), ..limits }, done.clone(), report);
    let result = attempted(experiment, attempt, &device, directory);
    if done.swap(true, Ordering::SeqCst) {
        // The other thread has the word, and ends the process.
        loop {
            std::thread::park();
        }
    }
    Ok(match (result?, limits.memory) {
        (Outcome::Fits { peak_bytes: Some(peak_bytes), .. }, Some(limit)) if peak_bytes > limit => {
            Outcome::OverBudget { peak_bytes }
        }
        (outcome, _) => outcome,
    })
}

/// Ends the process where a limit is passed, or where nobody waits for it any more.
fn watch(limits: Limits, done: Arc<AtomicBool>, report: impl Fn(&Outcome) + Send + 'static) {
    let (started, parent) = (Instant::now(), parent());
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            let held = resident_memory_bytes().filter(|held| limits.memory.is_some_and(|limit| *held > limit));
            let late = started.elapsed() > limits.time;
            let outcome = match held {
                Some(peak_bytes) => Outcome::OverBudget { peak_bytes },
                None if late => Outcome::TooSlow { seconds: started.elapsed().as_secs_f64() },
                None if self::parent() != parent => std::process::exit(1),
                None => continue,
            };
            if !done.swap(true, Ordering::SeqCst) {
                report(&outcome);
                std::process::exit(0);
            }
            break;
        }
    });
}

#[cfg(unix)]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn parent() -> u32 {
    0
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
    let ahead = Ahead::new(batch, bytes, experiment);
    let (config, device) = (probing(&experiment.train, attempt), setup.device);
    let learner =
        |timed: Timed<WhisperObjective>| Learner::new(config, timed, model, device, directory, experiment.seed);
    Ok(steps(objective, learner, &ahead, attempt)?)
}

/// The same batch for ever, and in memory as many as the loader makes ahead.
pub(crate) struct Ahead<B>(Vec<B>);

impl<B: Clone> Ahead<B> {
    /// Of a batch of so many bytes.
    pub fn new(batch: B, bytes: usize, experiment: &Experiment) -> Self {
        let data = &experiment.data;
        Self(vec![batch; data.prefetch_batches.min(data.prefetch_bytes / bytes.max(1)).max(1)])
    }
}

impl<B: Clone> Batches for Ahead<B> {
    type Batch = B;

    fn per_epoch(&self) -> usize {
        usize::MAX
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, B> {
        Box::new((start + 1..).zip(self.0.iter().cycle().cloned()).map(Ok))
    }
}

/// `config` for a run of a few steps that are neither judged nor saved.
pub(crate) fn probing(config: &TrainConfig, attempt: Attempt) -> TrainConfig {
    let mut config = config.clone();
    config.accumulation = attempt.accumulation;
    // Far enough away for the schedule, and for whoever misses gradients after some steps.
    (config.max_steps, config.epochs) = (Some(config.optimizer.warmup_steps + 1000), None);
    (config.evaluate.every, config.checkpoint.every) = (0, 0);
    config.early_stopping = Default::default();
    (config.csv, config.tensorboard) = (false, false);
    // Its rate is of no account, and the Learner takes none that is still to be scaled.
    config.optimizer.lr_scaling = LrScaling::None;
    config
}

/// Takes a probe's steps with the Learner, as a run would, and gives the samples per second of all but the first.
pub(crate) fn steps<O, B>(
    objective: O,
    learner: impl FnOnce(Timed<O>) -> Learner<Timed<O>>,
    batches: &B,
    attempt: Attempt,
) -> Result<f64, TrainError>
where
    O: Objective,
    B: Batches<Batch = O::Batch>,
{
    let calls = Rc::<RefCell<Vec<Instant>>>::default();
    let timed = Timed { objective, calls: calls.clone(), last: STEPS * attempt.accumulation };
    let result = learner(timed).with_rescue(false).train(batches);
    let calls = calls.borrow();
    match (result, calls.get(attempt.accumulation), calls.get(STEPS * attempt.accumulation)) {
        (_, Some(from), Some(to)) => {
            Ok(((STEPS - 1) * attempt.accumulation * attempt.batch) as f64 / to.duration_since(*from).as_secs_f64())
        }
        (Err(error), ..) => Err(error),
        (Ok(_), ..) => Err(TrainError::NoData),
    }
}

/// An objective that notes when it is asked for losses and refuses after the last step: so the Learner stops without
/// writing a checkpoint, which for a large model takes longer than the probe.
pub(crate) struct Timed<O> {
    objective: O,
    calls: Rc<RefCell<Vec<Instant>>>,
    last: usize,
}

impl<O: Objective> Objective for Timed<O> {
    type Model = O::Model;
    type Batch = O::Batch;
    type Input = O::Input;

    fn samples(&self, batch: &O::Batch) -> usize {
        self.objective.samples(batch)
    }

    fn counts(&self, batch: &O::Batch) -> Vec<f64> {
        self.objective.counts(batch)
    }

    fn upload(&self, batch: &mut O::Batch, device: &Device) -> Result<O::Input, BoxError> {
        let mut calls = self.calls.borrow_mut();
        calls.push(Instant::now());
        if calls.len() > self.last {
            return Err("the probe has seen enough".into());
        }
        self.objective.upload(batch, device)
    }

    fn losses(
        &self,
        model: &O::Model,
        batch: &O::Batch,
        input: O::Input,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        self.objective.losses(model, batch, input, device)
    }

    fn evaluate(&self, _: &O::Model, _: &[String]) -> Result<Evaluation, BoxError> {
        Ok(Evaluation::default())
    }

    fn export(&self, _: &O::Model, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Tensor;

    /// y = 2x; fails from a given call on.
    struct Double {
        fails_from: usize,
        calls: RefCell<usize>,
    }

    impl Objective for Double {
        type Model = Linear;
        type Batch = f32;
        type Input = Tensor<2>;

        fn samples(&self, _: &f32) -> usize {
            1
        }

        fn counts(&self, _: &f32) -> Vec<f64> {
            vec![1.0]
        }

        fn upload(&self, x: &mut f32, device: &Device) -> Result<Tensor<2>, BoxError> {
            Ok(Tensor::from_floats([[*x]], device))
        }

        fn losses(&self, model: &Linear, x: &f32, input: Tensor<2>, _: &Device) -> Result<Vec<LossTerm>, BoxError> {
            *self.calls.borrow_mut() += 1;
            if *self.calls.borrow() >= self.fails_from {
                return Err("no such word".into());
            }
            let y = model.forward(input);
            Ok(vec![LossTerm { name: "square".into(), weight: 1.0, sum: (y - 2.0 * x).square().sum() }])
        }

        fn evaluate(&self, _: &Linear, _: &[String]) -> Result<Evaluation, BoxError> {
            Err("a probe judges nothing".into())
        }

        fn export(&self, _: &Linear, _: &Path) -> Result<(), BoxError> {
            Err("a probe exports nothing".into())
        }
    }

    fn run(fails_from: usize, directory: &Path) -> Result<f64, TrainError> {
        let attempt = Attempt { batch: 1, accumulation: 2, checkpointing: false };
        let device = Device::flex();
        let model = LinearConfig::new(1, 1).init(&device);
        let config = probing(&TrainConfig { epochs: Some(1), ..Default::default() }, attempt);
        let learner = |timed: Timed<Double>| Learner::new(config, timed, model, device, directory, 1);
        let batches = Ahead::new(0.5, 4, &Experiment::default());
        steps(Double { fails_from, calls: RefCell::default() }, learner, &batches, attempt)
    }

    #[test]
    fn steps_are_timed_and_leave_no_checkpoint() {
        let dir = tempfile::tempdir().expect("a directory");
        let rate = run(usize::MAX, dir.path()).expect("some steps");
        assert!(rate.is_finite() && rate > 0.0);
        let checkpoints = std::fs::read_dir(dir.path().join("checkpoints")).expect("a directory");
        assert_eq!(checkpoints.count(), 0);
    }

    #[test]
    fn what_goes_wrong_in_a_step_is_passed_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = run(3, dir.path()).expect_err("it fails in the second step").to_string();
        assert!(error.contains("no such word"), "{error}");
    }

    #[test]
    fn as_many_batches_lie_ready_as_a_loader_would_make() {
        let experiment = Experiment::default();
        let data = &experiment.data;
        assert_eq!(Ahead::new(0, 1, &experiment).0.len(), data.prefetch_batches);
        assert_eq!(Ahead::new(0, data.prefetch_bytes / 3, &experiment).0.len(), 3);
        assert_eq!(Ahead::new(0, 2 * data.prefetch_bytes, &experiment).0.len(), 1, "the one in use");
    }
}
