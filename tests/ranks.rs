//! Several ranks train one run: threads of one process here, between which channels carry what MPI carries between processes.

use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use undertone::ops::{checkpoint, fork};
use undertone::store::{HostTensor, parameters};
use undertone::train::ranks::{RankError, Ranks, Slow, Threads, threads};
use undertone::train::{
    BackendFailure, BoxError, Evaluation, Learner, LossSum, LossTerm, Objective, Performance, ProcessGroup, Schedule,
    TrainConfig, TrainError, catch_backend_failure,
};
use undertone_tests::toys::{Numbers, logged};

/// Two maps, of which a batch uses the second only where its number is a multiple of four, and one with so many parameters that
/// ranks may share out its optimizer's state.
#[derive(Module, Debug)]
struct Maps {
    always: Linear,
    seldom: Linear,
    wide: Linear,
}

/// Brings both maps near a line. Batch `n` has `n % 3 + 1` samples.
#[derive(Default)]
struct Lines {
    /// The numbers of the batches that this rank has computed.
    seen: Mutex<Vec<usize>>,
    /// The batch that does not fit the model.
    broken: Option<usize>,
    /// The batch in whose backward pass the device fails.
    fails: Option<usize>,
    /// Whether there is no room for the best model.
    full: bool,
}

impl Objective for Lines {
    type Model = Maps;
    type Batch = usize;
    type Input = Tensor<2>;

    fn samples(&self, batch: &usize) -> usize {
        batch % 3 + 1
    }

    fn loss_terms(&self, batch: &usize) -> Vec<LossTerm> {
        vec![LossTerm { name: "square".into(), weight: 1.0, count: (batch % 3 + 1) as f64 }]
    }

    fn upload(&self, batch: &mut usize, device: &Device) -> Result<Tensor<2>, BoxError> {
        if self.broken == Some(*batch) {
            return Err(format!("batch {batch} is of another kind").into());
        }
        self.seen.lock().expect("a list").push(*batch);
        let rows = *batch % 3 + 1;
        let values: Vec<f32> = (0..rows).flat_map(|row| [*batch as f32 / 10.0, row as f32 - 0.5]).collect();
        Ok(Tensor::from_data(TensorData::new(values, [rows, 2]), device))
    }

    fn losses(&self, model: &Maps, batch: &usize, x: Tensor<2>, _: &Device) -> Result<Vec<LossSum>, BoxError> {
        let mut y = model.always.forward(x.clone());
        // A block of its own: what it has of gradients is sent off while those of `always` are found.
        let block = fork(x.clone() + y.clone());
        let block = if self.fails == Some(*batch) { failing(block) } else { block };
        if batch.is_multiple_of(4) {
            y = y + model.seldom.forward(block.clone());
        }
        let y = y + model.wide.forward(block).mean_dim(1);
        let wanted = x.sum_dim(1);
        Ok(vec![("square".into(), (y - wanted).square().sum())])
    }

    fn evaluate(&self, model: &Maps, _: &[String]) -> Result<Evaluation, BoxError> {
        let weight: f32 = model.always.weight.val().sum().try_into_vec_as().expect("a number")[0];
        Ok(Evaluation { metrics: [("loss".to_owned(), f64::from(weight))].into(), ..Default::default() })
    }

    fn export(&self, _: &Maps, _: &Path) -> Result<(), BoxError> {
        if self.full { Err("no space left".into()) } else { Ok(()) }
    }
}

/// `x`, whose backward pass fails as one does on a device that has no more memory.
fn failing(x: Tensor<2>) -> Tensor<2> {
    let runs = AtomicUsize::new(0);
    checkpoint(vec![x.into()], move |inputs| {
        assert!(runs.fetch_add(1, Ordering::Relaxed) == 0, "CUDA error: out of memory");
        inputs.into_iter().next().expect("an input").tensor()
    })
}

/// What a rank ends with.
struct Trained {
    parameters: BTreeMap<String, HostTensor>,
    seen: Vec<usize>,
    samples: u64,
}

