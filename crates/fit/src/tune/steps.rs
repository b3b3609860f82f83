//! The optimizer steps of a probe.

use super::probe::Attempt;
use burn::tensor::Device;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use undertone_metrics::Direction;
use undertone_train::{
    BatchStream, Batches, BoxError, Evaluation, LearnerBuilder, LossSum, LossTerm, LrScalingConfig, Objective,
    TrainConfig, TrainError,
};

/// Number of optimizer steps of a probe. The first allocates the optimizer's state and everything else that stays, so
/// the second has the peak memory; the third is measured together with it.
const STEPS: usize = 3;

/// Yields the same batch in every step, and holds as many copies of it as the loader would prefetch.
pub struct RepeatedBatch<B>(Vec<B>);

impl<B: Clone> RepeatedBatch<B> {
    /// Repeats a batch of `bytes` bytes, for a loader that prefetches `prefetch_batches` batches of at most
    /// `prefetch_bytes` bytes in total.
    pub fn new(batch: B, bytes: usize, prefetch_batches: usize, prefetch_bytes: usize) -> Self {
        Self(vec![batch; prefetch_batches.min(prefetch_bytes / bytes.max(1)).max(1)])
    }
}

impl<B: Clone> Batches for RepeatedBatch<B> {
    type Batch = B;

    fn per_epoch(&self) -> usize {
        usize::MAX
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, B> {
        Box::new((start + 1..).zip(self.0.iter().cycle().cloned()).map(Ok))
    }
}

/// Returns `config` changed for a run of a few steps without evaluation and checkpoints.
pub fn probe_config(config: &TrainConfig, attempt: Attempt) -> TrainConfig {
    let mut config = config.clone();
    config.accumulation = attempt.accumulation;
    // More steps than the warm-up and the check for parameters without gradients need.
    (config.max_steps, config.epochs) = (Some(config.optimizer.warmup_steps.unwrap_or(0) + 1000), None);
    (config.evaluate.every, config.checkpoint.every) = (0, 0);
    config.early_stopping = None;
    (config.csv, config.tensorboard) = (false, false);
    // The learning rate does not matter here, and the Learner refuses one that is still to be scaled.
    config.optimizer.lr_scaling = LrScalingConfig::None;
    config
}

/// Takes the steps of a probe with the Learner, as a run would, and returns the samples per second of all but the
/// first.
///
/// # Errors
/// If a step fails.
pub fn probe_steps<O, B>(
    objective: O,
    learner: impl FnOnce(ProbeObjective<O>) -> LearnerBuilder<ProbeObjective<O>>,
    batches: &B,
    attempt: Attempt,
) -> Result<f64, TrainError>
where
    O: Objective,
    B: Batches<Batch = O::Batch>,
{
    let calls = Arc::<Mutex<Vec<Instant>>>::default();
    let timed = ProbeObjective { objective, calls: calls.clone(), last: STEPS * attempt.accumulation };
    let result = learner(timed).with_rescue(false).build().train(batches);
    let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    match (result, calls.get(attempt.accumulation), calls.get(STEPS * attempt.accumulation)) {
        (_, Some(from), Some(to)) => {
            Ok(((STEPS - 1) * attempt.accumulation * attempt.batch) as f64 / to.duration_since(*from).as_secs_f64())
        }
        (Err(error), ..) => Err(error),
        (Ok(_), ..) => Err(TrainError::NoData),
    }
}

/// An objective that records the time of each upload of a batch and fails after the last step. Thus the Learner stops
/// without writing a checkpoint, which for a large model takes longer than the probe.
pub struct ProbeObjective<O> {
    objective: O,
    calls: Arc<Mutex<Vec<Instant>>>,
    last: usize,
}

impl<O: Objective> Objective for ProbeObjective<O> {
    type Model = O::Model;
    type Batch = O::Batch;
    type Input = O::Input;

    fn samples(&self, batch: &O::Batch) -> usize {
        self.objective.samples(batch)
    }

    fn loss_terms(&self, batch: &O::Batch) -> Vec<LossTerm> {
        self.objective.loss_terms(batch)
    }

    fn upload(&self, batch: &mut O::Batch, device: &Device) -> Result<O::Input, BoxError> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
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
    ) -> Result<Vec<LossSum>, BoxError> {
        self.objective.losses(model, batch, input, device)
    }

    fn direction(&self, metric: &str) -> Option<Direction> {
        self.objective.direction(metric)
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use undertone_train::Learner;

    /// y = 2x; fails from a given call on.
    struct Double {
        fails_from: usize,
        calls: AtomicUsize,
    }

    impl Objective for Double {
        type Model = Linear;
        type Batch = f32;
        type Input = Tensor<2>;

        fn samples(&self, _: &f32) -> usize {
            1
        }

        fn loss_terms(&self, _: &f32) -> Vec<LossTerm> {
            vec![LossTerm { name: "square".into(), weight: 1.0, count: 1.0 }]
        }

        fn upload(&self, x: &mut f32, device: &Device) -> Result<Tensor<2>, BoxError> {
            Ok(Tensor::from_floats([[*x]], device))
        }

        fn losses(&self, model: &Linear, x: &f32, input: Tensor<2>, _: &Device) -> Result<Vec<LossSum>, BoxError> {
            if self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= self.fails_from {
                return Err("no such word".into());
            }
            let y = model.forward(input);
            Ok(vec![("square".into(), (y - 2.0 * x).square().sum())])
        }

        fn evaluate(&self, _: &Linear, _: &[String]) -> Result<Evaluation, BoxError> {
            Err("a probe judges nothing".into())
        }

        fn direction(&self, metric: &str) -> Option<Direction> {
            (metric == "pixel_error").then_some(Direction::Lower)
        }

        fn export(&self, _: &Linear, _: &Path) -> Result<(), BoxError> {
            Err("a probe exports nothing".into())
        }
    }

    fn run(fails_from: usize, directory: &Path) -> Result<f64, TrainError> {
        let attempt = Attempt { batch: 1, accumulation: 2, checkpointing: false };
        let device = Device::flex();
        let model = LinearConfig::new(1, 1).init(&device);
        let mut config = TrainConfig { epochs: Some(1), ..Default::default() };
        // A metric that the objective alone knows.
        config.checkpoint.metric = "pixel_error".into();
        config.evaluate.metrics = vec!["pixel_error".into()];
        let config = probe_config(&config, attempt);
        let learner = |timed: ProbeObjective<Double>| {
            Learner::builder(config, timed, model, directory).with_device(device).with_seed(1)
        };
        let batches = RepeatedBatch::new(0.5, 4, 16, 1 << 20);
        probe_steps(Double { fails_from, calls: AtomicUsize::default() }, learner, &batches, attempt)
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
        let (batches, bytes) = (16, 1 << 30);
        assert_eq!(RepeatedBatch::new(0, 1, batches, bytes).0.len(), batches);
        assert_eq!(RepeatedBatch::new(0, bytes / 3, batches, bytes).0.len(), 3);
        assert_eq!(RepeatedBatch::new(0, 2 * bytes, batches, bytes).0.len(), 1, "the one in use");
    }
}
