//! NaN losses and spikes, and the choice of the best model.

mod interrupted;
mod saved;

use burn::tensor::{Device, Tensor};
use std::path::Path;
use std::sync::{Arc, Mutex};
use undertone::metrics::{Direction, direction_of};
use undertone::train::{
    BoxError, CheckpointConfig, Compute, EarlyStoppingConfig, EvaluateConfig, Evaluation, Learner, LossScaleConfig,
    LossSum, OnNan, OnSpike, Precision, Summary, TrainConfig, TrainError,
};
use undertone_tests::toys::{
    self, HUNDRED, OnPartial, Partial, Toy, Zero, evaluation, judged_run_of, logged, run_of, square,
};

#[test]
fn training_stops_when_nothing_has_got_better_for_a_while_and_stays_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    // The score is 0 at every evaluation: the one before training is the best, and the two after it are no better.
    let patient = |steps| {
        let mut config = judged_run_of(steps);
        config.evaluate.every = 5;
        config.early_stopping = Some(EarlyStoppingConfig::after(2));
        toys::learner(config, Zero, Partial::new(false, false, &Device::default()), dir.path())
    };
    let summary = patient(40).train(&HUNDRED).expect("trained");
    assert_eq!((summary.steps, summary.completed), (10, true));
    let mut resumed = patient(40);
    assert!(resumed.resume().expect("a checkpoint"));
    assert_eq!(resumed.train(&HUNDRED).expect("trained").steps, 10);
}

/// An objective whose loss is NaN for some batches.
struct Poisoned {
    /// Batches whose loss is not a number.
    nan: Vec<usize>,
    /// Batches whose loss leaps.
    high: Vec<usize>,
    /// Every batch there was, in order.
    seen: Arc<Mutex<Vec<usize>>>,
    /// The direction of a metric that has none by its name.
    direction: Option<Direction>,
}

impl Toy for Poisoned {
    fn names(&self, batch: usize) -> Vec<String> {
        vec![format!("clip {batch}")]
    }

    fn look_at(&self, batch: usize) -> Result<(), BoxError> {
        self.seen.lock().expect("a list").push(batch);
        Ok(())
    }

    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let factor = match batch {
            batch if self.nan.contains(&batch) => f64::NAN,
            batch if self.high.contains(&batch) => 1e4,
            _ => 1.0,
        };
        Ok(square((model.used.forward(one).square().add_scalar(1.0)).sum().mul_scalar(factor)))
    }

    fn evaluate(&self, model: &Partial) -> Result<Evaluation, BoxError> {
        let weight = f64::from(model.used.weight.val().into_scalar::<f32>());
        Ok(evaluation([("cer", 0.5), ("size", weight.abs())]))
    }

    fn direction(&self, metric: &str) -> Option<Direction> {
        direction_of(metric).or(self.direction)
    }

    fn export(&self, directory: &Path) -> Result<(), BoxError> {
        Ok(std::fs::create_dir_all(directory)?)
    }
}

/// A run of sixty steps with a checkpoint every ten, and the batches it saw.
fn poisoned(
    nan: &[usize],
    high: &[usize],
    dir: &Path,
    change: impl FnOnce(&mut TrainConfig),
) -> (Result<Summary, TrainError>, Vec<usize>) {
    let mut config = TrainConfig { log_every: 1, ..judged_run_of(60) };
    config.checkpoint.every = 10;
    change(&mut config);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let toy = Poisoned { nan: nan.to_vec(), high: high.to_vec(), seen: seen.clone(), direction: None };
    // Both parameters begin at 1, so that every step brings them nearer to 0.
    let result = toys::learner(config, toy, Partial::of(1.0), dir).train(&HUNDRED);
    let seen = seen.lock().expect("a list").clone();
    (result, seen)
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_with_the_names_of_its_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(&[25], &[], dir.path(), |_| {});
    let text = result.expect_err("stopped").to_string();
    assert!(text.contains("step 26") && text.contains("NaN") && text.contains("`clip 25`"), "{text}");
    // The parameters that it was stopped at may be what is wrong.
    let newest = toys::newest(dir.path());
    assert_eq!(newest.state.step, 20);
    assert!(text.contains(&format!("--resume goes on from `{}`", newest.path.display())), "{text}");
}