/// How a rank trains.
#[derive(Clone, Default)]
struct Plan {
    accumulation: usize,
    steps: u64,
    resume: bool,
    broken: Option<usize>,
    fails: Option<usize>,
    full: bool,
    shard: bool,
    /// Batches of an epoch; 11 if nothing is said.
    batches: Option<usize>,
    /// The fingerprint of the data.
    data: u64,
    /// The learning rate, if it is another one than the other ranks have.
    lr: Option<f64>,
    /// How long gradients may be, if it is another length than usual.
    clip_norm: Option<f64>,
    interrupt: Arc<AtomicBool>,
}

fn train(dir: &Path, plan: &Plan, ranks: Option<Ranks>) -> Result<Trained, TrainError> {
    let device = Device::default();
    let mut config = TrainConfig { max_steps: Some(plan.steps), accumulation: plan.accumulation, ..Default::default() };
    config.optimizer.warmup_steps = Some(1);
    config.optimizer.lr = plan.lr.unwrap_or(0.05);
    config.optimizer.clip_norm = plan.clip_norm.unwrap_or(config.optimizer.clip_norm);
    config.shard_optimizer = plan.shard;
    // A session of fewer steps then has the rates of a longer one.
    config.optimizer.schedule = Schedule::Constant;
    config.checkpoint.every = 3;
    config.log_every = 1;
    let map =
        |outputs| LinearConfig::new(2, outputs).with_initializer(Initializer::Constant { value: 0.1 }).init(&device);
    let model = Maps { always: map(1), seldom: map(1), wide: map(2500) };
    let objective = Lines { broken: plan.broken, fails: plan.fails, full: plan.full, ..Lines::default() };
    let mut builder = Learner::builder(config, objective, model, dir).with_device(device).with_seed(1);
    builder = builder.with_interrupt(plan.interrupt.clone());
    let process_group = ranks.map(|ranks| ProcessGroup::of(Arc::new(ranks))).unwrap_or_default();
    builder = builder.with_process_group(process_group.clone());
    let mut learner = builder.build();
    if plan.resume {
        assert!(learner.resume()?);
    }
    let batches = Numbers { per_epoch: plan.batches.unwrap_or(11), fingerprint: plan.data, taken: |_: usize| () };
    let trained = catch_backend_failure(|| learner.train(&batches));
    // As a stage of a run does.
    let failed = |failure: BackendFailure| process_group.all_ok(Err(TrainError::Data(format!("{failure:?}").into())));
    let summary = trained.unwrap_or_else(failed)?;
    let seen = learner.objective().seen.lock().expect("a list").clone();
    Ok(Trained { parameters: parameters(learner.model()), seen, samples: summary.samples })
}

/// So many ranks train together; what each of them ends with.
fn together(dir: &Path, plan: &Plan, count: usize) -> Vec<Result<Trained, TrainError>> {
    together_as(dir, (0..count).map(|_| plan.clone()).collect())
}

/// Ranks train together, each by its own plan.
fn together_as(dir: &Path, plans: Vec<Plan>) -> Vec<Result<Trained, TrainError>> {
    std::thread::scope(|scope| {
        let rank = |(transport, plan): (Threads, Plan)| {
            scope.spawn(move || {
                let ranks = Ranks::over(|| Ok(transport)).expect("a rank");
                train(dir, &plan, Some(ranks))
            })
        };
        let ranks: Vec<_> = threads(plans.len()).into_iter().zip(plans).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn near(a: &BTreeMap<String, HostTensor>, b: &BTreeMap<String, HostTensor>) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, tensor) in a {
        for (x, y) in tensor.data.iter().zip(&b[name].data) {
            assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()), "{name}: {x} and {y}");
        }
    }
}

