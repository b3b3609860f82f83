//! Models that other programs read and that they wrote: `export` in their formats, its comparison with them, and adapters
//! by themselves.

use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use undertone::store::{Dtype, HostTensor, write_tensors};
use undertone_tests::runs::two_tasks;
use undertone_tests::{Place, change_tensors, sets, tensors, write_model};

/// A command that ends with the last argument, which is the output file.
fn ggml<'a>(more: &[&'a str], out: &'a str) -> Vec<&'a str> {
    [&["export", "--format", "ggml"], more, &["--out", out]].concat()
}

#[test]
fn a_file_of_whisper_cpp_is_refused_where_it_cannot_be() {
    let place = Place::default();
    write_model(&place.path("model"));
    place.write("mine.bin", "mine");
    let nano = ["--model", "whisper-nano-cw"];
    place.run(&ggml(&nano, "nano.bin")).assert_refusal(&["whisper.cpp", "reader `cw`"]);
    place.run(&ggml(&["--model", "model"], "model.bin")).assert_refusal(&["whisper.cpp", "`vocab_size`", "51864"]);
    place.run(&ggml(&nano, "mine.bin")).assert_refusal(&["`mine.bin` already exists"]);
    place.run(&ggml(&nano, "model")).assert_refusal(&["`model` already exists"]);
    place.run(&ggml(&nano, "none/nano.bin")).assert_refusal(&["`none/nano.bin`", "`none`"]);
    place.run(&ggml(&["--model", "nono"], "x.bin")).assert_refusal(&["`nono`"]);
    let bf16 = [&nano[..], &["--dtype", "bf16"]].concat();
    place.run(&ggml(&bf16, "nano.bin")).assert_refusal(&["bf16", "--dtype f16"]);
    assert_eq!(place.bytes("mine.bin"), b"mine");
    assert!(!place.path("nano.bin").exists() && !place.path("model.bin").exists() && !place.path("none").exists());
}

/// A small model in the format of another program, in the folder of its fixtures.
fn unpacked(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/exchange/src/fixtures").join(name);
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(path).expect("a fixture");
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("a packed file");
    bytes
}

#[cfg(unix)]
#[test]
fn a_folder_takes_the_place_of_nothing_else() {
    let place = Place::default();
    std::fs::create_dir(place.path("elsewhere")).expect("a folder");
    std::os::unix::fs::symlink(place.path("elsewhere"), place.path("link")).expect("a link");
    let export = |out: &str| place.run(&["export", "--model", "whisper-nano-cw", "--format", "hf", "--out", out]);
    export("link").succeeded();
    assert!(place.path("link").is_symlink() && place.path("elsewhere/model.safetensors").is_file());
    place.write("file", "mine");
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).expect("a link");
    let pipe = std::process::Command::new("mkfifo").arg(place.path("pipe")).status().expect("mkfifo");
    assert!(pipe.success());
    for out in ["file", "dangling", "pipe"] {
        export(out).assert_refusal(&[out, "directory"]);
        assert!(!place.path(out).is_dir(), "{out}");
    }
}

#[test]
fn models_of_other_programs_are_models_here() {
    let place = Place::default();
    place.write("tiny.pt", unpacked("openai.pt.gz"));
    place.run(&["export", "--model", "tiny.pt", "--out", "tiny"]).succeeded();
    std::fs::create_dir(place.path("ct2")).expect("a folder");
    place.write("ct2/model.bin", unpacked("float16.bin.gz"));
    std::fs::copy(place.path("tiny/tokenizer.json"), place.path("ct2/tokenizer.json")).expect("copied");
    place.run(&["export", "--model", "ct2", "--out", "same"]).succeeded();
    assert_eq!(place.json("tiny/normalizer.json")["colour"], "color");
    let weights = |folder: &str| std::fs::read(place.path(folder).join("model.safetensors")).expect("weights");
    assert!(weights("tiny") == weights("same"));

    place.write("ct2/model.bin", &unpacked("float16.bin.gz")[..5000]);
    place.write("wrong.pt", "no archive");
    place.write("notes.txt", "no model");
    let cases = [
        ("ct2", ["ct2/model.bin", "ends early"]),
        ("wrong.pt", ["wrong.pt", "ZIP"]),
        ("notes.txt", ["notes.txt", "openai-whisper"]),
    ];
    for (model, named) in cases {
        place.run(&["export", "--model", model, "--out", "none"]).assert_refusal(&named);
    }
    assert!(!place.path("none").exists());
}