/// Training in which one step makes the weight so large that no later loss is a number, by its learning rate.
fn diverging(dir: &Path, guard: impl Fn(&mut TrainConfig)) -> Learner<OnPartial<Diverging>> {
    let mut config = TrainConfig { log_every: 1, ..judged_run_of(60) };
    config.checkpoint = CheckpointConfig { every: 1, keep_last: 1, keep_best: 1, metric: "cer".into() };
    guard(&mut config);
    toys::learner(config, Diverging, Partial::of(1.0), dir)
}

/// Below an output of 1.995 there is no loss that is a number; it begins at 2.
struct Diverging;

impl Toy for Diverging {
    fn losses(&self, model: &Partial, _: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let weight = model.used.forward(one);
        Ok(square((weight.clone() - 1.995).sqrt().sum() + weight.sum()))
    }

    fn evaluate(&self, _: &Partial) -> Result<Evaluation, BoxError> {
        Ok(evaluation([("cer", 0.5)]))
    }

    fn export(&self, directory: &Path) -> Result<(), BoxError> {
        Ok(std::fs::create_dir_all(directory)?)
    }
}

#[test]
fn a_run_that_diverged_goes_on_from_before_that() {
    let dir = tempfile::tempdir().expect("a directory");
    let newest = || toys::newest(dir.path());
    let error = diverging(dir.path(), |_| {}).train(&HUNDRED).expect_err("stopped");
    let TrainError::Guard { trouble, checkpoint, .. } = &error else { panic!("{error}") };
    let ruined = trouble.step - 1;
    // Of the checkpoints that are kept, the ruined one is the newest.
    assert!(dir.path().join(format!("checkpoints/step-{ruined:08}/state.json")).exists());
    assert_eq!(newest().state.step, ruined - 1);
    assert_eq!(checkpoint.as_deref(), Some(&*newest().path));
    // With the same rate it ends there again, with a lower one it goes on.
    let mut again = diverging(dir.path(), |_| {});
    assert!(again.resume().expect("resumed") && again.train(&HUNDRED).is_err());
    assert_eq!(newest().state.step, ruined - 1);
    let mut slower = diverging(dir.path(), |config| config.optimizer.lr = 1e-9);
    assert!(slower.resume().expect("resumed"));
    assert_eq!(slower.train(&HUNDRED).expect("trained").steps, 60);
}

#[test]
fn a_rollback_goes_back_behind_steps_that_were_skipped() {
    let dir = tempfile::tempdir().expect("a directory");
    // Batches 18 to 20 have no loss, and the checkpoint of step 20 is made in between; batch 40 leaps.
    let (result, seen) = poisoned(&[18, 19, 20], &[], dir.path(), |config| config.guard.on_nan = OnNan::SKIP);
    assert_eq!((result.expect("trained").steps, seen.len()), (60, 60));
    let dir = tempfile::tempdir().expect("a directory");
    let (result, seen) = poisoned(&[20], &[], dir.path(), |config| config.guard.on_nan = OnNan::ROLLBACK);
    assert_eq!(result.expect("trained").steps, 60);
    // No loss has been found with the parameters of step 20, so that it went back to step 10.
    assert_eq!(seen.len(), 60 + 11);
}

