//! What becomes of an evaluation whose data does not come.

use burn::tensor::Device;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undertone::train::{BoxError, Evaluation, Summary, TrainConfig, TrainError, TrainState};
use undertone_tests::toys::{self, HUNDRED, Partial, Toy, evaluation, judged_run_of, metrics, run_of};

/// Judges by how often it has judged; the judgement of this number is one whose data does not come.
struct Waits {
    judged: AtomicUsize,
    until: usize,
    interrupt: Arc<AtomicBool>,
}

impl Toy for Waits {
    fn evaluate(&self, model: &Partial) -> Result<Evaluation, BoxError> {
        if self.judged.fetch_add(1, Ordering::Relaxed) == self.until {
            self.interrupt.store(true, Ordering::Relaxed);
            return Err("nobody waits for it".into());
        }
        let weight = model.used.weight.val().sum().into_scalar::<f32>();
        Ok(evaluation([("cer", f64::from(weight))]))
    }
}

#[test]
fn an_evaluation_that_an_interruption_kept_from_its_data_is_made_by_the_next_session() {
    // Of the evaluations before the first step and after the second, fourth and sixth, with one of the average after each.
    let run = |dir: &Path, until: usize, resume: bool| {
        let mut config = TrainConfig { ema_decay: Some(0.5), ..run_of(6) };
        (config.evaluate.every, config.checkpoint.every) = (2, 2);
        let interrupt: Arc<AtomicBool> = Arc::default();
        let toy = Waits { judged: AtomicUsize::new(0), until, interrupt: interrupt.clone() };
        let mut learner = toys::builder(config, toy, Partial::of(1.0), dir).with_interrupt(interrupt).build();
        assert_eq!(learner.resume().expect("a checkpoint"), resume);
        learner.train(&HUNDRED).expect("trained")
    };
    let state = |dir: &Path| TrainState { seconds: 0.0, ..toys::newest(dir).state };
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
    let toy = Waits { judged: AtomicUsize::new(0), until: 0, interrupt: Arc::default() };
    let model = Partial::new(false, false, &Device::default());
    let error = toys::learner(judged_run_of(6), toy, model, dir.path()).train(&HUNDRED);
    assert!(matches!(error, Err(TrainError::Data(_))), "{error:?}");
}
