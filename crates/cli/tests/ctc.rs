//! A custom speech backbone: an encoder that is trained by CTC, with every command.

mod common;

use common::{example, outcome, succeed};
use serde_json::Value;
use undertone_tests::{Outcome, Place};

fn ctc(place: &Place, args: &[&str]) -> Outcome {
    succeed(place, "ctc", args)
}

/// A new model with a window of three seconds and a position for every four frames, whose `config.json` names its architecture.
fn place() -> Place {
    let place = Place::default();
    std::fs::create_dir(place.path("model")).expect("made");
    let config = r#"{"model_type": "ctc", "d_model": 16, "heads": 2, "blocks": 2, "stride": 2, "max_frames": 300}"#;
    place.write("model/config.json", config);
    place
}

const WHOLE: &str = "run: {name: whole, dir: runs}
device: cpu
model: {path: model}
data:
  batch_size: 4
  workers: 1
  train: {samples: 8, cw: {duration_s: [2, 3]}}
  valid: {samples: 4, cw: {duration_s: [2, 3]}}
train:
  max_steps: 4
  optimizer: {lr: 1.0e-3, warmup_steps: 1}
  evaluate: {every: 2, metrics: [cer, loss]}
";

#[test]
fn an_encoder_is_fine_tuned_by_ctc() {
    let place = place();
    place.write("whole.yaml", WHOLE);
    let trained = ctc(&place, &["train", "--config", "whole.yaml"]);
    assert!(trained.stdout.contains("cer"), "{trained:?}");
    for file in ["config.json", "model.safetensors"] {
        assert!(place.path("runs/whole/best").join(file).is_file(), "{file} is saved");
    }
    let judged = ctc(&place, &["eval", "--run", "runs/whole"]);
    assert!(judged.stdout.contains("\"cer\"") && judged.stdout.contains("\"loss\""), "{judged:?}");
    let metrics = std::fs::read_to_string(place.path("runs/whole/metrics.jsonl")).expect("metrics");
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let losses: Vec<f64> =
        lines.filter(|line| line["split"] == "valid").filter_map(|line| line["loss"].as_f64()).collect();
    let saved = serde_json::from_str::<Value>(&judged.stdout).expect("JSON")["loss"].as_f64().expect("a loss");
    let same = |loss: &f64| (loss - saved).abs() < 1e-5 * saved;
    assert!(!same(&losses[0]) && losses[1..].iter().any(same), "the trained weights are saved: {saved} {losses:?}");
    undertone::data::audio::write_wav(&place.path("call.wav"), &vec![0.1; 64_000]).expect("written");
    let answered = ctc(&place, &["predict", "--run", "runs/whole", "--audio", "call.wav", "--format", "json"]);
    assert!(answered.stdout.lines().count() > 1, "four seconds are more than a window: {answered:?}");
    let resumed = ctc(&place, &["train", "--config", "whole.yaml", "--resume", "--set", "train.max_steps=5"]);
    assert!(resumed.stdout.contains("cer"), "{resumed:?}");
}

const TASKS: &str = "run: {name: tasks, dir: runs}
device: cpu
model: {backbone: ctc, path: model}
data: {batch_size: 4, workers: 1}
tasks:
  - name: slow
    lora: {r: 2, target_modules: [query, linear]}
    metrics: [cer]
    data:
      train: {synth: cw, samples: 8, cw: {duration_s: [2, 3], wpm: [12, 15]}}
      valid: {synth: cw, samples: 3, cw: {duration_s: [2, 3], wpm: [12, 15]}}
  - name: fast
    lora: {r: 2, target_modules: [query, linear]}
    metrics: [cer]
    data:
      train: {synth: cw, samples: 8, cw: {duration_s: [2, 3], wpm: [25, 30]}}
      valid: {synth: cw, samples: 3, cw: {duration_s: [2, 3], wpm: [25, 30]}}
router: {tap: 1, hidden: [8]}
train:
  optimizer: {lr: 1.0e-3, warmup_steps: 1}
  evaluate: {every: 0}
phases: {1: {train: {max_steps: 3}}, 2: {train: {max_steps: 3}}, 3: {train: {max_steps: 3}}}
";

#[test]
fn adapters_and_a_router_are_trained_on_it() {
    let place = place();
    place.write("tasks.yaml", TASKS);
    let trained = ctc(&place, &["train", "--config", "tasks.yaml"]);
    assert!(trained.stdout.contains("slow.cer"), "{trained:?}");
    let judged = ctc(&place, &["eval", "--run", "runs/tasks/phase3", "--task", "fast", "--split", "valid"]);
    assert!(judged.stdout.contains("cer"), "{judged:?}");
    undertone::data::audio::write_wav(&place.path("call.wav"), &vec![0.1; 16_000]).expect("written");
    let answered = ctc(&place, &["predict", "--run", "runs/tasks", "--audio", "call.wav"]);
    assert!(answered.stdout.contains("slow") && answered.stdout.contains("fast"), "{answered:?}");
}

#[test]
fn what_ctc_has_not_is_refused_in_a_sentence() {
    let place = place();
    place.write("whole.yaml", WHOLE);
    let refused = |args: &[&str], culprits: &[&str]| {
        let all = [&["train", "--config", "whole.yaml", "--set"], args].concat();
        outcome(&place, &example("ctc"), &all).assert_refusal(culprits);
    };
    refused(&["model.backbone=bert"], &["`model.backbone`"]);
    refused(&["model.backbone=whisper"], &["type `ctc`", "`model.backbone` is `whisper`"]);
    refused(&["loss.label_smoothing=0.1"], &["`loss.label_smoothing`"]);
    refused(&["model.trainable=encoder"], &["`model.trainable`", "backbone `ctc`", "`encoder.`", "`all`"]);
}
