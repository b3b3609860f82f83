//! What the Learner asks of a model and a loss, and what it writes down of them.

use burn::tensor::{Device, Tensor};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use undertone::phases::RunError;
use undertone::store::{parameters, set_trainable};
use undertone::train::{
    BatchStream, Batches, BoxError, Checkpoints, Contents, Learner, LossSum, LossTerm, StepOutcome, Summary,
    TrainConfig, TrainError, TrainState,
};
use undertone_tests::toys::{self, HUNDRED, OnPartial, Partial, Toy, Zero, hundred, logged, metrics, run_of};

/// Says that there is a batch, and has none in any epoch.
struct Empty;

impl Batches for Empty {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        1
    }

    fn epoch(&self, _: u64, _: usize) -> BatchStream<'_, usize> {
        Box::new(std::iter::empty())
    }
}

#[test]
fn epochs_without_a_batch_end_a_run_instead_of_following_each_other_for_ever() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Partial::new(false, false, &Device::default());
    let error = learner(model, 50, dir.path()).train(&Empty).expect_err("refused");
    assert!(matches!(error, TrainError::NoData), "{error}");
}

fn learner(model: Partial, steps: u64, dir: &Path) -> Learner<OnPartial<Zero>> {
    toys::learner(run_of(steps), Zero, model, dir)
}

