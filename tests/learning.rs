//! What training computes: exact accumulation, the same bits every time, and no parameter forgotten.

use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use undertone::phases::{Experiment, RunError, Session, finetune};
use undertone::store::{HostTensor, set_trainable};
use undertone::train::metrics::{Direction, direction_of};
use undertone::train::{
    BatchStream, Batches, BoxError, CheckpointConfig, Checkpoints, Contents, EvaluateConfig, Evaluation, Learner,
    LossTerm, Objective, OnNan, OnSpike, Summary, TrainConfig, TrainError, TrainState,
};
use undertone_tests::{CLIPS, Place, tensors};

/// The parameters after `steps` steps of the tiny experiment, changed by `settings`.
fn train(steps: u64, settings: &[&str]) -> BTreeMap<String, HostTensor> {
    train_and_record(steps, settings).0
}

/// The parameters and what `metrics.jsonl` says of every step.
fn train_and_record(steps: u64, settings: &[&str]) -> (BTreeMap<String, HostTensor>, String) {
    let place = Place::default();
    place.write_experiment(&format!("samples: 96, {CLIPS}"));
    let mut all = vec![format!("run.dir={}", place.path("runs").display()), format!("train.max_steps={steps}")];
    all.extend(settings.iter().map(|s| (*s).to_owned()));
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &all).expect("an experiment");
    let run = finetune(&experiment, &Session::default()).expect("a run");
    let metrics = std::fs::read_to_string(run.directory.join("metrics.jsonl")).expect("metrics");
    (tensors(&run.directory.join(format!("checkpoints/step-{steps:08}/model.safetensors"))), metrics)
}

#[test]
fn accumulated_batches_equal_a_whole_one() {
    // The texts differ in length, so a mean of the batches' means would be another loss. Adam divides by the root of the
    // squared gradient: with its usual ε, rounding decides where a gradient that should be 0 takes its parameter.
    // Clipping would hide a gradient of the wrong length.
    let common = [
        "train.optimizer.epsilon=1e-3",
        "train.optimizer.clip_norm=0",
        "model.source.config.dropout=0",
        "train.optimizer.lr=1e-2",
        "loss.alignment.characters=1",
        "loss.alignment.elements=0.5",
        "loss.alignment.elements_layer=1",
    ];
    let window = |batch: &str, accumulation: &str| train(3, &[&common[..], &[batch, accumulation]].concat());
    for (batch, parts, part) in [(32, 4, 8), (8, 2, 4), (8, 8, 1)] {
        let whole = window(&format!("data.batch_size={batch}"), "train.accumulation=1");
        let accumulated = window(&format!("data.batch_size={part}"), &format!("train.accumulation={parts}"));
        let off = distance(&accumulated, &whole);
        assert!(off <= 1e-5, "{parts} x {part} is off by {off}");
    }
}

/// The largest difference of any parameter, as a share of its largest value.
fn distance(a: &BTreeMap<String, HostTensor>, b: &BTreeMap<String, HostTensor>) -> f32 {
    let share = |(name, b): (&String, &HostTensor)| {
        let largest = b.data.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        let off = a[name].data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        off / largest
    };
    b.iter().map(share).fold(0.0, f32::max)
}

#[test]
fn half_precision_trains_nearly_as_f32_does() {
    let common = ["model.source.config.dropout=0", "train.optimizer.epsilon=1e-3"];
    let [full, bf16, f16] = ["f32", "bf16", "f16"].map(|compute| {
        let compute = format!("train.compute={compute}");
        train(20, &[&common[..], &[&compute]].concat())
    });
    let (bf16, f16) = (distance(&bf16, &full), distance(&f16, &full));
    assert!(bf16 > 0.0 && bf16 < 0.1, "bf16 is off by {bf16}");
    assert!(f16 > 0.0 && f16 < 0.02, "f16 is off by {f16}");
}

/// Every value of a name in the training lines of `metrics.jsonl`.
fn logged(dir: &Path, name: &str) -> Vec<f64> {
    let metrics = std::fs::read_to_string(dir.join("metrics.jsonl")).expect("metrics");
    let lines = metrics.lines().filter(|line| line.contains("\"train\""));
    lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")[name].as_f64()).collect()
}

