//! Models made of others: the mean of checkpoints, and weights between two models.

use serde_json::Value;
use std::collections::BTreeMap;
use undertone::store::HostTensor;
use undertone_tests::runs::two_tasks;
use undertone_tests::{CLIPS, Place, sets, tensors, write_model};

/// A run of six steps from the model in `model`, with its last four checkpoints and a score for each.
fn trained(more: &[&str]) -> Place {
    let place = Place::with_experiment(&format!("samples: 12, {CLIPS}"));
    write_model(&place.path("model"));
    let set = [
        "model.source.config=null",
        "model.path=model",
        "train.max_steps=6",
        "train.checkpoint={every: 1, keep_last: 4, metric: loss}",
        "train.evaluate={every: 1, metrics: [loss]}",
        "train.optimizer.lr=3e-2",
    ];
    place.train("tiny.yaml", &sets(&[&set[..], more].concat())).succeeded();
    place
}

fn weights(place: &Place, folder: &str) -> BTreeMap<String, HostTensor> {
    tensors(&place.path(&format!("{folder}/model.safetensors")))
}

/// A weight by the end of its name: a checkpoint calls it by its place in the model, an exported folder as transformers does.
fn weight(tensors: &BTreeMap<String, HostTensor>, end: &str) -> Vec<f32> {
    let found = tensors.iter().find(|(name, _)| name.ends_with(end));
    found.unwrap_or_else(|| panic!("no {end}")).1.data.clone()
}

fn assert_near(found: &[f32], expected: impl Iterator<Item = f32>) {
    found.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} and {b}"));
}

const FC1: &str = "decoder.layers.0.fc1.weight";

#[test]
fn checkpoints_are_averaged() {
    let place = trained(&[]);
    let export =
        |average: &str, out: &str| place.run(&["export", "--run", "runs/tiny", "--average", average, "--out", out]);
    let outcome = export("last:3", "mean").succeeded();
    assert!(outcome.stderr.contains("the checkpoints of steps 4, 5, 6"), "{outcome:?}");
    let steps = [4, 5, 6].map(|step| weight(&weights(&place, &format!("runs/tiny/checkpoints/step-{step:08}")), FC1));
    let mean = weight(&weights(&place, "mean"), FC1);
    assert_near(&mean, (0..mean.len()).map(|at| steps.iter().map(|step| step[at]).sum::<f32>() / 3.0));
    assert!(place.path("mean/README.md").is_file() && place.path("mean/tokenizer.json").is_file());
    // The best one is the run's best model.
    export("best:1", "best").succeeded();
    assert_eq!(weight(&weights(&place, "best"), FC1), weight(&weights(&place, "runs/tiny/best"), FC1));
    let left = std::fs::read_dir(place.path("runs/tiny")).expect("listed").flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(".tmp")), "nothing is left");
    export("last:9", "none").assert_refusal(&["last:9", "runs/tiny/checkpoints", "keep_last"]);
    let wrong = export("all", "none");
    assert!(wrong.status == Some(2) && wrong.stderr.contains("best:3"), "{wrong:?}");
    for option in [&["--average", "last:2"][..], &["--blend", "base:0.5"], &["--merge"], &["--license", "mit"]] {
        let bundled = [&["export", "--model", "whisper-nano-cw", "--out", "none"], option].concat();
        place.run(&bundled).assert_refusal(&[option[0], "--run"]);
    }
}

#[test]
fn a_task_of_a_stage_with_several_is_averaged() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    let set = ["--set", "train.checkpoint={every: 1, keep_last: 2}", "--phase", "all"];
    place.train("two.yaml", &set).succeeded();
    let export = |out: &str, more: &[&str]| {
        let args = ["export", "--run", "runs/two", "--task", "low", "--merge", "--out", out];
        place.run(&[&args[..], more].concat()).succeeded()
    };
    export("last", &["--average", "last:1"]);
    export("mean", &["--average", "last:2"]);
    let [last, mean] = ["last", "mean"].map(|folder| weights(&place, folder));
    assert_ne!(last, mean);
    // The model before training is as good as any here, and has no checkpoint; of the equal ones that have, the earlier counts.
    let best = export("best", &["--average", "best:1"]);
    assert!(best.stderr.contains("checkpoints of steps 3"), "{best:?}");
    assert_ne!(weights(&place, "best"), last);
}

