//! What is saved of a run that goes back, or ends before its time.

use super::poisoned;
use burn::tensor::{Device, Tensor};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use undertone::train::{
    BackendFailure, BoxError, Evaluation, Learner, LossSum, OnNan, TrainError, catch_backend_failure,
};
use undertone_tests::toys::{
    self, HUNDRED, OnPartial, Partial, Toy, evaluation, hundred, judged_run_of, logged, square,
};

/// Judged by a list of error rates, one after the other; what is exported says which of them it was. Its batch of number
/// `broken` cannot be trained on, and that of number `nan` gives a loss that is not a number.
struct Scripted {
    rates: Vec<f64>,
    judged: AtomicUsize,
    broken: Option<usize>,
    nan: Option<usize>,
}

impl Toy for Scripted {
    fn look_at(&self, batch: usize) -> Result<(), BoxError> {
        if self.broken == Some(batch) { Err(format!("batch {batch} is broken").into()) } else { Ok(()) }
    }

    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let factor = if self.nan == Some(batch) { f64::NAN } else { 1.0 };
        Ok(square(model.used.forward(one).square().sum().mul_scalar(factor)))
    }

    fn evaluate(&self, _: &Partial) -> Result<Evaluation, BoxError> {
        Ok(evaluation([("cer", self.rates[self.judged.fetch_add(1, Ordering::Relaxed)])]))
    }

    fn export(&self, directory: &Path) -> Result<(), BoxError> {
        std::fs::create_dir_all(directory)?;
        Ok(std::fs::write(directory.join("which"), self.judged.load(Ordering::Relaxed).to_string())?)
    }
}

fn scripted(rates: &[f64], broken: Option<usize>, nan: Option<usize>, dir: &Path) -> Learner<OnPartial<Scripted>> {
    let mut config = judged_run_of(30);
    config.checkpoint.every = 10;
    config.evaluate.every = 5;
    config.guard.on_nan = OnNan::ROLLBACK;
    let toy = Scripted { rates: rates.to_vec(), judged: AtomicUsize::default(), broken, nan };
    toys::learner(config, toy, Partial::new(false, false, &Device::default()), dir)
}

#[test]
fn the_best_model_stays_the_best_when_training_goes_back_behind_it() {
    let dir = tempfile::tempdir().expect("a directory");
    // Judged at 0, 5, 10, 15, 20 and 25; at step 27 training goes back to 20, and judges again at 25 and 30.
    let rates = [0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.4, 0.3];
    let summary = scripted(&rates, None, Some(26), dir.path()).train(&HUNDRED).expect("trained");
    assert_eq!(summary.best, Some((0.1, 25)));
    let read = |name: &str| std::fs::read_to_string(dir.path().join("best").join(name)).expect(name);
    assert_eq!(read("which"), "6", "a worse model has taken its place");
    let score: serde_json::Value = serde_json::from_str(&read("score.json")).expect("JSON");
    assert_eq!(score, serde_json::json!({ "metric": "cer", "value": 0.1, "step": 25, "files": ["which"] }));
}

#[test]
fn what_was_learned_before_an_error_is_saved_with_the_data_still_to_come() {
    let dir = tempfile::tempdir().expect("a directory");
    let rates = [0.5; 20];
    let error = scripted(&rates, Some(17), None, dir.path()).train(&HUNDRED).expect_err("broken");
    assert!(error.to_string().contains("batch 17"), "{error}");
    let state = || toys::newest(dir.path()).state;
    assert_eq!((state().step, state().cursor), (17, 17));
    // The same error again changes nothing, and without it the run ends.
    let mut again = scripted(&rates, Some(17), None, dir.path());
    assert!(again.resume().expect("resumed") && again.train(&HUNDRED).is_err());
    assert_eq!(state().step, 17);
    let mut mended = scripted(&rates, None, None, dir.path());
    assert!(mended.resume().expect("resumed"));
    assert!(mended.train(&HUNDRED).expect("trained").completed);
}

#[test]
fn two_learners_do_not_train_in_one_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let rates = [0.5; 20];
    scripted(&rates, None, None, dir.path()).train(&HUNDRED).expect("trained");
    let mut first = scripted(&rates, None, None, dir.path());
    assert!(first.resume().expect("free"));
    let error = scripted(&rates, None, None, dir.path()).train(&HUNDRED).expect_err("owned");
    assert!(matches!(error, TrainError::Lock(_)), "{error}");
    first.train(&HUNDRED).expect("nothing is left to do");
    assert!(scripted(&rates, None, None, dir.path()).resume().expect("free again"));
}

#[test]
fn steps_whose_loss_is_no_number_are_not_in_the_mean_and_those_rolled_back_count_once() {
    for on_nan in [OnNan::SKIP, OnNan::ROLLBACK] {
        let losses = |log_every| {
            let dir = tempfile::tempdir().expect("a directory");
            let (result, _) = poisoned(&[12, 13, 27], &[], dir.path(), |config| {
                (config.guard.on_nan, config.log_every) = (on_nan, log_every);
            });
            assert_eq!(result.expect("trained").steps, 60);
            logged(dir.path(), "train", "loss")
        };
        let (each, lines) = (losses(1), losses(20));
        let skipped = if on_nan == OnNan::SKIP { [2, 1, 0] } else { [0, 0, 0] };
        assert_eq!(each.len(), 60 - skipped.iter().sum::<usize>());
        let mut rest = each.as_slice();
        for (line, skipped) in lines.iter().zip(skipped) {
            let (these, later) = rest.split_at(20 - skipped);
            let mean = these.iter().sum::<f64>() / these.len() as f64;
            assert!((line - mean).abs() <= 1e-6 * mean, "{on_nan:?}: {line}, not {mean}");
            rest = later;
        }
        assert_eq!((lines.len(), rest.len()), (3, 0));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let all: Vec<usize> = (0..10).collect();
    let (result, _) = poisoned(&all, &[], dir.path(), |config| {
        (config.guard.on_nan, config.log_every) = (OnNan::Skip { limit: 20 }, 10);
    });
    result.expect("trained");
    let metrics = toys::metrics(dir.path());
    let first = metrics.lines().find(|line| line.contains("\"train\"")).expect("a line");
    assert!(first.contains("\"loss\":null"), "no step of these had a loss: {first}");
}

#[test]
fn what_was_learned_before_memory_ran_out_is_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut learner = scripted(&[0.5; 20], None, None, dir.path());
    let batches = hundred(|batch| assert!(batch != 17, "out of device memory allocating 4 bytes"));
    let failure = catch_backend_failure(|| learner.train(&batches)).expect_err("no memory");
    assert!(matches!(failure, BackendFailure::OutOfMemory(said) if said.contains("out of device memory")));
    learner.rescue();
    let state = toys::newest(dir.path()).state;
    assert_eq!((state.step, state.cursor), (17, 17));
    drop(learner);
    let mut again = scripted(&[0.5; 20], None, None, dir.path());
    assert!(again.resume().expect("resumed") && again.train(&HUNDRED).expect("trained").completed);
}
