//! Optimizers, parameter groups and learning rates as a user asks for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use undertone_tests::toys::logged;
use undertone_tests::{CLIPS, Outcome, Place, sets, tensors};

/// Everything that is not the default: a factored optimizer with a mean of changes, groups, a schedule that ends by
/// itself, and a rate for another batch.
const FACTORED: [&str; 7] = [
    "train.optimizer.name=adafactor",
    "train.optimizer.adafactor={beta1: 0.9, scale_parameter: true}",
    "train.optimizer.groups=[{match: decoder, lr: 5.0e-2, weight_decay: 0.1}]",
    "train.optimizer.schedule=wsd",
    "train.optimizer.decay_share=0.5",
    "train.optimizer.lr_scaling=sqrt",
    "train.optimizer.base_batch=16",
];

fn place() -> Place {
    Place::with_experiment(&format!("samples: 12, {CLIPS}"))
}

fn train(place: &Place, settings: &[&str], more: &[&str]) -> Outcome {
    place.train("tiny.yaml", &[&sets(settings)[..], more].concat())
}

fn trained(place: &Place, settings: &[&str], more: &[&str]) -> Outcome {
    train(place, settings, more).succeeded()
}

/// Every file of the run with its content.
fn files(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = place.tree().into_iter().filter(|path| path.is_file() && path.starts_with(place.path("runs")));
    files.map(|path| (path.clone(), std::fs::read(path).expect("read"))).collect()
}

fn rates(place: &Place) -> Vec<f64> {
    logged(&place.path("runs/tiny"), "train", "lr")
}

#[test]
fn adafactor_goes_on_from_a_checkpoint_to_the_same_bits() {
    let place = place();
    let outcome = trained(&place, &FACTORED, &[]);
    let sentence = "learning rate 1e-3 × sqrt(4 / 16) = 5e-4, and those of groups alike";
    assert_eq!(outcome.stderr.lines().filter(|line| *line == sentence).count(), 1, "{}", outcome.stderr);
    // 2 steps of warm-up, 11 at the peak, 11 of decay.
    let rates = rates(&place);
    assert_eq!((rates.len(), rates[0], rates[23]), (24, 2.5e-4, rates[23]));
    assert!(rates[1..=13].iter().all(|rate| *rate == 5e-4), "{rates:?}");
    assert!(rates[13..].is_sorted_by(|a, b| a > b) && rates[23] > 0.0, "{rates:?}");
    let last = place.path("runs/tiny/checkpoints/step-00000024");
    let state = tensors(&last.join("optimizer.safetensors"));
    assert!(state.keys().any(|name| name.ends_with(".change")) && !state.keys().any(|name| name.ends_with(".m")));
    let whole = files(&place);
    // What a kill after the checkpoint before leaves.
    std::fs::remove_dir_all(&last).expect("deleted");
    let outcome = trained(&place, &FACTORED, &["--resume"]);
    assert!(outcome.stderr.contains("step-00000020`, step 20"), "{}", outcome.stderr);
    for (path, content) in files(&place) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".safetensors") || name == "metrics.jsonl" {
            assert!(whole.get(&path) == Some(&content), "{} differs", path.display());
        }
    }
}

#[test]
fn rates_follow_the_batches_that_are_made_not_the_most_there_can_be() {
    let place = place();
    // Clips of two seconds, of which four are eight.
    let by_seconds = ["data.batch_size=64", "data.max_batch_seconds=8", "train.max_steps=3"];
    let scaling = ["train.optimizer.lr_scaling=sqrt", "train.optimizer.base_batch=16"];
    let outcome = trained(&place, &[&by_seconds[..], &scaling].concat(), &[]);
    let said = "learning rate 1e-3 × sqrt(4 / 16) = 5e-4";
    assert!(outcome.stderr.lines().any(|line| line == said), "{}", outcome.stderr);
    assert_eq!(rates(&place)[1], 5e-4);
}

#[test]
fn a_run_does_not_go_on_with_another_optimizer() {
    let place = place();
    trained(&place, &["train.max_steps=3"], &[]);
    let before = files(&place);
    let more = ["train.max_steps=6", "train.optimizer.name=adafactor"];
    let outcome = train(&place, &more, &["--resume"]);
    outcome.assert_refusal(&["runs/tiny/config.yaml", "`train.optimizer.name` adamw → adafactor"]);
    assert!(files(&place) == before, "nothing is touched");
    let adafactor = &more[1..];
    let overwrite = ["train.max_steps=3", "run.overwrite=true"];
    trained(&place, &[adafactor, &overwrite].concat(), &[]);
    let averaged = [&more[..], &["train.optimizer.adafactor.beta1=0.9"]].concat();
    train(&place, &averaged, &["--resume"]).assert_refusal(&["state of adafactor,", "adafactor with `beta1`"]);
    trained(&place, &more, &["--resume"]);
}

#[test]
fn what_cannot_be_is_refused_before_a_run_is_replaced() {
    let place = place();
    trained(&place, &["train.max_steps=3"], &[]);
    let before = files(&place);
    for (setting, culprits) in [
        (
            "groups=[{match: encoder, lr: 1}, {match: adaptors, lr: 1}]",
            ["train.optimizer.groups.1.match", "`adaptors`", "whisper.decoder.layer_norm.bias"],
        ),
        ("groups=[{match: '(encoder', lr: 1}]", ["train.optimizer.groups.0.match", "`(encoder`", "unclosed group"]),
        ("groups=[{match: encoder}]", ["train.optimizer.groups.0.match", "`lr`", "`weight_decay`"]),
        ("groups=[{match: encoder, rate: 1}]", ["train.optimizer.groups.0.rate", "lr", "weight_decay"]),
        ("lora_plus_ratio=16", ["train.optimizer.lora_plus_ratio", "lora_b", "whisper.decoder.layer_norm.bias"]),
        ("lr_scaling=linear", ["train.optimizer.lr_scaling", "the key", "`base_batch` is missing"]),
        ("adafactor.beta1=0.9", ["train.optimizer.adafactor", "adafactor", "leave it out"]),
        ("name=sgd", ["train.optimizer.name", "sgd", "adafactor"]),
    ] {
        let setting = format!("train.optimizer.{setting}");
        train(&place, &[&setting, "run.overwrite=true"], &[]).assert_refusal(&culprits);
        assert!(files(&place) == before, "{setting} touched something");
    }
}
