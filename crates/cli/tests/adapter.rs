//! A custom adapter type, (IA)³: trained through all phases, evaluated, merged and used.

mod common;

use common::{UNDERTONE, example, outcome, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use undertone_tests::runs::two_tasks;
use undertone_tests::{CLIPS, Outcome, Place, change_tensors, sets, tensors, wav, write_model};

fn plugin() -> PathBuf {
    example("adapter")
}

fn ran(place: &Place, args: &[&str]) -> Outcome {
    succeed(place, "adapter", args)
}

const LORA: &str = "lora: {r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: [q_proj, fc1]}";
const IA3: &str = "adapter: {type: ia3, target_modules: [k_proj, v_proj, fc1]}";

/// Two tasks with adapters of the plug-in's type.
fn adapted_tasks() -> String {
    assert_eq!(two_tasks().matches(LORA).count(), 2);
    two_tasks().replace(LORA, IA3).replace("lr: 1.0e-3", "lr: 1.0e-2, weight_decay: 0")
}

fn clip(place: &Place) -> &'static str {
    place.write("clip.wav", wav(&(0..24000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect::<Vec<_>>()));
    "clip.wav"
}

#[test]
fn an_adapter_of_ones_own_goes_through_all_phases() {
    let place = Place::default();
    place.write("two.yaml", adapted_tasks());
    ran(&place, &["train", "--config", "two.yaml", "--phase", "1"]);
    // Later phases take up what phase 1 has left, and phase 1 itself is not trained again.
    let outcome = ran(&place, &["train", "--config", "two.yaml", "--resume"]);
    assert!(outcome.stdout.contains("finished earlier"), "{outcome:?}");
    let part = |phase: &str, part: &str| tensors(&place.path(&format!("runs/two/{phase}/best/{part}")));
    let last =
        |phase: &str| tensors(&place.path(&format!("runs/two/{phase}/checkpoints/step-00000006/model.safetensors")));
    for task in ["low", "high"] {
        let adapter = format!("adapters/{task}/adapter_model.safetensors");
        assert_eq!(part(&format!("phase1/{task}"), &adapter), part("phase2", &adapter), "phase 2 trains none");
        let first = last(&format!("phase1/{task}"));
        let vectors = &first["backbone.Whisper.encoder.layers.1.self_attn.v_proj.ia3.vectors"];
        assert_eq!(vectors.shape, [1, 16]);
        assert!(vectors.data.iter().any(|x| (x - 1.0).abs() > 1e-3), "it is trained: {vectors:?}");
        assert!(first.keys().all(|name| name.contains(".ia3.") || name.starts_with("heads.")), "nothing else is");
    }
    let both = &last("phase3")["backbone.Whisper.encoder.layers.1.self_attn.v_proj.ia3.vectors"];
    assert_eq!(both.shape, [2, 16], "phase 3 trains the adapters of both tasks");
    let config = place.json("runs/two/phase3/best/adapters/low/adapter_config.json");
    assert_eq!((&config["peft_type"], &config["feedforward_modules"]), (&"IA3".into(), &Value::Array(Vec::new())));
    assert!(config.get("type").is_none() && config.get("r").is_none(), "{config}");
    let evaluated = ran(&place, &["eval", "--run", "runs/two/phase3", "--task", "low", "--split", "valid"]);
    assert!(evaluated.stdout.contains("cer"), "{evaluated:?}");
    let answer = ran(&place, &["predict", "--run", "runs/two", "--audio", clip(&place), "--format", "json"]);
    let gates = &answer.json()["gates"];
    let sum: f64 = ["low", "high"].iter().map(|task| gates[task].as_f64().expect("a gate")).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{gates}");
}

#[test]
fn a_merged_adapter_of_ones_own_answers_as_it_does_by_itself() {
    let place = Place::default();
    place.write_experiment(&format!("samples: 12, {CLIPS}"));
    write_model(&place.path("model"));
    // Weights of an untrained model are so small that hardly anything depends on them.
    change_tensors(&place.path("model/model.safetensors"), |weights| {
        let matrix = |name: &str| {
            ["proj", "fc1", "fc2", "embed_tokens"].iter().any(|map| name.ends_with(&format!("{map}.weight")))
        };
        for (_, weight) in weights.iter_mut().filter(|(name, _)| matrix(name)) {
            weight.data.iter_mut().for_each(|x| *x *= 6.0);
        }
    });
    let settings = [
        "model.source.config=null",
        "model.path=model",
        "model.trainable=adapter",
        "model.adapter={type: ia3, target_modules: [k_proj, v_proj, fc1]}",
        "train.optimizer={lr: 3.0e-2, weight_decay: 0}",
        "train.evaluate.metrics=[cer,loss]",
        "train.checkpoint.metric=loss",
    ];
    ran(&place, &[&["train", "--config", "tiny.yaml"], &sets(&settings)[..]].concat());
    // Vectors that matter, as those of longer training do.
    change_tensors(&place.path("runs/tiny/best/adapters/default/adapter_model.safetensors"), |vectors| {
        for vector in vectors.values_mut() {
            vector.data.iter_mut().enumerate().for_each(|(at, x)| *x *= if at % 3 == 0 { 2.5 } else { -0.5 });
        }
    });
    let loss = |args: &[&str]| ran(&place, args).json()["loss"].as_f64().expect("a loss");
    let of = |model: &str| {
        let path = format!("model.path={model}");
        let sets = ["--set", "model.source.config=null", "--set", &path, "--set", "train.evaluate.metrics=[cer,loss]"];
        loss(&[&["eval", "--config", "tiny.yaml"], &sets[..]].concat())
    };
    let by_itself = loss(&["eval", "--run", "runs/tiny"]);
    ran(&place, &["export", "--run", "runs/tiny", "--merge", "--out", "merged"]);
    assert!((of("merged") - by_itself).abs() < 1e-4 * by_itself, "{} and {by_itself}", of("merged"));
    assert!((of("model") - by_itself).abs() > 1e-3 * by_itself, "the adapter changes something");
    let clip = clip(&place);
    let answer = ran(&place, &["predict", "--run", "runs/tiny", "--audio", clip]).stdout;
    assert_eq!(ran(&place, &["transcribe", "--model", "merged", clip]).stdout, answer);
}

#[test]
fn what_is_no_adapter_is_refused_in_a_sentence() {
    let place = Place::default();
    let refused = |program: &Path, yaml: String, culprits: &[&str]| {
        place.write("two.yaml", yaml);
        outcome(&place, program, &["train", "--config", "two.yaml"]).assert_refusal(culprits);
    };
    // The program without the plug-in's type, and one with it.
    refused(Path::new(UNDERTONE), adapted_tasks(), &["two.yaml", "`ia3`", "`lora`"]);
    refused(&plugin(), adapted_tasks().replace("ia3", "ia4"), &["two.yaml", "`ia4`", "`lora` or `ia3`"]);
    refused(&plugin(), adapted_tasks().replace("ia3,", "ia3, r: 2,"), &["adapter.r`", "target_modules"]);
    refused(&plugin(), two_tasks().replacen(LORA, IA3, 1), &["`low`", "`high`", "`ia3`", "`lora`"]);
    let both = format!("{IA3}\n    {LORA}");
    refused(&plugin(), two_tasks().replace(LORA, &both), &["`lora`", "`adapter`", "leave one out"]);
    // LoRA+ is for LoRA's matrices.
    let plus = adapted_tasks().replace("weight_decay: 0", "weight_decay: 0, lora_plus_ratio: 4");
    refused(&plugin(), plus, &["lora_plus_ratio", "lora_b"]);
}
