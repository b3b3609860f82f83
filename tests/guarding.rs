//! What becomes of a run when losses, data or evaluations go wrong, and which of its models is the best.

use burn::nn::{Initializer, LinearConfig};
use burn::tensor::{Device, Tensor};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use undertone::metrics::{Direction, direction_of};
use undertone::train::{
    BackendFailure, BatchStream, Batches, BoxError, CheckpointConfig, Checkpoints, EvaluateConfig, Evaluation, Learner,
    LossTerm, Objective, OnNan, OnSpike, Summary, TrainConfig, TrainError, TrainState, catch_backend_failure,
};
use undertone_tests::toys::{Hundred, Partial, Zero, logged};

#[test]
fn training_stops_when_nothing_has_got_better_for_a_while_and_stays_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    // The score is 0 at every evaluation: the one before training is the best, and the two after it are no better.
    let patient = |steps| {
        let mut config = TrainConfig { max_steps: Some(steps), ..Default::default() };
        config.optimizer.warmup_steps = 1;
        (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
        config.evaluate.every = 5;
        config.early_stopping.patience = 2;
        Learner::builder(config, Zero, Partial::new(false, false, &Device::default()), dir.path())
            .with_device(Device::default())
            .with_seed(1)
            .build()
    };
    let summary = patient(40).train(&Hundred).expect("trained");
    assert_eq!((summary.steps, summary.completed), (10, true));
    let mut resumed = patient(40);
    assert!(resumed.resume().expect("a checkpoint"));
    assert_eq!(resumed.train(&Hundred).expect("trained").steps, 10);
}