/// Checkpoints of phase 2 have the router alone, and the adapter is that of phase 1.
#[test]
fn an_average_keeps_what_earlier_phases_have_trained() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    let train = |phase: &str| {
        let set = ["--set", "train.checkpoint={every: 1, keep_last: 2}", "--phase", phase];
        place.train("two.yaml", &set).succeeded();
    };
    let export = |out: &str, more: &[&str]| {
        let args = ["export", "--run", "runs/two", "--task", "low", "--merge", "--out", out];
        place.run(&[&args[..], more].concat()).succeeded();
        weights(&place, out)
    };
    train("1");
    let adapted = export("adapted", &[]);
    train("2");
    assert_eq!(export("routed", &[]), adapted);
    assert_eq!(export("mean", &["--average", "last:2"]), adapted);
}

#[test]
fn weights_are_blended_with_those_of_the_base() {
    let place =
        trained(&["model.trainable=lora", "model.lora={r: 2, target_modules: [q_proj, fc1]}", "train.max_steps=12"]);
    let export = |blend: &str, out: &str| {
        place.run(&["export", "--run", "runs/tiny", "--merge", "--blend", blend, "--out", out])
    };
    place.run(&["export", "--run", "runs/tiny", "--merge", "--out", "tuned"]).succeeded();
    for (share, out) in [(0.0, "none"), (0.25, "some"), (1.0, "all")] {
        export(&format!("base:{share}"), out).succeeded();
        let [tuned, base, mixed] = ["tuned", "model", out].map(|folder| weight(&weights(&place, folder), FC1));
        assert_ne!(tuned, base);
        assert_near(&mixed, tuned.iter().zip(&base).map(|(tuned, base)| (1.0 - share) * tuned + share * base));
    }
    export("model:0.25", "named").succeeded();
    assert_eq!(weights(&place, "some"), weights(&place, "named"));
    export("whisper-nano-cw:0.5", "other").assert_refusal(&["whisper-nano-cw", "another architecture"]);
    let peft = ["export", "--run", "runs/tiny", "--format", "peft", "--blend", "base:0.5", "--out", "x"];
    place.run(&peft).assert_refusal(&["--blend"]);
}

#[test]
fn a_curve_of_blends_is_evaluated_on_the_task_and_on_general_data() {
    let place = trained(&["train.max_steps=12"]);
    let general = format!("{{samples: 4, {CLIPS}}}");
    let args = ["eval", "--run", "runs/tiny", "--blend", "1,0,0.25", "--general", &general, "--report"];
    let found = place.run(&args).succeeded().json();
    let found = found.as_array().expect("a list");
    let shares: Vec<f64> = found.iter().filter_map(|point| point["share"].as_f64()).collect();
    assert_eq!(shares, [0.0, 0.25, 1.0]);
    place.run(&["export", "--run", "runs/tiny", "--blend", "base:0.25", "--out", "some"]).succeeded();
    let card = place.text("some/README.md");
    assert!(card.contains("a mixture: 0.25 of those of") && !card.contains("## Scores"), "{card}");
    for (point, model) in found.iter().zip(["runs/tiny/best", "some", "model"]) {
        let loss = |more: &[&str]| {
            let model = format!("model.path={model}");
            let base = ["eval", "--config", "tiny.yaml", "--set", "model.source.config=null", "--set", &model];
            let metrics = ["--set", "train.evaluate.metrics=[loss]", "--set", "train.checkpoint.metric=loss"];
            place.run(&[&base[..], &metrics, more].concat()).succeeded().json()["loss"].as_f64().expect("a loss")
        };
        let near = |value: &Value, expected: f64| (value.as_f64().expect("a loss") - expected).abs() < 1e-5;
        assert!(near(&point["task"]["loss"], loss(&[])), "{model}: {point}");
        assert!(near(&point["general"]["loss"], loss(&["--data", &general])), "{model}: {point}");
    }
    let page = place.text("runs/tiny/blend.html");
    assert!(page.contains("<svg") && page.contains("0.25"), "{page}");
    for (more, culprits) in [
        (&["--blend", "0,2"][..], &["0 to 1"][..]),
        (&["--general", "list.csv"], &["--blend"]),
        (&["--blend", "0,1", "--compare", "base"], &["--compare"]),
        (&["--blend", "0,1", "--general", "none.csv"], &["none.csv"]),
    ] {
        let refused = place.run(&[&["eval", "--run", "runs/tiny"], more].concat());
        assert_eq!(refused.status, Some(2), "{more:?}: {refused:?}");
        assert!(culprits.iter().all(|culprit| refused.stderr.contains(culprit)), "{more:?}: {}", refused.stderr);
    }
}