#[test]
fn a_loss_that_is_no_number_is_skipped_so_often_and_no_more() {
    let skip = |config: &mut TrainConfig| config.guard.on_nan = OnNan::Skip { limit: 2 };
    let dir = tempfile::tempdir().expect("a directory");
    let (result, seen) = poisoned(&[25, 40], &[], dir.path(), skip);
    assert_eq!(result.expect("trained").steps, 60);
    assert_eq!(seen, (0..60).collect::<Vec<_>>(), "every batch once");
    let losses = logged(dir.path(), "train", "loss");
    assert!(losses.len() == 58 && losses.iter().all(|loss| loss.is_finite()), "the two have none: {losses:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let error = poisoned(&[25, 26, 27], &[], dir.path(), skip).0.expect_err("too many").to_string();
    assert!(error.contains("step 28") && error.contains("passed over 2 times"), "{error}");
}

#[test]
fn a_rollback_goes_on_from_the_last_checkpoint_with_later_data() {
    let dir = tempfile::tempdir().expect("a directory");
    let back = |config: &mut TrainConfig| config.guard.on_nan = OnNan::ROLLBACK;
    let (result, seen) = poisoned(&[25], &[], dir.path(), back);
    assert_eq!(result.expect("trained").steps, 60);
    // Steps 21 to 26 were lost; their batches are not seen again, and six later ones stand in for them.
    assert_eq!(seen, (0..66).collect::<Vec<_>>());
    assert_eq!(logged(dir.path(), "train", "loss").len(), 60, "each step is logged once");
    // Before the first checkpoint there is nothing to go back to.
    let dir = tempfile::tempdir().expect("a directory");
    let (result, seen) = poisoned(&[5], &[], dir.path(), back);
    assert_eq!((result.expect("trained").steps, seen.len()), (60, 60));
}

#[test]
fn a_leap_of_the_loss_is_rolled_back_when_that_is_asked_for() {
    let leaps = |on_spike| {
        let dir = tempfile::tempdir().expect("a directory");
        let (result, seen) = poisoned(&[], &[45], dir.path(), |config| config.guard.on_spike = on_spike);
        assert_eq!(result.expect("trained").steps, 60);
        let largest = logged(dir.path(), "train", "loss").into_iter().fold(0.0, f64::max);
        (seen.len(), largest > 100.0)
    };
    assert_eq!(leaps(OnSpike::WARN), (60, true));
    assert_eq!(leaps(OnSpike::SKIP), (60, true), "its loss is logged, its step is not taken");
    assert_eq!(leaps(OnSpike::ROLLBACK), (66, false));
}

/// How a run of [`poisoned`] ended, and what its newest checkpoint says.
fn ended(nan: &[usize], high: &[usize], log_every: u64, change: impl Fn(&mut TrainConfig)) -> (String, Vec<f64>) {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(nan, high, dir.path(), |config| {
        change(config);
        config.log_every = log_every;
    });
    let checkpoint = toys::newest(dir.path());
    let state = &checkpoint.state;
    let counts = [state.step, state.samples, state.epoch, state.cursor as u64, state.guard.incidents];
    let mut numbers: Vec<f64> = counts.into_iter().map(|count| count as f64).collect();
    numbers.extend(state.loss_scale.map(|scale| scale.scale));
    let first = |tensor: undertone::store::HostTensor| f64::from(tensor.data[0]);
    numbers.push(first(checkpoint.model.read("used.weight").expect("a weight")));
    for part in ["step", "m", "v"] {
        numbers.push(first(checkpoint.optimizer.read(&format!("used.weight.{part}")).expect("a part")));
    }
    numbers.extend(checkpoint.ema.map(|ema| first(ema.read("used.weight").expect("an average"))));
    let place = dir.path().to_string_lossy();
    let said = |error: TrainError| error.to_string().replace(&*place, "DIR");
    (result.map_or_else(said, |summary| format!("{} steps", summary.steps)), numbers)
}

#[test]
fn what_is_heard_of_a_step_late_ends_as_if_it_were_known_at_once() {
    type Change = fn(&mut TrainConfig);
    let nan = |on_nan: OnNan| -> Change {
        match on_nan {
            OnNan::Stop => |config| config.guard.on_nan = OnNan::Stop,
            OnNan::Skip { .. } => |config| config.guard.on_nan = OnNan::SKIP,
            OnNan::Rollback { .. } => |config| config.guard.on_nan = OnNan::ROLLBACK,
        }
    };
    let averaged: Change = |config| (config.guard.on_nan, config.ema_decay) = (OnNan::SKIP, Some(0.9));
    let limited: Change = |config| config.guard.on_nan = OnNan::Skip { limit: 1 };
    let scaled: Change = |config| (config.compute, config.guard.on_nan) = (Compute::F16.into(), OnNan::SKIP);
    let grows: Change = |config| {
        config.compute = Precision::F16(LossScaleConfig { growth_interval: 7, ..Default::default() });
    };
    let skips: Change = |config| config.guard.on_spike = OnSpike::SKIP;
    let back: Change = |config| config.guard.on_spike = OnSpike::ROLLBACK;
    let cases: [(&[usize], &[usize], Change); 10] = [
        (&[25], &[], nan(OnNan::Stop)),
        (&[0, 24, 25, 59], &[], nan(OnNan::SKIP)),
        (&[24, 36], &[], nan(OnNan::ROLLBACK)),
        (&[0, 1, 25], &[], averaged),
        (&[25, 33], &[], limited),
        (&[25], &[], scaled),
        (&[], &[], grows),
        (&[], &[45, 52], skips),
        (&[], &[45], back),
        (&[], &[], nan(OnNan::Stop)),
    ];
    for (number, (nan, high, change)) in cases.into_iter().enumerate() {
        // A line at each step asks for the numbers of each at once.
        let (at_once, late) = (ended(nan, high, 1, change), ended(nan, high, 1000, change));
        assert_eq!(at_once.0, late.0, "case {number}");
        assert_eq!(at_once.1.len(), late.1.len());
        for (at_once, late) in at_once.1.iter().zip(&late.1) {
            assert!((at_once - late).abs() <= 1e-6 * at_once.abs(), "case {number}: {at_once} and {late}");
        }
    }
}

#[test]
fn early_stopping_watches_any_metric_in_either_direction() {
    let stops = |metric: &str, greater_is_better: Option<bool>| {
        let dir = tempfile::tempdir().expect("a directory");
        let (result, _) = poisoned(&[], &[], dir.path(), |config| {
            config.evaluate.every = 5;
            let metric = Some(metric.into());
            let patience = EarlyStoppingConfig::after(3);
            config.early_stopping = Some(EarlyStoppingConfig { metric, greater_is_better, ..patience });
        });
        result.map(|summary| summary.steps)
    };
    // The weight shrinks all the time.
    assert_eq!(stops("size", Some(false)).expect("trained"), 60);
    assert_eq!(stops("size", Some(true)).expect("trained"), 15);
    assert_eq!(stops("cer", None).expect("trained"), 15, "always the same");
    let error = stops("bleu", None).expect_err("refused").to_string();
    assert!(error.contains("`bleu`") && error.contains("`cer`, `size`"), "{error}");
    // Nobody says which way the size of a weight is better; of error rates everybody knows.
    let error = stops("size", None).expect_err("refused").to_string();
    assert!(error.contains("early_stopping.metric") && error.contains("`size`"), "{error}");
    let error = stops("cer", Some(true)).expect_err("refused").to_string();
    assert!(error.contains("early_stopping.greater_is_better") && error.contains("lower is better"), "{error}");
}

#[test]
fn the_best_model_is_that_of_the_metrics_own_direction() {
    let run = |direction: Option<Direction>| {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = TrainConfig { ema_decay: Some(0.5), ..run_of(60) };
        config.evaluate = EvaluateConfig { every: 20, metrics: vec!["size".into()] };
        config.checkpoint = CheckpointConfig { every: 20, keep_last: 1, metric: "size".into(), ..Default::default() };
        let toy = Poisoned { nan: vec![], high: vec![], seen: Arc::default(), direction };
        let summary = toys::learner(config, toy, Partial::of(1.0), dir.path()).train(&HUNDRED)?;
        let kept = [20, 40, 60].map(|step| dir.path().join(format!("checkpoints/step-{step:08}")).is_dir());
        let state = toys::newest(dir.path()).state;
        let best_ema = state.best_ema.expect("judged").1;
        Ok::<_, TrainError>((summary.best.expect("judged").1, best_ema, kept, summary.directions["size"]))
    };
    // The weight shrinks all the time. Before the first step there is no average.
    let lower = run(Some(Direction::Lower)).expect("trained");
    assert_eq!(lower, (60, 60, [false, false, true], Direction::Lower));
    let higher = run(Some(Direction::Higher)).expect("trained");
    assert_eq!(higher, (0, 20, [true, false, true], Direction::Higher));
    let error = run(None).expect_err("refused").to_string();
    assert!(error.contains("train.checkpoint.metric` is `size`") && error.contains("Objective::direction"), "{error}");
}

#[test]
fn a_trained_model_is_the_best_where_the_metric_does_not_move() {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(&[], &[], dir.path(), |config| config.evaluate.every = 20);
    assert_eq!(result.expect("trained").best.map(|(_, step)| step), Some(60), "the error rate is always the same");
}

#[test]
fn the_average_of_the_weights_is_judged_and_saved_beside_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(&[], &[], dir.path(), |config| {
        config.ema_decay = Some(0.5);
        config.evaluate.every = 20;
    });
    result.expect("trained");
    let sizes = |split: &str| -> Vec<f64> {
        toys::lines(dir.path(), split).iter().map(|line| line["size"].as_f64().expect("a size")).collect()
    };
    let (valid, averaged) = (sizes("valid"), sizes("valid_ema"));
    assert_eq!((valid.len(), averaged.len()), (4, 3), "before the first step there is no average");
    assert!(valid[1..].iter().zip(&averaged).all(|(now, average)| average > now), "it lags: {valid:?} {averaged:?}");
    assert!(dir.path().join("best").is_dir() && dir.path().join("best_ema").is_dir());
    let checkpoint = toys::newest(dir.path());
    let ema = checkpoint.ema.expect("averages").read("used.weight").expect("a weight").data[0];
    assert!((f64::from(ema.abs()) - averaged[2]).abs() < 1e-6);
}
