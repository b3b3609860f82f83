//! A Whisper for a language of one's own, trained from nothing: its vocabulary comes from a file or from the texts.

use serde_json::Value;
use undertone_tests::{Outcome, Place, experiment};

const TEXTS: [&str; 3] = ["xin chào các bạn", "các bạn chào", "đường đi xin chào"];

/// Twelve recordings in Vietnamese, and the tiny experiment on them with such a vocabulary.
fn place(tokenizer: &str) -> Place {
    let place = Place::default();
    let text = |index: usize| TEXTS[index % TEXTS.len()].to_owned();
    place.write_recordings((0..12).map(|index| (vec![0.1; 8000 + 500 * index], text(index))));
    let yaml = experiment("path: list.jsonl").replace("model:\n", &format!("model:\n  tokenizer: {tokenizer}\n"));
    let valid = yaml.find("  valid: {samples").expect("validation data");
    let end = valid + yaml[valid..].find("\ntrain:").expect("its end");
    let yaml = yaml.replace(&yaml[valid..end], "  valid: {path: list.jsonl}\n  language: vi");
    place.write("tiny.yaml", yaml.replace("max_steps: 24", "max_steps: 4"));
    place
}

fn trained(place: &Place, more: &[&str]) -> Outcome {
    place.train("tiny.yaml", more).succeeded()
}

fn tokenizer(place: &Place, run: &str) -> Vec<u8> {
    place.bytes(&format!("runs/{run}/best/tokenizer.json"))
}

#[test]
fn a_fresh_model_has_a_vocabulary_that_is_trained_on_its_texts() {
    let place = place("{vocab_size: 280}");
    trained(&place, &[]);
    let bytes = tokenizer(&place, "tiny");
    let json: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(json["model"]["vocab"].as_object().expect("a vocabulary").len(), 280);
    let special: Vec<&str> =
        json["added_tokens"].as_array().expect("a list").iter().filter_map(|token| token["content"].as_str()).collect();
    assert!(["<|vi|>", "<|transcribe|>", "<|notimestamps|>", "<|2.00|>"].iter().all(|token| special.contains(token)));
    // What it goes on with, is judged by and is used with is the same.
    trained(&place, &["--resume", "--set", "train.max_steps=6"]);
    assert!(tokenizer(&place, "tiny") == bytes);
    for args in [&["eval", "--run", "runs/tiny"][..], &["transcribe", "--model", "runs/tiny", "00.wav"]] {
        assert_eq!(place.run(args).status, Some(0), "{args:?}");
    }
    // It stays the same though a text is corrected.
    let list = place.text("list.jsonl");
    place.write("list.jsonl", list.replace("đường đi xin chào", "đường đường đi đi bạn bạn"));
    trained(&place, &["--resume", "--set", "train.max_steps=8"]);
    assert!(tokenizer(&place, "tiny") == bytes);
    place.write("list.jsonl", list);
    // Another model takes it from there.
    let path = "model.tokenizer={path: runs/tiny/best, vocab_size: null}";
    trained(&place, &["--set", "run.name=second", "--set", path]);
    assert!(tokenizer(&place, "second") == bytes);
}

#[test]
fn a_vocabulary_that_cannot_be_is_refused() {
    for (tokenizer, culprits) in [
        ("{vocab_size: 100}", &["`model.tokenizer.vocab_size`", "256"][..]),
        ("{}", &["`model.tokenizer`", "vocab_size"]),
        ("{vocab_size: 300, path: x}", &["`model.tokenizer`", "give one"]),
        ("{path: list.jsonl}", &["list.jsonl", "tokenizer.json"]),
        ("{path: none}", &["none"]),
    ] {
        place(tokenizer).train("tiny.yaml", &[]).assert_refusal(culprits);
    }
    let bundled = ["--set", "model.source={bundled: whisper-nano-cw, config: null}"];
    place("{vocab_size: 300}").train("tiny.yaml", &bundled).assert_refusal(&["`model.tokenizer`", "fresh model"]);
    let morse = ["--set", "data.train={synth: cw, samples: 4, path: null}"];
    place("{vocab_size: 300}").train("tiny.yaml", &morse).assert_refusal(&["`model.tokenizer"]);
}