#[test]
fn ranks_take_the_steps_that_one_process_takes() {
    let (alone, shared, again) = (directory(), directory(), directory());
    let plan = Plan { accumulation: 4, steps: 10, ..Plan::default() };
    let one = train(alone.path(), &plan, None).expect("trained");
    let plan = Plan { accumulation: 2, ..plan };
    let ranks: Vec<Trained> =
        together(shared.path(), &plan, 2).into_iter().map(|rank| rank.expect("trained")).collect();
    for rank in &ranks {
        near(&rank.parameters, &one.parameters);
        assert_eq!(rank.parameters, ranks[0].parameters, "all ranks have the same bits");
        assert_eq!(rank.samples, one.samples);
    }
    // Each has its own batches, those of a step side by side; an epoch of 11 ends with a step of three.
    let seen = |rank: usize, count: usize| {
        let mut seen = ranks[rank].seen[..count].to_vec();
        seen.chunks_mut(2).for_each(|step| step.sort_unstable());
        seen
    };
    assert_eq!((seen(0, 6), seen(1, 5)), (vec![0, 2, 4, 6, 8, 10], vec![1, 3, 5, 7, 9]));
    let losses = logged(shared.path(), "train", "loss");
    assert_eq!(losses.len(), 10);
    for (ours, theirs) in losses.iter().zip(logged(alone.path(), "train", "loss")) {
        assert!((ours - theirs).abs() <= 1e-5 * (1.0 + theirs.abs()), "{ours} and {theirs}");
    }
    let second = together(again.path(), &plan, 2);
    assert_eq!(second[1].as_ref().expect("trained").parameters, ranks[0].parameters, "the same bits every time");
}

#[test]
fn a_last_step_with_fewer_batches_than_ranks_is_taken() {
    let (alone, shared) = (directory(), directory());
    for batches in [8, 9, 10] {
        let plan = Plan { accumulation: 4, steps: 7, batches: Some(batches), ..Plan::default() };
        let one = train(&alone.path().join(batches.to_string()), &plan, None).expect("trained");
        let plan = Plan { accumulation: 1, ..plan };
        for rank in together(&shared.path().join(batches.to_string()), &plan, 4) {
            let rank = rank.expect("trained");
            assert_eq!(rank.samples, one.samples, "{batches} batches");
            near(&rank.parameters, &one.parameters);
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let (whole, parts) = (directory(), directory());
    let plan = Plan { accumulation: 2, steps: 12, ..Plan::default() };
    let wanted = together(whole.path(), &plan, 2).remove(0).expect("trained");
    let mut last = None;
    for (steps, count, resume) in [(4, 2, false), (7, 4, true), (12, 1, true)] {
        let plan = Plan { steps, resume, ..plan.clone() };
        for rank in together(parts.path(), &plan, count) {
            last = Some(rank.expect("trained"));
        }
    }
    let last = last.expect("ranks");
    near(&last.parameters, &wanted.parameters);
    // Four epochs of 11 batches of 1, 2 and 3 samples.
    assert_eq!((last.samples, wanted.samples), (84, 84));
    let losses = logged(parts.path(), "train", "loss");
    assert_eq!(losses.len(), 12);
    for (ours, theirs) in losses.iter().zip(logged(whole.path(), "train", "loss")) {
        assert!((ours - theirs).abs() <= 1e-5 * (1.0 + theirs.abs()), "{ours} and {theirs}");
    }
    let plan = Plan { steps: 14, resume: true, ..plan };
    let refused = together(parts.path(), &plan, 5);
    assert!(refused.iter().all(|rank| matches!(rank, Err(TrainError::IdleRanks { ranks: 5, batches: 4 }))));
}

#[test]
fn an_error_of_one_rank_is_one_of_all_and_what_was_learned_is_saved() {
    let dir = directory();
    let plan = Plan { accumulation: 1, steps: 9, broken: Some(9), ..Plan::default() };
    let ended = together(dir.path(), &plan, 2);
    let message = |rank: &Result<Trained, TrainError>| rank.as_ref().err().map(ToString::to_string);
    assert_eq!(message(&ended[0]).as_deref(), Some("rank 1 failed: batch 9 is of another kind"));
    assert_eq!(message(&ended[1]).as_deref(), Some("batch 9 is of another kind"));
    let found: Vec<bool> = [3, 4].map(|step| dir.path().join(format!("checkpoints/step-{step:08}")).exists()).into();
    assert_eq!(found, [true, true], "the checkpoint of every third step, and what was learned after it");
}

#[test]
fn what_the_first_rank_cannot_write_ends_all() {
    let dir = directory();
    let ended = together(dir.path(), &Plan { accumulation: 1, steps: 9, full: true, ..Plan::default() }, 3);
    let said: Vec<String> = ended.into_iter().map(|rank| rank.err().expect("no room").to_string()).collect();
    let own = "the best model cannot be written: no space left".to_owned();
    assert_eq!(said, [own.clone(), format!("rank 0 failed: {own}"), format!("rank 0 failed: {own}")]);
}

#[test]
fn ranks_that_would_train_something_else_are_refused() {
    let dir = directory();
    let plan = Plan { accumulation: 1, steps: 3, ..Plan::default() };
    for other in [Plan { accumulation: 2, ..plan.clone() }, Plan { data: 1, ..plan.clone() }] {
        for rank in together_as(dir.path(), vec![plan.clone(), other]) {
            let error = rank.err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("rank 1 has other training data, unlike the others"));
        }
    }
    assert!(!dir.path().join("checkpoints").exists());
}

#[test]
fn an_interrupt_of_one_rank_is_one_of_all_after_the_same_step() {
    let dir = directory();
    let plan = Plan { accumulation: 1, steps: 100_000, ..Plan::default() };
    // Each has a flag of its own; that of the last one is set.
    let plans = [(); 2].map(|()| Plan { interrupt: Arc::default(), ..plan.clone() });
    let flag = plans[1].interrupt.clone();
    let ended: Vec<Trained> = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            flag.store(true, Ordering::Relaxed);
        });
        let ended = together_as(dir.path(), plans.into());
        ended.into_iter().map(|rank| rank.expect("interrupted, not failed")).collect()
    });
    assert_eq!(ended[0].samples, ended[1].samples);
    assert!(ended[0].samples < 300_000, "not to the end");
    assert_eq!(ended[0].parameters, ended[1].parameters);
}