#[test]
fn a_parameter_that_never_gets_a_gradient_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Partial::new(false, true, &Device::default());
    let error = learner(model, 50, dir.path()).train(&HUNDRED).expect_err("refused");
    assert!(matches!(error, TrainError::NoGradient { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`unused.weight`") && text.contains("`unused.bias`") && !text.contains("`used."), "{text}");
}

/// Its second term goes through `late`, and comes up from the batch of this number on.
struct Rare(usize);

impl Toy for Rare {
    fn loss_terms(&self, batch: usize) -> Vec<LossTerm> {
        let term = |name: &'static str, count| LossTerm { name: name.into(), weight: 1.0, count };
        vec![term("often", 1.0), term("rare", f64::from(u8::from(batch >= self.0)))]
    }

    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let rare = match &model.late {
            Some(late) if batch >= self.0 => late.forward(one.clone()).square().sum(),
            _ => Tensor::zeros([1], &one.device()),
        };
        Ok(vec![("often".into(), model.used.forward(one).square().sum()), ("rare".into(), rare)])
    }
}

#[test]
fn a_parameter_that_few_samples_reach_is_given_time_and_its_term_is_not_logged_as_zero() {
    let train = |model: Partial, dir: &Path| {
        let config = TrainConfig { log_every: 1, ..run_of(50) };
        toys::learner(config, Rare(30), model, dir).train(&HUNDRED)
    };
    let dir = tempfile::tempdir().expect("a directory");
    let device = Device::default();
    assert_eq!(train(Partial::new(true, false, &device), dir.path()).expect("trained").steps, 50);
    let there: Vec<bool> = toys::lines(dir.path(), "train").iter().map(|line| line.get("rare").is_some()).collect();
    assert_eq!(there, (0..50).map(|step| step >= 30).collect::<Vec<_>>());
    // Once every term has been heard, what still has no gradient never will.
    let dir = tempfile::tempdir().expect("a directory");
    let error = train(Partial::new(true, true, &device), dir.path()).expect_err("refused").to_string();
    assert!(error.contains("`unused.weight`") && !error.contains("`late."), "{error}");
}

#[test]
fn a_parameter_that_had_its_gradient_before_the_run_was_resumed_is_not_missed() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = || Partial::new(true, false, &Device::default());
    let mut first = learner(model(), 30, dir.path());
    let done = |summary: Result<Summary, TrainError>| summary.expect("trained").steps;
    assert_eq!(done(first.train(&HUNDRED)), 30);
    let mut second = learner(model(), 40, dir.path());
    assert!(second.resume().expect("a checkpoint"));
    assert_eq!(done(second.train(&HUNDRED)), 40);
}

#[test]
fn a_run_does_not_go_on_with_other_frozen_weights() {
    let dir = tempfile::tempdir().expect("a directory");
    let frozen = || {
        let model = Partial::new(false, true, &Device::default());
        set_trainable(model, |name| name.starts_with("used."))
    };
    let (model, other) = (frozen(), frozen());
    learner(model.clone(), 3, dir.path()).train(&HUNDRED).expect("trained");
    let mut same = learner(model, 4, dir.path());
    assert!(same.resume().expect("a checkpoint"));
    assert_eq!(same.train(&HUNDRED).expect("trained").steps, 4);
    let error = learner(other.clone(), 5, dir.path()).resume().expect_err("refused");
    assert!(matches!(&error, TrainError::Frozen(path) if path.ends_with("checkpoints/step-00000004")), "{error}");
    assert!(RunError::from(error).is_bad_input());
    // A checkpoint from before there were checksums says nothing of frozen weights; the next one does.
    let checkpoints = Checkpoints::new(dir.path().join("checkpoints"));
    let newest = checkpoints.newest().0.expect("a checkpoint");
    let read = |file: &undertone::store::TensorFile| {
        file.names().into_iter().map(|name| (name.clone(), file.read(&name).expect("a tensor"))).collect()
    };
    let (parameters, optimizer) = (read(&newest.model), read(&newest.optimizer));
    std::fs::remove_dir_all(&newest.path).expect("deleted");
    let state = TrainState { frozen: None, ..newest.state };
    checkpoints.save(&Contents { state, model: parameters, optimizer, ema: None }).expect("saved");
    let mut older = learner(other, 5, dir.path());
    assert!(older.resume().expect("a checkpoint"));
    assert_eq!(older.train(&HUNDRED).expect("trained").steps, 5);
    assert!(checkpoints.newest().0.expect("a checkpoint").state.frozen.is_some());
}

#[test]
fn gauges_of_a_steps_last_batch_are_logged_after_its_losses() {
    let dir = tempfile::tempdir().expect("a directory");
    // A hundred batches in windows of three: the last window of the epoch has one.
    let config = TrainConfig { accumulation: 3, log_every: 1, ..run_of(35) };
    let model = Partial::new(false, false, &Device::default());
    toys::learner(config, Zero, model, dir.path()).train(&HUNDRED).expect("trained");
    let lines = toys::lines(dir.path(), "train");
    let numbers: Vec<f64> = lines.iter().map(|line| line["number"].as_f64().expect("a number")).collect();
    let last = (1..=33).map(|step| f64::from(3 * step - 1)).chain([99.0, 2.0]);
    assert_eq!(numbers, last.collect::<Vec<_>>());
    let names: Vec<&String> = lines[0].as_object().expect("an object").keys().collect();
    assert_eq!(names, ["step", "split", "loss", "number", "half", "lr", "grad_norm"]);
}

/// Loss terms with names and counts of one's own.
struct Terms {
    /// Those that are returned of the batch with that number.
    names: fn(usize) -> Vec<&'static str>,
    /// Those that are listed, for these names and, if there are more, for `style`. The first is that of the first batch
    /// alone.
    counts: Vec<f64>,
}

impl Toy for Terms {
    /// The first term counts as many more as the batch's number says.
    fn loss_terms(&self, batch: usize) -> Vec<LossTerm> {
        let names = (self.names)(batch).into_iter().chain(["style"]);
        let term = |(name, count): (&'static str, &f64)| LossTerm { name: name.into(), weight: 0.5, count: *count };
        let mut terms: Vec<LossTerm> = names.zip(&self.counts).map(term).collect();
        terms[0].count += batch as f64;
        terms
    }

    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        let square = model.used.forward(one).square().sum() + (batch % 3 + 1) as f64;
        let names = (self.names)(batch).into_iter();
        Ok(names.map(|name| (name.into(), square.clone())).collect())
    }
}

/// Twelve steps of two batches each on `terms`, with a line every `log_every`, from where the run in `dir` stands; it is
/// interrupted after the step `stop`.
fn terms(terms: Terms, log_every: u64, dir: &Path, stop: Option<u64>) -> Result<Summary, TrainError> {
    let mut config = TrainConfig { accumulation: 2, log_every, ..run_of(12) };
    config.checkpoint.every = 1;
    let stopped = Arc::new(AtomicBool::new(false));
    let batches = hundred(|batch| {
        if Some(batch as u64 + 1) == stop.map(|step| 2 * step) {
            stopped.store(true, Ordering::Relaxed);
        }
    });
    // The same weights every time, whatever other tests draw from the device's random numbers.
    let mut learner = toys::builder(config, terms, Partial::of(0.5), dir).with_interrupt(stopped.clone()).build();
    learner.resume()?;
    learner.train(&batches)
}

#[test]
fn loss_terms_without_a_count_or_a_name_of_their_own_are_refused_by_name() {
    for (names, counts, expected) in [
        ((|_| vec!["text", "style"]) as fn(usize) -> Vec<&'static str>, vec![1.0], vec!["1 loss terms", "`style`"]),
        (|_| vec!["text"], vec![1.0, 1.0], vec!["2 loss terms", "only 1", "`text`"]),
        (|_| vec!["text", "text"], vec![1.0, 1.0], vec!["`text`", "two loss terms"]),
        (|b| if b == 0 { vec!["a", "b"] } else { vec!["b", "a"] }, vec![1.0, 1.0], vec!["`a`, `b`", "`b`, `a`"]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let error = terms(Terms { names, counts }, 1, dir.path(), None).expect_err("refused").to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_line_has_the_loss_of_all_steps_since_the_line_before_it() {
    let objective = || Terms { names: |_| vec!["text", "style"], counts: vec![1.0, 2.0] };
    let run = |log_every| {
        let dir = tempfile::tempdir().expect("a directory");
        terms(objective(), log_every, dir.path(), None).expect("trained");
        let of = |name: &str| logged(dir.path(), "train", name);
        [of("loss"), of("text"), of("style"), of("last_loss")]
    };
    let ([each, text, style, none], [lines, lines_text, lines_style, last]) = (run(1), run(5));
    assert!(none.is_empty(), "where a line is a step there is no other");
    // Steps 5, 10 and the last, 12.
    assert_eq!((each.len(), lines.len()), (12, 3));
    assert_eq!(last, [each[4], each[9], each[11]]);
    // A step has two batches; the counts of the first term are their numbers and one.
    let count = |step: usize| (4 * step + 3) as f64;
    for (line, steps) in [0..5, 5..10, 10..12].into_iter().enumerate() {
        let counted: f64 = steps.clone().map(count).sum();
        let expected_text = steps.clone().map(|step| text[step] * count(step)).sum::<f64>() / counted;
        let expected_style = style[steps.clone()].iter().sum::<f64>() / steps.len() as f64;
        let expected = 0.5 * (expected_text + expected_style);
        for (found, expected) in
            [(lines_text[line], expected_text), (lines_style[line], expected_style), (lines[line], expected)]
        {
            assert!((found - expected).abs() <= 1e-6 * expected, "line {line}: {found}, not {expected}");
        }
    }
    let mean = each[..5].iter().sum::<f64>() / 5.0;
    assert!((lines[0] - mean).abs() > 1e-3 * mean, "a mean of means would pass for it: {} and {mean}", lines[0]);
}

#[test]
fn a_run_interrupted_between_two_lines_writes_the_lines_of_one_that_was_not() {
    let objective = || Terms { names: |_| vec!["text", "style"], counts: vec![1.0, 2.0] };
    let whole = tempfile::tempdir().expect("a directory");
    terms(objective(), 5, whole.path(), None).expect("trained");
    for stop in 1..12 {
        let dir = tempfile::tempdir().expect("a directory");
        let stopped = terms(objective(), 5, dir.path(), Some(stop)).expect("trained");
        assert!(!stopped.completed && stopped.steps == stop, "{} steps", stopped.steps);
        assert!(terms(objective(), 5, dir.path(), None).expect("trained").completed);
        assert_eq!(metrics(dir.path()), metrics(whole.path()), "interrupted after step {stop}");
    }
}

#[test]
fn steps_of_a_loop_of_ones_own_are_those_of_training() {
    let model = || {
        let device = Device::default();
        device.seed(3);
        Partial::new(false, false, &device)
    };
    let trained = tempfile::tempdir().expect("a directory");
    let mut whole = learner(model(), 6, trained.path());
    whole.train(&HUNDRED).expect("trained");
    let by_hand = tempfile::tempdir().expect("a directory");
    let mut own = learner(model(), 6, by_hand.path());
    for (step, batch) in (0..6).enumerate() {
        let (outcome, report) = own.step(&mut [batch]).expect("a step");
        assert_eq!((outcome, report.step, report.samples), (StepOutcome::Taken, step as u64 + 1, 1));
        assert!(report.loss.is_finite() && report.norm > 0.0 && report.rate > 0.0, "{report:?}");
    }
    assert_eq!(own.steps(), 6);
    assert_eq!(parameters(own.model()), parameters(whole.model()));
    assert_eq!(logged(trained.path(), "train", "loss").len(), 1);
    assert_eq!(std::fs::read_dir(by_hand.path()).expect("listed").count(), 0, "nothing is written");
    assert!(matches!(own.step(&mut []), Err(TrainError::NoData)));
}

/// Notes which threads compute batches.
struct Threads(Mutex<HashSet<ThreadId>>);

impl Toy for Threads {
    fn look_at(&self, _: usize) -> Result<(), BoxError> {
        self.0.lock().expect("no panic").insert(std::thread::current().id());
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    fn losses(&self, model: &Partial, batch: usize, one: Tensor<2>) -> Result<Vec<LossSum>, BoxError> {
        if batch == 99 { Err("the last one".into()) } else { Zero.losses(model, batch, one) }
    }
}

#[test]
fn batches_of_a_step_are_computed_side_by_side_once_a_step_has_shown_what_one_needs() {
    let dir = tempfile::tempdir().expect("a directory");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    pool.install(|| {
        let model = Partial::new(false, false, &Device::flex());
        let toy = Threads(Mutex::default());
        let mut learner = toys::builder(run_of(5), toy, model, dir.path()).with_device(Device::flex()).build();
        for computing in [1, 4, 4] {
            let (outcome, report) = learner.step(&mut [0, 1, 2]).expect("a step");
            assert_eq!((outcome, report.samples), (StepOutcome::Taken, 3));
            // The first step's thread, and one of each group.
            assert_eq!(learner.objective().0.0.lock().expect("no panic").len(), computing);
        }
        let error = learner.step(&mut [3, 99, 4]).expect_err("refused").to_string();
        assert!(error.contains("the last one"), "{error}");
        assert_eq!(learner.steps(), 3);
    });
}