#[test]
fn an_overflow_in_f16_halves_the_scale_and_leaves_the_step_out() {
    let place = Place::default();
    place.write_experiment(&format!("samples: 96, {CLIPS}"));
    let settings = [
        format!("run.dir={}", place.path("runs").display()),
        "train.compute=f16".into(),
        "train.max_steps=30".into(),
        "train.checkpoint={every: 1, keep_last: 30}".into(),
        // A hundred times what a gradient of 1 can be multiplied by.
        "train.loss_scale={initial: 8.0e6, growth_interval: 8}".into(),
    ];
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &settings).expect("an experiment");
    let run = finetune(&experiment, &Session::default()).expect("a run");
    let (scales, skipped) = (logged(&run.directory, "loss_scale"), logged(&run.directory, "skipped_steps"));
    let weights = |step: usize| tensors(&run.directory.join(format!("checkpoints/step-{step:08}/model.safetensors")));
    assert!(skipped[0] == 1.0 && scales[0] == 4.0e6, "the first step overflows: {scales:?} {skipped:?}");
    for step in 2..=30 {
        let overflow = skipped[step - 1] > skipped[step - 2];
        let ratio = scales[step - 1] / scales[step - 2];
        assert!(if overflow { ratio == 0.5 } else { ratio == 1.0 || ratio == 2.0 }, "step {step}: {scales:?}");
        assert_eq!(weights(step) == weights(step - 1), overflow, "step {step}: {skipped:?}");
    }
    assert!(scales.windows(2).any(|pair| pair[1] == 2.0 * pair[0]), "it never grew: {scales:?}");
    assert!(weights(30).values().all(|tensor| tensor.data.iter().all(|x| x.is_finite())));
}

#[test]
fn a_seed_fixes_every_bit_whatever_the_workers() {
    let first = train_and_record(5, &["data.workers=1"]);
    assert_eq!(first.1.lines().filter(|line| line.contains("\"train\"")).count(), 5, "a line a step: {}", first.1);
    for workers in 1..=4 {
        let again = train_and_record(5, &[&format!("data.workers={workers}")]);
        assert!(again == first, "{workers} workers: {}", again.1);
    }
    assert!(train(5, &["seed=43"]) != first.0, "another seed");
}

#[test]
fn running_blocks_again_trains_to_the_same_bits() {
    let common = [
        "model.source.config.encoder_layers=3",
        "model.source.config.decoder_layers=3",
        "loss.alignment.characters=1",
        "loss.alignment.elements=0.5",
        "loss.alignment.elements_layer=1",
        "train.accumulation=2",
    ];
    let run = |checkpointing: &str| train(5, &[&common[..], &[checkpointing]].concat());
    let plain = run("train.gradient_checkpointing=false");
    for checkpointing in ["gradient_checkpointing=true", "gradient_checkpointing.every=2"] {
        assert!(run(&format!("train.{checkpointing}")) == plain, "{checkpointing}");
    }
    let frozen = ["model.trainable=decoder", "train.gradient_checkpointing=true"];
    assert!(train(5, &[&common[..], &frozen].concat()) == train(5, &[&common[..], &frozen[..1]].concat()), "frozen");
}

#[test]
fn running_blocks_again_needs_less_memory() {
    let place = Place::default();
    place.write_experiment(&format!("samples: 64, {CLIPS}"));
    let deep =
        ["d_model=64", "encoder_ffn_dim=256", "encoder_layers=12"].map(|key| format!("model.source.config.{key}"));
    let peak = |checkpointing: bool| {
        let name = format!("run-{checkpointing}");
        let own = [format!("run.name={name}"), format!("train.gradient_checkpointing={checkpointing}")];
        let more = ["train.max_steps=2", "train.optimizer.warmup_steps=1", "data.batch_size=64"].map(str::to_owned);
        let settings = deep.iter().chain(&own).chain(&more).flat_map(|setting| ["--set", setting]);
        let arguments: Vec<&str> = ["train", "--config", "tiny.yaml"].into_iter().chain(settings).collect();
        let outcome = place.run(&arguments);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let summary = std::fs::read_to_string(place.path(&format!("runs/{name}/summary.json"))).expect("a summary");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        summary["peak_memory_bytes"].as_u64().expect("bytes")
    };
    let (plain, peak) = (peak(false), peak(true));
    assert!(peak < plain / 2, "{} and {} MiB", peak >> 20, plain >> 20);
}