#[test]
fn types_of_whisper_cpp_are_refused_for_folders() {
    let place = Place::default();
    for dtype in ["q8_0", "q5_0"] {
        let export = ["export", "--model", "whisper-nano-cw", "--dtype", dtype, "--out", "nano"];
        place.run(&export).assert_refusal(&["q8_0", "--format ggml"]);
    }
    assert!(!place.path("nano").exists());
}

/// Clips of Morse, and what the bundled model reads in them.
fn clips(place: &Place) -> Vec<String> {
    place.run(&["data", "synth", "--count", "2", "--out", "clips"]).succeeded();
    let audio = ["clips/000000.wav", "clips/000001.wav"];
    audio.map(|file| place.run(&["transcribe", file]).succeeded().stdout.trim().to_owned()).to_vec()
}

/// A Python that answers as one with these texts would.
#[cfg(unix)]
fn write_python(path: &Path, answer: &serde_json::Value) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

#[cfg(unix)]
#[test]
fn texts_of_other_programs_are_compared_with_those_here() {
    let place = Place::default();
    let texts = clips(&place);
    let python = place.path("python").to_string_lossy().into_owned();
    let verify = |out: &str| {
        let model = ["export", "--model", "whisper-nano-cw", "--out", out];
        place.run(&[&model[..], &["--verify", "clips/manifest.jsonl", "--python", &python]].concat())
    };
    write_python(Path::new(&python), &json!({"version": "9.1", "texts": texts, "seconds": 1.5}));
    let equal = verify("equal").succeeded();
    let lines: Vec<&str> = equal.stdout.lines().filter(|line| line.contains("2 of 2")).collect();
    assert_eq!(lines.len(), 2, "transformers and ctranslate2: {}", equal.stdout);
    assert!(equal.stderr.contains("faster-whisper is left out: it reads windows of 30 s"), "{}", equal.stderr);
    assert!(lines[0].starts_with("transformers") && lines[0].contains("9.1"), "{}", lines[0]);

    write_python(Path::new(&python), &json!({"version": "9.1", "texts": [texts[0], "NOT THIS"], "seconds": 1.5}));
    let different = verify("different");
    assert_eq!(different.status, Some(1), "{different:?}");
    assert!(different.stdout.contains("1 of 2") && different.stdout.contains("there  NOT THIS"), "{different:?}");

    write_python(Path::new(&python), &json!({"missing": "ctranslate2.converters"}));
    let missing = verify("missing");
    assert!(missing.stdout.contains("pip install ctranslate2"), "{missing:?}");
    missing.assert_refusal(&["nothing was compared", "--python"]);

    let refused = |more: &[&str], culprits: &[&str]| {
        let model = ["export", "--model", "whisper-nano-cw", "--out", "refused"];
        place.run(&[&model[..], more].concat()).assert_refusal(culprits);
        assert!(!place.path("refused").exists());
    };
    refused(&["--verify", "clips", "--python", "no-python"], &["no-python", "--python"]);
    refused(&["--verify", "no-clips", "--python", &python], &["no-clips"]);
    refused(&["--verify", "clips", "--python", &python, "--format", "peft"], &["--format peft", "--run"]);

    let bundled = ["export", "--model", "whisper-nano-cw", "--out", "morse", "--verify", "--python", &python];
    place.run(&bundled).assert_refusal(&["speech", "--verify CLIPS"]);
}

