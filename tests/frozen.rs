//! What is frozen, held in half precision: a run computes with it as with rounded weights, to the bit.

use serde_json::Value;
use undertone::store::HostTensor;
use undertone_tests::runs::{Records, finishes, send, train_to};
use undertone_tests::{CLIPS, Outcome, Place, change_tensors, experiment, sets, tensors, wav, write_model};

/// The tiny experiment with an adapter on the model in `model`, whose frozen part is held in bf16.
fn yaml() -> String {
    let yaml = experiment(&format!("samples: 12, {CLIPS}"));
    let (before, rest) = yaml.split_once("model:\n").expect("a model");
    let (_, after) = rest.split_once("data:\n").expect("data");
    let lora = "{r: 4, lora_alpha: 8, lora_dropout: 0.1, target_modules: [q_proj, v_proj, fc1]}";
    let after = after.replace("metrics: [cer, loss]", "metrics: [loss]").replace("lr: 1.0e-3", "lr: 3.0e-2");
    let after = after.replace("checkpoint: {every: 4}", "checkpoint: {every: 4, metric: loss}");
    format!("{before}model: {{path: model, trainable: lora, frozen_dtype: bf16, lora: {lora}}}\ndata:\n{after}")
}

fn place() -> Place {
    let place = Place::default();
    place.write("tiny.yaml", yaml());
    write_model(&place.path("model"));
    place
}

/// Rounds matrices of the model in a folder to bf16, as they are held: those of its linear maps and its token embedding
/// that are frozen.
fn round(place: &Place, folder: &str, is_frozen: impl Fn(&str) -> bool) {
    let is_matrix = |name: &str| name.contains("layer") || name.contains("embed_tokens") || name.contains("word_embed");
    for entry in std::fs::read_dir(place.path(folder)).expect("listed") {
        let file = entry.expect("an entry").file_name().into_string().expect("a name");
        if !(file.starts_with("model") && file.ends_with(".safetensors")) {
            continue;
        }
        change_tensors(&place.path(folder).join(file), |tensors| {
            let held = |(name, tensor): &(&String, &mut HostTensor)| {
                tensor.shape.len() == 2 && is_matrix(name) && is_frozen(name)
            };
            tensors.iter_mut().filter(held).flat_map(|(_, tensor)| &mut tensor.data).for_each(|x| {
                let bits = x.to_bits();
                *x = f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000);
            });
        });
    }
}

fn json(place: &Place, args: &[&str]) -> Value {
    place.run(args).succeeded().json()
}

#[test]
fn an_adapter_learns_as_on_rounded_weights_and_goes_on_to_the_same_bits() {
    let whole = place();
    finishes(&whole, &[]);
    let records = Records::of(&whole);

    let rounded = place();
    round(&rounded, "model", |_| true);
    finishes(&rounded, &["--set", "model.frozen_dtype=f32"]);
    records.assert_same_as(&Records::of(&rounded));

    let stopped = place();
    let mut child = train_to(&stopped, 7);
    send("-INT", &child);
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    let other = stopped.train("tiny.yaml", &["--resume", "--set", "model.frozen_dtype=f32"]);
    other.assert_refusal(&["model.frozen_dtype"]);
    finishes(&stopped, &["--resume"]);
    Records::of(&stopped).assert_same_as(&records);
}