#[test]
fn fused_kernels_train_as_compositions_do() {
    // Adam's usual ε would make a step of rounding errors wherever a gradient should be 0.
    let common = ["model.source.config.dropout=0", "train.optimizer.epsilon=1e-3", "loss.alignment.characters=1"];
    let [fused, composed] =
        ["kernels=fused", "kernels=composed"].map(|kernels| train(20, &[&common[..], &[kernels]].concat()));
    assert!(fused != composed, "both ran the same bodies");
    for (name, b) in &composed {
        let largest = b.data.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        let off = fused[name].data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off <= 1e-3 * largest, "{name}: off by {off} where the largest is {largest}");
    }
}

#[test]
fn a_seed_fixes_the_heads_beside_a_loaded_model() {
    let loaded = [
        "model.source.config=null",
        "model.source.initializer=normal",
        "model.source.bundled=whisper-nano-cw",
        "loss.alignment.characters=1",
        "loss.alignment.elements=1",
    ];
    assert!(train(3, &loaded) == train(3, &loaded), "the same again");
}

/// `late` takes part in the loss of the first batch alone, `unused` never.
#[derive(Module, Debug)]
struct Partial {
    used: Linear,
    late: Option<Linear>,
    unused: Option<Linear>,
}

impl Partial {
    fn new(late: bool, unused: bool, device: &Device) -> Self {
        let linear = || LinearConfig::new(1, 1).init(device);
        Self { used: linear(), late: late.then(linear), unused: unused.then(linear) }
    }
}

struct Zero;

impl Objective for Zero {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn counts(&self, _: &usize) -> Vec<f64> {
        vec![1.0]
    }