/// An adapter by itself, with a matrix of zeros, so that it changes nothing.
fn write_adapter(dir: &Path, config: serde_json::Value) {
    std::fs::create_dir_all(dir).expect("a folder");
    std::fs::write(dir.join("adapter_config.json"), config.to_string()).expect("written");
    let layer = "base_model.model.model.encoder.layers.0.self_attn.q_proj";
    let width = undertone::model::whisper::bundled("whisper-nano-cw").expect("bundled").remove("config.json");
    let width: serde_json::Value = serde_json::from_slice(&width.expect("a configuration")).expect("JSON");
    let width = width["d_model"].as_u64().expect("a width") as usize;
    let matrix = |shape: [usize; 2], value| HostTensor { shape: shape.to_vec(), data: vec![value; 2 * width] };
    let tensors = BTreeMap::from([
        (format!("{layer}.lora_A.weight"), matrix([2, width], 1.0)),
        (format!("{layer}.lora_B.weight"), matrix([width, 2], 0.0)),
    ]);
    write_tensors(&dir.join("adapter_model.safetensors"), &tensors, Dtype::F32).expect("written");
}

#[test]
fn an_adapter_by_itself_is_read_with_its_base() {
    let place = Place::default();
    let texts = clips(&place);
    let lora = json!({"peft_type": "LORA", "base_model_name_or_path": "whisper-nano-cw", "r": 2, "lora_alpha": 4});
    write_adapter(&place.path("lora"), lora);
    let read = place.run(&["transcribe", "--model", "lora", "clips/000000.wav"]).succeeded();
    assert_eq!(read.stdout.trim(), texts[0]);
    place.run(&["export", "--model", "lora", "--out", "merged"]).succeeded();
    assert!(place.path("merged/model.safetensors").exists());

    let refused = |name: &str, config, culprits: &[&str]| {
        write_adapter(&place.path(name), config);
        place.run(&["transcribe", "--model", name, "clips/000000.wav"]).assert_refusal(culprits);
    };
    let on = |base: &str| json!({"peft_type": "LORA", "base_model_name_or_path": base, "lora_alpha": 4});
    refused("stacked", on("lora"), &["`stacked`", "`lora`", "an adapter, too"]);
    refused("lost", on("./no-base"), &["no-base"]);
    refused("ia3", json!({"peft_type": "IA3", "base_model_name_or_path": "whisper-nano-cw"}), &["IA3"]);
    write_model(&place.path("other"));
    refused("foreign", on("other"), &["q_proj", "another model"]);
}