#[test]
fn what_is_merged_computes_what_was_judged() {
    let place = place();
    finishes(&place, &[]);
    let best = place.json("runs/tiny/summary.json")["best"][0].as_f64().expect("a score");
    let judged = json(&place, &["eval", "--run", "runs/tiny"])["loss"].as_f64().expect("a loss");
    assert!((judged - best).abs() < 1e-6 * best, "{judged} and {best}");
    place.run(&["export", "--run", "runs/tiny", "--merge", "--out", "merged"]).succeeded();
    let set = ["--set", "model.path=merged", "--set", "model.frozen_dtype=f32"];
    let merged = json(&place, &[&["eval", "--config", "tiny.yaml"], &set[..]].concat())["loss"].as_f64();
    assert!((merged.expect("a loss") - judged).abs() < 1e-4 * judged, "{merged:?} and {judged}");
    // Weights without an adapter are written as they were held.
    round(&place, "model", |_| true);
    let [base, merged] = ["model", "merged"].map(|folder| tensors(&place.path(&format!("{folder}/model.safetensors"))));
    assert_eq!(base["model.decoder.layers.0.fc2.weight"], merged["model.decoder.layers.0.fc2.weight"]);
    assert_eq!(base["model.decoder.embed_tokens.weight"], merged["model.decoder.embed_tokens.weight"]);
    assert_ne!(base["model.decoder.layers.0.fc1.weight"], merged["model.decoder.layers.0.fc1.weight"]);
    place.write("clip.wav", wav(&(0..24000).map(|n| 0.3 * (n as f32 * 0.25).sin()).collect::<Vec<_>>()));
    let text = |model: &str| place.run(&["transcribe", "--model", model, "clip.wav"]).succeeded().stdout;
    assert_eq!(text("runs/tiny"), text("merged"));
}

#[test]
fn a_part_of_a_model_learns_beside_the_rest() {
    for part in ["encoder", "decoder"] {
        let set = ["model.lora=null".to_owned(), format!("model.trainable={part}"), "train.optimizer.lr=1e-3".into()];
        let set = sets(&set);
        let [held, rounded] = [place(), place()];
        finishes(&held, &set);
        round(&rounded, "model", |name| !name.starts_with(&format!("model.{part}.")));
        finishes(&rounded, &[&set[..], &["--set", "model.frozen_dtype=f32"]].concat());
        Records::of(&held).assert_same_as(&Records::of(&rounded));
        let best = |place: &Place| tensors(&place.path("runs/tiny/best/model.safetensors"));
        assert!(best(&held) == best(&rounded), "{part}");
    }
}

/// A run of all phases on a text backbone.
fn text(more: &[&str]) -> (Place, Outcome) {
    let place = crate::dynamo_text::place();
    let outcome = place.train("text.yaml", &[&["--phase", "all"], more].concat()).succeeded();
    (place, outcome)
}

#[test]
fn tasks_learn_as_on_a_rounded_backbone() {
    let held = ["--set", "model.frozen_dtype=bf16"];
    let (place, _) = text(&held);
    let rounded = crate::dynamo_text::place();
    round(&rounded, "bert", |_| true);
    rounded.train("text.yaml", &["--phase", "all"]).succeeded();
    for stage in ["phase1/tone", "phase1/where", "phase1/names", "phase1/turn", "phase2", "phase3"] {
        let file = format!("runs/four/{stage}/checkpoints/step-00000006/model.safetensors");
        assert_eq!(tensors(&place.path(&file)), tensors(&rounded.path(&file)), "{stage}");
    }
    // The folder for other programs has the backbone that the run computes with.
    let packed = ["export", "--run", "runs/four", "--format", "dynamo", "--out", "packed"];
    let packed = [&place, &rounded].map(|place| {
        place.run(&packed).succeeded();
        tensors(&place.path("packed/backbone/model.safetensors"))
    });
    assert_eq!(packed[0], packed[1]);
    // A backbone that is trained as a whole is in f32, and begins as it is in its folder.
    let baseline = ["train", "--config", "text.yaml", "--baseline", "full"];
    place.run(&[&baseline[..], &held].concat()).succeeded();
    let full = crate::dynamo_text::place();
    full.run(&baseline).succeeded();
    let file = "runs/four/baselines/full/best/backbone.safetensors";
    assert_eq!(tensors(&place.path(file)), tensors(&full.path(file)));
    place.run(&["analyze", "--run", "runs/four"]).succeeded();
}

#[test]
fn it_is_refused_where_nothing_is_frozen() {
    let place = place();
    let all = ["--set", "model.lora=null", "--set", "model.trainable=all"];
    let outcome = place.train("tiny.yaml", &all);
    outcome.assert_refusal(&["`model.frozen_dtype` is bf16", "nothing is frozen", "trainable: lora"]);
    let outcome = place.train("tiny.yaml", &["--set", "model.frozen_dtype=fp8"]);
    outcome.assert_refusal(&["fp8", "bf16"]);
}