#[test]
fn a_rank_that_is_gone_is_named() {
    let dir = directory();
    let gone = std::thread::scope(|scope| {
        let mut ranks = threads(2).into_iter().map(|transport| scope.spawn(|| Ranks::over(|| Ok(transport))));
        let (first, second) = (ranks.next().expect("rank 0"), ranks.next().expect("rank 1"));
        drop(second.join().expect("no panic"));
        let ranks = first.join().expect("no panic").expect("a rank");
        train(dir.path(), &Plan { accumulation: 1, steps: 3, ..Plan::default() }, Some(ranks))
    });
    assert!(matches!(gone, Err(TrainError::Ranks(RankError::Gone(1)))));
}

#[test]
fn ranks_that_share_out_the_optimizers_state_take_the_same_steps() {
    let (whole, shared) = (directory(), directory());
    let plan = Plan { accumulation: 2, steps: 12, clip_norm: Some(0.0), ..Plan::default() };
    let wanted = together(whole.path(), &plan, 2).remove(0).expect("trained");
    let plan = Plan { shard: true, ..plan };
    let ended: Vec<Trained> =
        together(shared.path(), &plan, 2).into_iter().map(|rank| rank.expect("trained")).collect();
    assert_eq!(ended[0].parameters, ended[1].parameters, "all ranks have the same bits");
    assert_eq!(ended[0].parameters, wanted.parameters, "and they are those of ranks that share nothing out");
    assert_eq!(logged(shared.path(), "train", "loss"), logged(whole.path(), "train", "loss"));
    let norms = logged(shared.path(), "train", "grad_norm").into_iter().zip(logged(whole.path(), "train", "grad_norm"));
    norms.for_each(|(ours, theirs)| assert!((ours - theirs).abs() <= 1e-5 * theirs, "{ours} and {theirs}"));
    // What lies on disk does not tell who had which part of it.
    let state = |dir: &Path| std::fs::read(dir.join("checkpoints/step-00000012/optimizer.safetensors")).expect("saved");
    assert!(state(shared.path()) == state(whole.path()), "the same bytes");
}

#[test]
fn ranks_that_share_out_the_optimizers_state_clip_by_the_length_of_all_gradients() {
    let (whole, shared) = (directory(), directory());
    let plan = Plan { accumulation: 2, steps: 12, clip_norm: Some(0.05), ..Plan::default() };
    let wanted = together(whole.path(), &plan, 2).remove(0).expect("trained");
    assert!(logged(whole.path(), "train", "grad_norm").iter().all(|norm| *norm > 0.05), "all are clipped");
    let found = together(shared.path(), &Plan { shard: true, ..plan }, 2).remove(0).expect("trained");
    for (name, parameter) in &wanted.parameters {
        for (a, b) in parameter.data.iter().zip(&found.parameters[name].data) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{name}: {a} is not {b}");
        }
    }
}