    fn upload(&self, _: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Ok(Tensor::ones([1, 1], device))
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossTerm>, BoxError> {
        let mut y = model.used.forward(one);
        if let Some(late) = model.late.as_ref().filter(|_| *batch == 0) {
            y = late.forward(y);
        }
        Ok(vec![LossTerm { name: "square".into(), weight: 1.0, sum: y.square().sum() }])
    }

    fn gauges(&self, batch: &usize) -> Vec<(&'static str, f64)> {
        vec![("number", *batch as f64), ("half", 0.5 * *batch as f64)]
    }

    fn evaluate(&self, _: &Partial, _: &[String]) -> Result<Evaluation, BoxError> {
        Ok(Evaluation { metrics: [("cer".to_owned(), 0.0)].into(), ..Default::default() })
    }

    fn export(&self, _: &Partial, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A hundred batches an epoch, each its own number.
struct Hundred;

impl Batches for Hundred {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        100
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new((start..100).map(|batch| Ok((batch + 1, batch))))
    }
}

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

fn learner(model: Partial, steps: u64, dir: &Path) -> Learner<Zero> {
    let mut config = TrainConfig { max_steps: Some(steps), ..Default::default() };
    config.optimizer.warmup_steps = 1;
    Learner::new(config, Zero, model, Device::default(), dir, 1)
}

#[test]
fn a_parameter_that_never_gets_a_gradient_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Partial::new(false, true, &Device::default());
    let error = learner(model, 50, dir.path()).train(&Hundred).expect_err("refused");
    assert!(matches!(error, TrainError::NoGradient { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`unused.weight`") && text.contains("`unused.bias`") && !text.contains("`used."), "{text}");
}

/// Its second term goes through `late`, and comes up from the batch of this number on.
struct Rare(usize);

impl Objective for Rare {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    fn counts(&self, batch: &usize) -> Vec<f64> {
        vec![1.0, f64::from(u8::from(*batch >= self.0))]
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Zero.upload(batch, device)
    }

    fn losses(
        &self,
        model: &Partial,
        batch: &usize,
        one: Tensor<2>,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let rare = match &model.late {
            Some(late) if *batch >= self.0 => late.forward(one.clone()).square().sum(),
            _ => Tensor::zeros([1], device),
        };
        let often = LossTerm { name: "often".into(), weight: 1.0, sum: model.used.forward(one).square().sum() };
        Ok(vec![often, LossTerm { name: "rare".into(), weight: 1.0, sum: rare }])
    }

    fn evaluate(&self, model: &Partial, metrics: &[String]) -> Result<Evaluation, BoxError> {
        Zero.evaluate(model, metrics)
    }

    fn export(&self, _: &Partial, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_parameter_that_few_samples_reach_is_given_time_and_its_term_is_not_logged_as_zero() {
    let mut config = TrainConfig { max_steps: Some(50), log_every: 1, ..Default::default() };
    config.optimizer.warmup_steps = 1;
    let train = |model: Partial, dir: &Path| {
        Learner::new(config.clone(), Rare(30), model, Device::default(), dir, 1).train(&Hundred)
    };
    let dir = tempfile::tempdir().expect("a directory");
    let device = Device::default();
    assert_eq!(train(Partial::new(true, false, &device), dir.path()).expect("trained").steps, 50);
    let metrics = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("metrics");
    let there: Vec<bool> =
        metrics.lines().filter(|l| l.contains("\"train\"")).map(|l| l.contains("\"rare\"")).collect();
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
    assert_eq!(done(first.train(&Hundred)), 30);
    let mut second = learner(model(), 40, dir.path());
    assert!(second.resume().expect("a checkpoint"));
    assert_eq!(done(second.train(&Hundred)), 40);
}

#[test]
fn a_run_does_not_go_on_with_other_frozen_weights() {
    let dir = tempfile::tempdir().expect("a directory");
    let frozen = || {
        let model = Partial::new(false, true, &Device::default());
        set_trainable(model, |name| name.starts_with("used."))
    };
    let (model, other) = (frozen(), frozen());
    learner(model.clone(), 3, dir.path()).train(&Hundred).expect("trained");
    let mut same = learner(model, 4, dir.path());
    assert!(same.resume().expect("a checkpoint"));
    assert_eq!(same.train(&Hundred).expect("trained").steps, 4);
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
    assert_eq!(older.train(&Hundred).expect("trained").steps, 5);
    assert!(checkpoints.newest().0.expect("a checkpoint").state.frozen.is_some());
}

#[test]
fn gauges_of_a_steps_last_batch_are_logged_after_its_losses() {
    let dir = tempfile::tempdir().expect("a directory");
    // A hundred batches in windows of three: the last window of the epoch has one.
    let mut config = TrainConfig { max_steps: Some(35), accumulation: 3, log_every: 1, ..Default::default() };
    config.optimizer.warmup_steps = 1;
    let model = Partial::new(false, false, &Device::default());
    Learner::new(config, Zero, model, Device::default(), dir.path(), 1).train(&Hundred).expect("trained");
    let metrics = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("metrics");
    let lines: Vec<serde_json::Value> =
        metrics.lines().filter(|l| l.contains("\"train\"")).map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let numbers: Vec<f64> = lines.iter().map(|line| line["number"].as_f64().expect("a number")).collect();
    let last = (1..=33).map(|step| f64::from(3 * step - 1)).chain([99.0, 2.0]);
    assert_eq!(numbers, last.collect::<Vec<_>>());
    let names: Vec<&String> = lines[0].as_object().expect("an object").keys().collect();
    assert_eq!(names, ["step", "split", "loss", "number", "half", "lr", "grad_norm"]);
}

/// Loss terms with names and counts of one's own.
struct Terms {
    /// Those of the batch with that number.
    names: fn(usize) -> Vec<&'static str>,
    /// The first is that of the first batch alone.
    counts: Vec<f64>,
}

impl Objective for Terms {
    type Model = Partial;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, _: &usize) -> usize {
        1
    }

    /// The first term counts as many more as the batch's number says.
    fn counts(&self, batch: &usize) -> Vec<f64> {
        let mut counts = self.counts.clone();
        counts[0] += *batch as f64;
        counts
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        Zero.upload(batch, device)
    }

    fn losses(&self, model: &Partial, batch: &usize, one: Tensor<2>, _: &Device) -> Result<Vec<LossTerm>, BoxError> {
        let square = model.used.forward(one).square().sum() + (batch % 3 + 1) as f64;
        let names = (self.names)(*batch).into_iter();
        Ok(names.map(|name| LossTerm { name: name.into(), weight: 0.5, sum: square.clone() }).collect())
    }

    fn evaluate(&self, model: &Partial, metrics: &[String]) -> Result<Evaluation, BoxError> {
        Zero.evaluate(model, metrics)
    }

    fn export(&self, _: &Partial, _: &Path) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Twelve steps of two batches each on `terms`, with a line every `log_every`, from where the run in `dir` stands; it is
/// interrupted after the step `stop`.
fn terms(terms: Terms, log_every: u64, dir: &Path, stop: Option<u64>) -> Result<Summary, TrainError> {
    let mut config = TrainConfig { max_steps: Some(12), accumulation: 2, log_every, ..Default::default() };
    config.optimizer.warmup_steps = 1;
    config.checkpoint.every = 1;
    let stopped = Arc::new(AtomicBool::new(false));
    let batches = Stopping { after: stop.map(|step| 2 * step as usize), interrupt: stopped.clone() };
    // The same weights every time.
    let device = Device::default();
    device.seed(3);
    let model = Partial::new(false, false, &device);
    let mut learner = Learner::new(config, terms, model, device, dir, 1).with_interrupt(stopped);
    learner.resume()?;
    learner.train(&batches)
}

/// As [`Hundred`], but asks for an interruption once so many batches were taken.
struct Stopping {
    after: Option<usize>,
    interrupt: Arc<AtomicBool>,
}

impl Batches for Stopping {
    type Batch = usize;

    fn per_epoch(&self) -> usize {
        100
    }

    fn epoch(&self, _: u64, start: usize) -> BatchStream<'_, usize> {
        Box::new((start..100).map(|batch| {
            if self.after == Some(batch + 1) {
                self.interrupt.store(true, Ordering::Relaxed);
            }
            Ok((batch + 1, batch))
        }))
    }
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
        let of = |name: &str| logged(dir.path(), name);
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
    let metrics = |dir: &Path| std::fs::read_to_string(dir.join("metrics.jsonl")).expect("metrics");
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
fn training_stops_when_nothing_has_got_better_for_a_while_and_stays_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    // The score is 0 at every evaluation: the one before training is the best, and the two after it are no better.
    let patient = |steps| {
        let mut config = TrainConfig { max_steps: Some(steps), ..Default::default() };
        config.optimizer.warmup_steps = 1;
        config.evaluate.every = 5;
        config.early_stopping.patience = 2;
        Learner::new(config, Zero, Partial::new(false, false, &Device::default()), Device::default(), dir.path(), 1)
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
    config.checkpoint.every = 10;
    change(&mut config);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let objective = Poisoned { nan: nan.to_vec(), high: high.to_vec(), seen: seen.clone() };
    // Both begin at 1, so that every step brings them nearer to 0.
    let one = LinearConfig::new(1, 1).with_initializer(Initializer::Constant { value: 1.0 });
    let model = Partial { used: one.init(&Device::default()), late: None, unused: None };
    let result = Learner::new(config, objective, model, Device::default(), dir, 1).train(&Hundred);
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
        config.evaluate = EvaluateConfig { every: 20, metrics: vec!["size".into()] };
        config.checkpoint = CheckpointConfig { every: 20, keep_last: 1, metric: "size".into(), ..Default::default() };
        let objective = Judged(Poisoned { nan: vec![], high: vec![], seen: Arc::default() }, direction);
        let one = LinearConfig::new(1, 1).with_initializer(Initializer::Ones);
        let model = Partial { used: one.init(&Device::default()), late: None, unused: None };
        let summary = Learner::new(config, objective, model, Device::default(), dir.path(), 1).train(&Hundred)?;
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
        let mut learner =
            Learner::new(config, objective, model.clone(), device.clone(), dir, 1).with_interrupt(interrupt);
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
    let objective = Waits { judged: AtomicUsize::new(0), until: 0, interrupt: Arc::default() };
    let model = Partial::new(false, false, &Device::default());
    let error = Learner::new(config, objective, model, Device::default(), dir.path(), 1).train(&Hundred);
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
    config.checkpoint.every = 10;
    config.evaluate = EvaluateConfig { every: 5, metrics: vec!["cer".into()] };
    config.guard.on_nan = OnNan::Rollback;
    let objective = Scripted { rates: rates.to_vec(), judged: AtomicUsize::default(), broken, nan };
    Learner::new(config, objective, Partial::new(false, false, &Device::default()), Device::default(), dir, 1)
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
