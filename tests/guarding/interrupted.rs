//! What becomes of an evaluation whose data does not come.

use burn::nn::{Initializer, LinearConfig};
use burn::tensor::{Device, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undertone::train::{
    BoxError, Checkpoints, Evaluation, Learner, LossSum, LossTerm, Objective, Summary, TrainConfig, TrainError,
    TrainState,
};
use undertone_tests::toys::{Hundred, Partial, Zero};

/// Judges by how often it has judged; the judgement of this number is one whose data does not come.
struct Waits {
    judged: AtomicUsize,
    until: usize,
    interrupt: Arc<AtomicBool>,
}

impl Objective for Waits {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, batch: &usize) -> usize {
        Zero.samples(batch)
    }

    fn loss_terms(&self, batch: &usize) -> Vec<LossTerm> {
        Zero.loss_terms(batch)
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Zero.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, d: &Device) -> Result<Vec<LossSum>, BoxError> {
        Zero.losses(model, batch, one, d)
    }

    fn evaluate(&self, model: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        if self.judged.fetch_add(1, Ordering::Relaxed) == self.until {
            self.interrupt.store(true, Ordering::Relaxed);
            return Err("nobody waits for it".into());
        }
        let weight = model.used.weight.val().sum().into_scalar::<f32>();
        Ok(Evaluation { metrics: [("cer".to_owned(), f64::from(weight))].into(), ..Default::default() })
    }

    fn export(&self, _: &Partial, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn an_evaluation_that_an_interruption_kept_from_its_data_is_made_by_the_next_session() {
    let device = Device::default();
    let model = Partial {
        used: LinearConfig::new(1, 1).with_initializer(Initializer::Ones).init(&device),
        late: None,
        unused: None,
    };
    // Of the evaluations before the first step and after the second, fourth and sixth, with one of the average after each.
    let run = |dir: &Path, until: usize, resume: bool| {
        let mut config = TrainConfig { max_steps: Some(6), ema_decay: Some(0.5), ..Default::default() };
        (config.optimizer.warmup_steps, config.evaluate.every, config.checkpoint.every) = (1, 2, 2);
        let interrupt: Arc<AtomicBool> = Arc::default();
        let objective = Waits { judged: AtomicUsize::new(0), until, interrupt: interrupt.clone() };
        let mut learner = Learner::builder(config, objective, model.clone(), dir)
            .with_device(device.clone())
            .with_seed(1)
            .with_interrupt(interrupt)
            .build();
        assert_eq!(learner.resume().expect("a checkpoint"), resume);
        learner.train(&Hundred).expect("trained")
    };
    let state = |dir: &Path| {
        let newest = Checkpoints::new(dir.join("checkpoints")).newest().0.expect("a checkpoint");
        TrainState { seconds: 0.0, ..newest.state }
    };
    let metrics = |dir: &Path| std::fs::read_to_string(dir.join("metrics.jsonl")).expect("metrics");
    let whole = tempfile::tempdir().expect("a directory");
    assert!(run(whole.path(), usize::MAX, false).completed);
    assert!(!state(whole.path()).unjudged);
    for (until, step) in [(0, 0), (1, 2), (2, 2), (5, 6), (6, 6)] {
        let parts = tempfile::tempdir().expect("a directory");
        let first = run(parts.path(), until, false);
        assert_eq!((first.completed, first.steps), (false, step), "stopped in evaluation {until}");
        assert!(state(parts.path()).unjudged);
        let second = run(parts.path(), usize::MAX, true);
        assert!(second.completed && Summary::read(parts.path()).is_some_and(|summary| summary.completed));
        assert_eq!(state(parts.path()), state(whole.path()), "stopped in evaluation {until}");
        assert_eq!(metrics(parts.path()), metrics(whole.path()), "stopped in evaluation {until}");
    }
}

#[test]
fn an_evaluation_that_fails_without_an_interruption_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = TrainConfig { max_steps: Some(6), ..Default::default() };
    config.optimizer.warmup_steps = 1;
    (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
    let objective = Waits { judged: AtomicUsize::new(0), until: 0, interrupt: Arc::default() };
    let model = Partial::new(false, false, &Device::default());
    let error = Learner::builder(config, objective, model, dir.path())
        .with_device(Device::default())
        .with_seed(1)
        .build()
        .train(&Hundred);
    assert!(matches!(error, Err(TrainError::Data(_))), "{error:?}");
}