#[test]
fn state_that_was_shared_out_goes_on_with_another_number_of_ranks() {
    let (whole, parts) = (directory(), directory());
    let plan = Plan { accumulation: 2, steps: 12, ..Plan::default() };
    let wanted = together(whole.path(), &plan, 2).remove(0).expect("trained");
    let mut last = None;
    for (steps, count, resume, shard) in
        [(4, 2, false, true), (7, 4, true, true), (9, 3, true, false), (12, 1, true, true)]
    {
        let plan = Plan { steps, resume, shard, ..plan.clone() };
        last = together(parts.path(), &plan, count).pop();
    }
    near(&last.expect("ranks").expect("trained").parameters, &wanted.parameters);
}

#[test]
fn a_rank_whose_parameters_are_no_longer_those_of_the_others_is_named() {
    let dir = directory();
    let plan = |lr| Plan { accumulation: 1, steps: 6, lr, ..Plan::default() };
    let ended = together_as(dir.path(), vec![plan(None), plan(Some(0.06)), plan(None)]);
    for rank in ended {
        let error = rank.err().map(|error| error.to_string()).expect("refused");
        assert!(error.starts_with("rank 1 has other parameters than the others after step 3"), "{error}");
    }
    assert!(!dir.path().join("checkpoints/step-00000003").exists(), "nothing doubtful is kept");
}

#[test]
fn what_ranks_cost_is_written_down() {
    let dir = directory();
    let plan = Plan { accumulation: 1, steps: 3, ..Plan::default() };
    assert!(together(dir.path(), &plan, 2).iter().all(Result::is_ok));
    let text = std::fs::read_to_string(dir.path().join("performance.jsonl")).expect("written");
    let last: Performance = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let ranks = last.ranks.expect("there are several");
    assert!(ranks.count == 2 && ranks.slowest < 2 && ranks.imbalance >= 0.0 && (0.0..=1.0).contains(&ranks.overlap));
    assert!(last.time.ranks > 0.0, "{last:?}");
}

#[test]
fn sums_that_take_longer_than_all_else_are_not_said_to_overlap() {
    let dir = directory();
    let ended: Vec<_> = std::thread::scope(|scope| {
        let rank = |transport| {
            scope.spawn(|| {
                let link = Slow::new(transport, Duration::from_millis(30), f64::INFINITY);
                let ranks = Ranks::over(|| Ok(link)).expect("a rank");
                train(dir.path(), &Plan { accumulation: 1, steps: 6, ..Plan::default() }, Some(ranks))
            })
        };
        let ranks: Vec<_> = threads(2).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    });
    assert!(ended.iter().all(Result::is_ok));
    let overlap = |line: &str| serde_json::from_str::<Performance>(line).expect("JSON").ranks.expect("two").overlap;
    let text = std::fs::read_to_string(dir.path().join("performance.jsonl")).expect("written");
    let overlaps: Vec<f64> = text.lines().map(overlap).collect();
    // On a busy machine some steps take as long as the sums.
    assert!(overlaps.len() == 6 && overlaps.iter().any(|overlap| *overlap < 0.3), "{overlaps:?}");
}

#[test]
fn a_device_that_fails_in_the_backward_pass_of_one_rank_is_an_error_of_all() {
    let dir = directory();
    let plan = Plan { accumulation: 1, steps: 12, ..Plan::default() };
    let plans = vec![plan.clone(), Plan { fails: Some(9), ..plan }];
    let errors: Vec<String> =
        together_as(dir.path(), plans).into_iter().map(|rank| rank.err().expect("an error").to_string()).collect();
    assert!(errors.iter().all(|error| error.contains("out of memory")) && errors[0].contains("rank 1"), "{errors:?}");
    assert!(dir.path().join("checkpoints/step-00000004").is_dir(), "the first rank saves the steps before it");
}
