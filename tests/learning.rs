//! What training computes: exact accumulation, the same bits every time, and no parameter forgotten.

use std::collections::BTreeMap;
use undertone::phases::{Experiment, Session, run};
use undertone::store::HostTensor;
use undertone_tests::toys::logged;
use undertone_tests::{CLIPS, Place, sets, tensors};

/// The parameters after `steps` steps of the tiny experiment, changed by `settings`.
fn train(steps: u64, settings: &[&str]) -> BTreeMap<String, HostTensor> {
    train_and_record(steps, settings).0
}

/// The parameters and what `metrics.jsonl` says of every step.
fn train_and_record(steps: u64, settings: &[&str]) -> (BTreeMap<String, HostTensor>, String) {
    let place = Place::with_experiment(&format!("samples: 96, {CLIPS}"));
    let mut all = vec![format!("run.dir={}", place.path("runs").display()), format!("train.max_steps={steps}")];
    all.extend(settings.iter().map(|s| (*s).to_owned()));
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &all).expect("an experiment");
    let run = run::train(&experiment, &Session::default()).expect("a run").remove(0);
    let metrics = std::fs::read_to_string(run.directory.join("metrics.jsonl")).expect("metrics");
    (tensors(&run.directory.join(format!("checkpoints/step-{steps:08}/model.safetensors"))), metrics)
}

#[test]
fn accumulated_batches_equal_a_whole_one() {
    // The texts differ in length, so a mean of the batches' means would be another loss. Adam divides by the root of the
    // squared gradient: with its usual ε, rounding decides where a gradient that should be 0 takes its parameter.
    // Clipping would hide a gradient of the wrong length.
    let common = [
        "train.optimizer.epsilon=1e-3", "train.optimizer.clip_norm=0", "model.source.config.dropout=0",
        "train.optimizer.lr=1e-2", "loss.alignment.characters=1", "loss.alignment.elements=0.5",
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

#[test]
fn an_overflow_in_f16_halves_the_scale_and_leaves_the_step_out() {
    let place = Place::with_experiment(&format!("samples: 96, {CLIPS}"));
    let settings = [
        format!("run.dir={}", place.path("runs").display()),
        "train.compute=f16".into(),
        "train.max_steps=30".into(),
        "train.checkpoint={every: 1, keep_last: 30}".into(),
        // A hundred times what a gradient of 1 can be multiplied by.
        "train.loss_scale={initial: 8.0e6, growth_interval: 8}".into(),
    ];
    let experiment = Experiment::load(Some(&place.path("tiny.yaml")), &settings).expect("an experiment");
    let run = run::train(&experiment, &Session::default()).expect("a run").remove(0);
    let (scales, skipped) =
        (logged(&run.directory, "train", "loss_scale"), logged(&run.directory, "train", "skipped_steps"));
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
fn batches_of_a_step_computed_side_by_side_train_to_the_same_bits() {
    // Five cores for three batches are groups of two and of one; the last window of an epoch of 96 has two.
    let settings = [
        "train.accumulation=3", "data.batch_size=12", "model.source.config.dropout=0.2", "loss.alignment.characters=1",
        "loss.alignment.elements=0.5", "loss.alignment.elements_layer=1",
    ];
    let on = |cores: usize, more: &[&str]| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(cores).build().expect("threads");
        pool.install(|| train_and_record(6, &[&settings[..], more].concat()))
    };
    for more in [&[][..], &["train.gradient_checkpointing=true"]] {
        let alone = on(1, more);
        for cores in [2, 5] {
            let together = on(cores, more);
            assert!(together == alone, "{cores} cores, {more:?}: {} for {}", together.1, alone.1);
        }
    }
    let other = train(6, &[&settings[..], &["seed=43"]].concat());
    assert!(other != on(1, &[]).0, "another seed");
}

#[test]
fn running_blocks_again_trains_to_the_same_bits() {
    let common = [
        "model.source.config.encoder_layers=3", "model.source.config.decoder_layers=3", "loss.alignment.characters=1",
        "loss.alignment.elements=0.5", "loss.alignment.elements_layer=1", "train.accumulation=2",
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
    let place = Place::with_experiment(&format!("samples: 64, {CLIPS}"));
    let deep =
        ["d_model=64", "encoder_ffn_dim=256", "encoder_layers=12"].map(|key| format!("model.source.config.{key}"));
    let peak = |checkpointing: bool| {
        let name = format!("run-{checkpointing}");
        let own = [format!("run.name={name}"), format!("train.gradient_checkpointing={checkpointing}")];
        let more = ["train.max_steps=2", "train.optimizer.warmup_steps=1", "data.batch_size=64"].map(str::to_owned);
        place.train("tiny.yaml", &sets(&[&deep[..], &own, &more].concat())).succeeded();
        place.json(&format!("runs/{name}/summary.json"))["peak_memory_bytes"].as_u64().expect("bytes")
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
        "model.source.config=null", "model.source.initializer=normal", "model.source.bundled=whisper-nano-cw",
        "loss.alignment.characters=1", "loss.alignment.elements=1",
    ];
    assert!(train(3, &loaded) == train(3, &loaded), "the same again");
}