/// The loss is a number but for some batches; the model learns from the others.
struct Poisoned {
    /// Batches whose loss is no number.
    nan: Vec<usize>,
    /// Batches whose loss leaps.
    high: Vec<usize>,
    /// Every batch there was, in order.
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Objective for Poisoned {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn names(&self, batch: &usize) -> Vec<String> {
        vec![format!("clip {batch}")]
    }

    fn counts(&self, _: &usize) -> Vec<f64> {
        vec![1.0]
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        self.seen.lock().expect("a list").push(*batch);
        Zero.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossTerm>, BoxError> {
        let factor = match batch {
            batch if self.nan.contains(batch) => f64::NAN,
            batch if self.high.contains(batch) => 1e4,
            _ => 1.0,
        };
        let sum = (model.used.forward(one).square().add_scalar(1.0)).sum().mul_scalar(factor);
        Ok(vec![LossTerm { name: "square".into(), weight: 1.0, sum }])
    }

    fn evaluate(&self, model: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        let weight = f64::from(model.used.weight.val().into_scalar::<f32>());
        let metrics = [("cer", 0.5), ("size", weight.abs())].map(|(name, value)| (name.to_owned(), value));
        Ok(Evaluation { metrics: metrics.into(), ..Default::default() })
    }

    fn export(&self, _: &Partial, directory: &Path) -> Result<(), BoxError> {
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
    let mut config = TrainConfig { max_steps: Some(60), log_every: 1, ..Default::default() };
    config.optimizer.warmup_steps = 1;
    (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
    config.checkpoint.every = 10;
    change(&mut config);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let objective = Poisoned { nan: nan.to_vec(), high: high.to_vec(), seen: seen.clone() };
    // Both begin at 1, so that every step brings them nearer to 0.
    let one = LinearConfig::new(1, 1).with_initializer(Initializer::Constant { value: 1.0 });
    let model = Partial { used: one.init(&Device::default()), late: None, unused: None };
    let result = Learner::builder(config, objective, model, dir)
        .with_device(Device::default())
        .with_seed(1)
        .build()
        .train(&Hundred);
    let seen = seen.lock().expect("a list").clone();
    (result, seen)
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_with_the_names_of_its_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(&[25], &[], dir.path(), |_| {});
    let text = result.expect_err("stopped").to_string();
    assert!(text.contains("step 26") && text.contains("NaN") && text.contains("`clip 25`"), "{text}");
    let newest = Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint");
    assert_eq!(newest.state.step, 25, "all that was learned before it is saved");
}

#[test]
fn a_loss_that_is_no_number_is_skipped_so_often_and_no_more() {
    let skip = |config: &mut TrainConfig| (config.guard.on_nan, config.guard.limit) = (OnNan::Skip, 2);
    let dir = tempfile::tempdir().expect("a directory");
    let (result, seen) = poisoned(&[25, 40], &[], dir.path(), skip);
    assert_eq!(result.expect("trained").steps, 60);
    assert_eq!(seen, (0..60).collect::<Vec<_>>(), "every batch once");
    let losses = logged(dir.path(), "loss");
    assert!(losses.len() == 58 && losses.iter().all(|loss| loss.is_finite()), "the two have none: {losses:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let error = poisoned(&[25, 26, 27], &[], dir.path(), skip).0.expect_err("too many").to_string();
    assert!(error.contains("step 28") && error.contains("passed over 2 times"), "{error}");
}

#[test]
fn a_rollback_goes_on_from_the_last_checkpoint_with_later_data() {
    let dir = tempfile::tempdir().expect("a directory");
    let back = |config: &mut TrainConfig| config.guard.on_nan = OnNan::Rollback;
    let (result, seen) = poisoned(&[25], &[], dir.path(), back);
    assert_eq!(result.expect("trained").steps, 60);
    // Steps 21 to 26 were lost; their batches are not seen again, and six later ones stand in for them.
    assert_eq!(seen, (0..66).collect::<Vec<_>>());
    assert_eq!(logged(dir.path(), "loss").len(), 60, "each step is logged once");
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
        let largest = logged(dir.path(), "loss").into_iter().fold(0.0, f64::max);
        (seen.len(), largest > 100.0)
    };
    assert_eq!(leaps(OnSpike::Warn), (60, true));
    assert_eq!(leaps(OnSpike::Skip), (60, true), "its loss is logged, its step is not taken");
    assert_eq!(leaps(OnSpike::Rollback), (66, false));
}

/// How a run of [`poisoned`] ended, and what its newest checkpoint says.
fn ended(nan: &[usize], high: &[usize], log_every: u64, change: impl Fn(&mut TrainConfig)) -> (String, Vec<f64>) {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(nan, high, dir.path(), |config| {
        change(config);
        config.log_every = log_every;
    });
    let checkpoint = Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint");
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
    (result.map_or_else(|error| error.to_string(), |summary| format!("{} steps", summary.steps)), numbers)
}

#[test]
fn what_is_heard_of_a_step_late_ends_as_if_it_were_known_at_once() {
    type Change = fn(&mut TrainConfig);
    let nan = |on_nan: OnNan| -> Change {
        match on_nan {
            OnNan::Stop => |config| config.guard.on_nan = OnNan::Stop,
            OnNan::Skip => |config| config.guard.on_nan = OnNan::Skip,
            OnNan::Rollback => |config| config.guard.on_nan = OnNan::Rollback,
        }
    };
    let averaged: Change = |config| (config.guard.on_nan, config.ema_decay) = (OnNan::Skip, Some(0.9));
    let limited: Change = |config| (config.guard.on_nan, config.guard.limit) = (OnNan::Skip, 1);
    let scaled: Change = |config| (config.compute, config.guard.on_nan) = (undertone::train::Compute::F16, OnNan::Skip);
    let grows: Change = |config| {
        config.compute = undertone::train::Compute::F16;
        config.loss_scale.growth_interval = 7;
    };
    let skips: Change = |config| config.guard.on_spike = OnSpike::Skip;
    let back: Change = |config| config.guard.on_spike = OnSpike::Rollback;
    let cases: [(&[usize], &[usize], Change); 10] = [
        (&[25], &[], nan(OnNan::Stop)),
        (&[0, 24, 25, 59], &[], nan(OnNan::Skip)),
        (&[24, 36], &[], nan(OnNan::Rollback)),
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
            config.early_stopping.metric = Some(metric.into());
            config.early_stopping.greater_is_better = greater_is_better;
            config.early_stopping.patience = 3;
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

/// As [`Poisoned`], and says which way its own metric is better.
struct Judged(Poisoned, Option<Direction>);

impl Objective for Judged {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, batch: &usize) -> usize {
        self.0.samples(batch)
    }

    fn counts(&self, batch: &usize) -> Vec<f64> {
        self.0.counts(batch)
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        self.0.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, d: &Device) -> Result<Vec<LossTerm>, BoxError> {
        self.0.losses(model, batch, one, d)
    }

    fn evaluate(&self, model: &Partial, metrics: &[String]) -> Result<Evaluation, BoxError> {
        self.0.evaluate(model, metrics)
    }

    fn direction(&self, metric: &str) -> Option<Direction> {
        direction_of(metric).or(self.1)
    }

    fn export(&self, model: &Partial, directory: &Path) -> Result<(), BoxError> {
        self.0.export(model, directory)
    }
}

#[test]
fn the_best_model_is_that_of_the_metrics_own_direction() {
    let run = |direction: Option<Direction>| {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = TrainConfig { max_steps: Some(60), ema_decay: Some(0.5), ..Default::default() };
        config.optimizer.warmup_steps = 1;
        (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
        config.evaluate = EvaluateConfig { every: 20, metrics: vec!["size".into()] };
        config.checkpoint = CheckpointConfig { every: 20, keep_last: 1, metric: "size".into(), ..Default::default() };
        let objective = Judged(Poisoned { nan: vec![], high: vec![], seen: Arc::default() }, direction);
        let one = LinearConfig::new(1, 1).with_initializer(Initializer::Ones);
        let model = Partial { used: one.init(&Device::default()), late: None, unused: None };
        let summary = Learner::builder(config, objective, model, dir.path())
            .with_device(Device::default())
            .with_seed(1)
            .build()
            .train(&Hundred)?;
        let kept = [20, 40, 60].map(|step| dir.path().join(format!("checkpoints/step-{step:08}")).is_dir());
        let state = Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint").state;
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
fn the_average_of_the_weights_is_judged_and_saved_beside_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let (result, _) = poisoned(&[], &[], dir.path(), |config| {
        config.ema_decay = Some(0.5);
        config.evaluate.every = 20;
    });
    result.expect("trained");
    let metrics = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("metrics");
    let sizes = |split: &str| -> Vec<f64> {
        let split = format!("\"{split}\"");
        let lines = metrics.lines().filter(|line| line.contains(&split));
        lines
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON")["size"].as_f64().expect("a size")
            })
            .collect()
    };
    let (valid, averaged) = (sizes("valid"), sizes("valid_ema"));
    assert_eq!((valid.len(), averaged.len()), (4, 3), "before the first step there is no average");
    assert!(valid[1..].iter().zip(&averaged).all(|(now, average)| average > now), "it lags: {valid:?} {averaged:?}");
    assert!(dir.path().join("best").is_dir() && dir.path().join("best_ema").is_dir());
    let checkpoint = Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint");
    let ema = checkpoint.ema.expect("averages").read("used.weight").expect("a weight").data[0];
    assert!((f64::from(ema.abs()) - averaged[2]).abs() < 1e-6);
}

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

    fn counts(&self, batch: &usize) -> Vec<f64> {
        Zero.counts(batch)
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Zero.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, d: &Device) -> Result<Vec<LossTerm>, BoxError> {
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

/// Judged by a list of error rates, one after the other; what is exported says which of them it was. Its batch of number
/// `broken` cannot be trained on, and that of number `nan` gives a loss that is no number.
struct Scripted {
    rates: Vec<f64>,
    judged: AtomicUsize,
    broken: Option<usize>,
    nan: Option<usize>,
}

impl Objective for Scripted {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn counts(&self, _: &usize) -> Vec<f64> {
        vec![1.0]
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        if self.broken == Some(*batch) {
            return Err(format!("batch {batch} is broken").into());
        }
        Zero.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossTerm>, BoxError> {
        let factor = if self.nan == Some(*batch) { f64::NAN } else { 1.0 };
        let sum = model.used.forward(one).square().sum().mul_scalar(factor);
        Ok(vec![LossTerm { name: "square".into(), weight: 1.0, sum }])
    }

    fn evaluate(&self, _: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        let rate = self.rates[self.judged.fetch_add(1, Ordering::Relaxed)];
        Ok(Evaluation { metrics: [("cer".to_owned(), rate)].into(), ..Default::default() })
    }

    fn export(&self, _: &Partial, directory: &Path) -> Result<(), BoxError> {
        std::fs::create_dir_all(directory)?;
        Ok(std::fs::write(directory.join("which"), self.judged.load(Ordering::Relaxed).to_string())?)
    }
}

fn scripted(rates: &[f64], broken: Option<usize>, nan: Option<usize>, dir: &Path) -> Learner<Scripted> {
    let mut config = TrainConfig { max_steps: Some(30), ..Default::default() };
    config.optimizer.warmup_steps = 1;
    (config.evaluate.metrics, config.checkpoint.metric) = (vec!["cer".into()], "cer".into());
    config.checkpoint.every = 10;
    config.evaluate = EvaluateConfig { every: 5, metrics: vec!["cer".into()] };
    config.guard.on_nan = OnNan::Rollback;
    let objective = Scripted { rates: rates.to_vec(), judged: AtomicUsize::default(), broken, nan };
    Learner::builder(config, objective, Partial::new(false, false, &Device::default()), dir)
        .with_device(Device::default())
        .with_seed(1)
        .build()
}

#[test]
fn the_best_model_stays_the_best_when_training_goes_back_behind_it() {
    let dir = tempfile::tempdir().expect("a directory");
    // Judged at 0, 5, 10, 15, 20 and 25; at step 27 training goes back to 20, and judges again at 25 and 30.
    let rates = [0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.4, 0.3];
    let summary = scripted(&rates, None, Some(26), dir.path()).train(&Hundred).expect("trained");
    assert_eq!(summary.best, Some((0.1, 25)));
    let read = |name: &str| std::fs::read_to_string(dir.path().join("best").join(name)).expect(name);
    assert_eq!(read("which"), "6", "a worse model has taken its place");
    let score: serde_json::Value = serde_json::from_str(&read("score.json")).expect("JSON");
    assert_eq!(score, serde_json::json!({ "metric": "cer", "value": 0.1, "step": 25 }));
}

#[test]
fn what_was_learned_before_an_error_is_saved_with_the_data_still_to_come() {
    let dir = tempfile::tempdir().expect("a directory");
    let rates = [0.5; 20];
    let error = scripted(&rates, Some(17), None, dir.path()).train(&Hundred).expect_err("broken");
    assert!(error.to_string().contains("batch 17"), "{error}");
    let state = || Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint").state;
    assert_eq!((state().step, state().cursor), (17, 17));
    // The same error again changes nothing, and without it the run ends.
    let mut again = scripted(&rates, Some(17), None, dir.path());
    assert!(again.resume().expect("resumed") && again.train(&Hundred).is_err());
    assert_eq!(state().step, 17);
    let mut mended = scripted(&rates, None, None, dir.path());
    assert!(mended.resume().expect("resumed"));
    assert!(mended.train(&Hundred).expect("trained").completed);
}

#[test]
fn two_learners_do_not_train_in_one_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let rates = [0.5; 20];
    scripted(&rates, None, None, dir.path()).train(&Hundred).expect("trained");
    let mut first = scripted(&rates, None, None, dir.path());
    assert!(first.resume().expect("free"));
    let error = scripted(&rates, None, None, dir.path()).train(&Hundred).expect_err("owned");
    assert!(matches!(error, TrainError::Lock(_)), "{error}");
    first.train(&Hundred).expect("nothing is left to do");
    assert!(scripted(&rates, None, None, dir.path()).resume().expect("free again"));
}

#[test]
fn steps_whose_loss_is_no_number_are_not_in_the_mean_and_those_rolled_back_count_once() {
    for on_nan in [OnNan::Skip, OnNan::Rollback] {
        let losses = |log_every| {
            let dir = tempfile::tempdir().expect("a directory");
            let (result, _) = poisoned(&[12, 13, 27], &[], dir.path(), |config| {
                (config.guard.on_nan, config.log_every) = (on_nan, log_every);
            });
            assert_eq!(result.expect("trained").steps, 60);
            logged(dir.path(), "loss")
        };
        let (each, lines) = (losses(1), losses(20));
        let skipped = if on_nan == OnNan::Skip { [2, 1, 0] } else { [0, 0, 0] };
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
        (config.guard.on_nan, config.guard.limit, config.log_every) = (OnNan::Skip, 20, 10);
    });
    result.expect("trained");
    let metrics = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("metrics");
    let first = metrics.lines().find(|line| line.contains("\"train\"")).expect("a line");
    assert!(first.contains("\"loss\":null"), "no step of these had a loss: {first}");
}

#[test]
fn what_was_learned_before_memory_ran_out_is_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut learner = scripted(&[0.5; 20], None, None, dir.path());
    let batches = Exhausted(17);
    let failure = catch_backend_failure(|| learner.train(&batches)).expect_err("no memory");
    assert!(matches!(failure, BackendFailure::OutOfMemory(said) if said.contains("out of device memory")));
    learner.rescue();
    let state = Checkpoints::new(dir.path().join("checkpoints")).newest().0.expect("a checkpoint").state;
    assert_eq!((state.step, state.cursor), (17, 17));
    drop(learner);
    let mut again = scripted(&[0.5; 20], None, None, dir.path());
    assert!(again.resume().expect("resumed") && again.train(&Hundred).expect("trained").completed);
}

/// As [`Hundred`]; memory runs out at the batch of this number.
struct Exhausted(usize);

impl Batches for Exhausted {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        Hundred.per_epoch()
    }

    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new(Hundred.epoch(epoch, start).inspect(|batch| {
            let number = batch.as_ref().map(|(_, number)| *number).expect("a batch");
            assert!(number != self.0, "out of device memory allocating 4 bytes");
        }))
    }
}