#[test]
fn a_run_with_tasks_is_one_folder_that_answers_the_same() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    place.train("two.yaml", &[]).succeeded();
    undertone::data::audio::write_wav(&place.path("clip.wav"), &[0.1; 24_000]).expect("written");
    let predict = |run: &str, more: &[&str]| {
        let predict = ["predict", "--run", run, "--audio", "clip.wav", "--format", "json"];
        place.run(&[&predict[..], more].concat())
    };
    let export = |more: &[&str]| place.run(&[&["export", "--run", "runs/two", "--format", "dynamo"], more].concat());
    export(&["--out", "two", "--license", "mit"]).succeeded();
    std::fs::create_dir(place.path("elsewhere")).expect("a folder");
    std::fs::rename(place.path("two"), place.path("elsewhere/moved")).expect("moved");
    for more in [&["--set", "router.gates=soft"][..], &["--task", "high"]] {
        let [run, folder] = ["runs/two", "elsewhere/moved"].map(|run| predict(run, more).succeeded().stdout);
        assert!(run == folder, "{run} {folder}");
    }
    for part in ["adapters/low/adapter_model", "adapters/high/adapter_model", "heads", "router"] {
        let bytes = |run: &str| place.bytes(&format!("{run}/phase3/best/{part}.safetensors"));
        assert!(bytes("runs/two") == bytes("elsewhere/moved"), "{part}");
    }
    let card = place.text("elsewhere/moved/README.md");
    for part in ["license: mit", "`low`, `high`", "high.cer | ", "95 % interval", "predict.py", "d_model: 16"] {
        assert!(card.contains(part), "{part}: {card}");
    }
    let merge = ["export", "--run", "elsewhere/moved", "--task", "low", "--merge", "--out", "low"];
    place.run(&merge).succeeded();
    let card = place.text("low/README.md");
    assert!(card.contains("for the task `low`") && card.contains("undertone transcribe"), "{card}");
    assert!(!card.contains("faster-whisper"), "other programs do not prepare audio of Morse code: {card}");

    export(&["--out", "light", "--without-backbone"]).succeeded();
    assert!(!place.path("light/backbone").exists());
    assert_eq!(predict("light", &[]).succeeded().stdout, predict("runs/two", &[]).succeeded().stdout);
    for run in ["light", "runs/two"] {
        let best = format!("{run}/phase3/best");
        predict(run, &["--set", "seed=7"]).assert_refusal(&["other weights", &best, "model.path"]);
    }

    // A base that was changed after the training.
    let config = place.text("runs/two/config.yaml");
    let (_, rest) = config.split_once('\n').expect("the seed and more");
    place.write("runs/two/config.yaml", format!("seed: 7\n{rest}"));
    export(&["--out", "changed"]).assert_refusal(&["other weights", "runs/two/phase3/best"]);
    assert!(!place.path("changed").exists());
    place.write("runs/two/config.yaml", config);

    place.write("clips.csv", "clip.wav,HELLO");
    let adapter = ["export", "--run", "runs/two", "--task", "low", "--format", "peft", "--out", "x"];
    let verified = [&adapter[..], &["--verify", "clips.csv", "--python", "true"]].concat();
    place.run(&verified).assert_refusal(&["--verify", "head", "--merge"]);

    export(&["--out", "x", "--task", "low"]).assert_refusal(&["--task", "all tasks"]);
    export(&["--out", "x", "--license", "mit\nlanguage: xx"]).assert_refusal(&["--license", "apache-2.0"]);
    export(&["--out", "x", "--dtype", "f16"]).assert_refusal(&["--dtype"]);
    export(&["--out", "light"]).assert_refusal(&["`light`"]);
    let whole = ["export", "--model", "whisper-nano-cw", "--format", "dynamo", "--out", "x"];
    place.run(&whole).assert_refusal(&["--run"]);
    std::fs::remove_file(place.path("runs/two/phase3/best/heads.safetensors")).expect("removed");
    assert_ne!(export(&["--out", "x"]).status, Some(0));
    assert!(!place.path("x").exists());
}

/// The script in the folder reads one file, with the names of today.
#[test]
fn a_backbone_in_parts_or_with_old_names_is_written_anew_beside_the_script() {
    let place = crate::dynamo_text::place();
    let names = |path: &str| tensors(&place.path(path)).into_keys().collect::<Vec<_>>();
    let exported = |base: &str, run: &str, out: &str| {
        let settings = [format!("model.path={base}"), format!("run.name={run}")];
        place.train("text.yaml", &[&["--phase", "1"], &sets(&settings)[..]].concat()).succeeded();
        let run = format!("runs/{run}");
        place.run(&["export", "--run", &run, "--format", "dynamo", "--out", out]).succeeded();
        let text = ["--task", "tone", "--text", "hello world"];
        let answers = [&run, out].map(|run| place.run(&[&["predict", "--run", run], &text[..]].concat()).succeeded());
        assert_eq!(answers[0].stdout, answers[1].stdout);
        names(&format!("{out}/backbone/model.safetensors"))
    };
    assert!(!place.path("bert/model.safetensors").exists(), "it is in two files");
    let of_parts = exported("bert", "parts", "whole");
    change_tensors(&place.path("whole/backbone/model.safetensors"), |tensors| {
        let old = std::mem::take(tensors).into_iter();
        let renamed = |name: String| {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        };
        tensors.extend(old.map(|(name, tensor)| (renamed(name), tensor)));
    });
    assert_eq!(exported("whole/backbone", "old", "renamed"), of_parts);
    assert!(of_parts.iter().any(|name| name.ends_with("LayerNorm.weight")), "{of_parts:?}");
}
