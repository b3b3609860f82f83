//! Whisper folders in the Hugging Face layout: reading, writing, and what travels with them.

use burn::tensor::Device;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use undertone::model::whisper::{PretrainedWhisper, WhisperTokenizer};
use undertone::store::{Dtype, HostTensor, parameters};
use undertone_tests::change_tensors;
use undertone_tests::model_folder::{Folder, read_json};
use undertone_tests::reference::fixture;

/// A copy of a fixture that has a tokenizer and files this crate does not know.
fn copy(name: &str) -> Folder<PretrainedWhisper> {
    let folder = Folder::copy(&fixture("whisper").join(name), &["io.safetensors"], load);
    // The fixtures' sequences end with 2 and start with 3: two characters leave those ids to the special tokens.
    let tokenizer = WhisperTokenizer::of_characters(" A", &["en"]).expect("a tokenizer");
    folder.write("tokenizer.json", tokenizer.to_bytes());
    folder.write_json("generation_config.json", &json!({"is_multilingual": true, "alignment_heads": [[1, 0]]}));
    folder
}

fn load(path: &Path) -> Result<PretrainedWhisper, String> {
    PretrainedWhisper::load(path, &Device::default()).map_err(|e| e.to_string())
}

/// The parameters under their names in files.
fn named(whisper: &PretrainedWhisper) -> BTreeMap<String, HostTensor> {
    parameters(&whisper.model).into_iter().map(|(name, tensor)| (format!("model.{name}"), tensor)).collect()
}

#[test]
fn a_single_file_and_shards_hold_the_same_as_the_model() {
    for name in ["tiny-80", "tiny-128"] {
        let folder = copy(name);
        let stored = folder.stored();
        assert!(named(&folder.load()) == stored, "{name}");
    }
}

#[test]
fn f32_comes_back_bit_by_bit() {
    for name in ["tiny-80", "tiny-128"] {
        let folder = copy(name);
        let whisper = folder.load();
        let copy = folder.beside("copy");
        whisper.save(&copy, Dtype::F32).expect("saved");
        let again = load(&copy).expect("a model");
        assert!(named(&again) == named(&whisper), "{name}");
        assert_eq!(again.config, whisper.config);
        let (kept, given) = (again.generation.to_json(), whisper.generation.to_json());
        assert!(given.iter().all(|(key, value)| kept.get(key) == Some(value)), "{given:?} became {kept:?}");
        for key in ["lang_to_id", "task_to_id", "no_timestamps_token_id", "eos_token_id"] {
            assert!(kept.contains_key(key), "transformers cannot generate without {key}");
        }
        assert_eq!(again.tokenizer.to_bytes(), whisper.tokenizer.to_bytes());
        assert!(!copy.join("model.safetensors.index.json").exists(), "one file needs no index");
    }
}

#[test]
fn half_types_come_back_within_their_rounding() {
    let folder = copy("tiny-80");
    let whisper = folder.load();
    for (dtype, name, half_of_last_place) in
        [(Dtype::F16, "float16", 2_f32.powi(-11)), (Dtype::Bf16, "bfloat16", 2_f32.powi(-8))]
    {
        let copy = folder.beside(name);
        whisper.save(&copy, dtype).expect("saved");
        assert_eq!(read_json(&copy.join("config.json"))["torch_dtype"], name);
        let again = named(&load(&copy).expect("a model"));
        for (tensor, before) in named(&whisper) {
            for (x, y) in before.data.iter().zip(&again[&tensor].data) {
                // Below 2^-14 the steps of f16 no longer shrink: they are 2^-24.
                assert!(
                    (x - y).abs() <= x.abs() * half_of_last_place + 2_f32.powi(-25),
                    "{name} {tensor}: {x} became {y}"
                );
            }
        }
    }
}

#[test]
fn what_the_crate_does_not_know_survives() {
    let folder = copy("tiny-80");
    let extra = br#"{"added": "by somebody else"}"#;
    folder.write("added_tokens.json", extra);
    folder.write("merges.txt", "#version: 0.2\n");
    let mut config = folder.json("config.json");
    config["their_key"] = json!({"kept": true});
    folder.write_json("config.json", &config);
    let copy = folder.beside("copy");
    folder.load().save(&copy, Dtype::F32).expect("saved");
    assert_eq!(std::fs::read(copy.join("added_tokens.json")).expect("read"), extra);
    assert_eq!(std::fs::read(copy.join("merges.txt")).expect("read"), b"#version: 0.2\n");
    let written = read_json(&copy.join("config.json"));
    for (key, value) in config.as_object().expect("an object").iter().filter(|(key, _)| *key != "dtype") {
        assert_eq!(&written[key], value, "{key}");
    }
    assert_eq!(read_json(&copy.join("generation_config.json"))["alignment_heads"], json!([[1, 0]]));
}

#[test]
fn what_is_no_file_of_a_model_is_neither_read_nor_written_back() {
    let folder = copy("tiny-80");
    for name in ["transcripts.json", "notes.txt", "environment.json", "vocab.json.old", "vocab.txt.json"] {
        folder.write(name, "private");
    }
    let before = std::fs::read_dir(folder.path()).expect("listed").count();
    let copy = folder.beside("copy");
    folder.load().save(&copy, Dtype::F32).expect("saved");
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("listed").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(&folder.path()).len(), before, "the folder itself is left alone");
    let private = |name: &String| std::fs::read(copy.join(name)).is_ok_and(|bytes| bytes == b"private");
    assert!(!names(&copy).iter().any(private), "{:?}", names(&copy));
}

#[test]
fn a_small_file_that_is_not_small_is_refused_before_it_is_read_whole() {
    for name in ["config.json", "added_tokens.json", "vocab.json", "tokenizer.json"] {
        let folder = copy("tiny-80");
        let file = std::fs::File::create(folder.path().join(name)).expect("made");
        file.set_len(1 << 40).expect("as long as a disk");
        let error = folder.refusal();
        assert!(error.contains(name) && error.contains("no such file of a model"), "{error}");
    }
}

#[test]
fn an_index_names_no_files_elsewhere() {
    let folder = copy("tiny-128");
    let index = folder.json("model.safetensors.index.json");
    for elsewhere in ["../tiny-128/model-00001-of-00005.safetensors", "/dev/zero", "..", ""] {
        let mut index = index.clone();
        index["weight_map"]["model.encoder.conv1.bias"] = json!(elsewhere);
        folder.write_json("model.safetensors.index.json", &index);
        let error = folder.refusal();
        assert!(error.contains("index.json") && error.contains(&format!("`{elsewhere}`")), "{error}");
    }
}

#[test]
fn saving_replaces_a_model_whole() {
    let folder = copy("tiny-128");
    let whisper = folder.load();
    // What is no part of a model is somebody's own.
    folder.write("notes.json", "{}");
    folder.write("normalizer.json", "{}");
    // Over the very shards it was read from.
    whisper.save(&folder.path(), Dtype::F32).expect("saved");
    assert!(named(&folder.load()) == named(&whisper));
    assert!(folder.path().join("notes.json").exists());
    for stale in ["normalizer.json", "model.safetensors.index.json", "model-00001-of-00005.safetensors"] {
        assert!(!folder.path().join(stale).exists(), "{stale}");
    }
    assert_eq!(std::fs::read_dir(folder.beside("")).expect("listed").count(), 1, "nothing is left beside it");
}

#[test]
fn a_missing_tensor_is_named_with_its_file() {
    let single = copy("tiny-80");
    let name = "model.encoder.conv1.bias";
    change_tensors(&single.path().join("model.safetensors"), |tensors| assert!(tensors.remove(name).is_some()));
    let error = single.refusal();
    assert!(error.contains(name) && error.contains("model.safetensors"), "{error}");

    let sharded = copy("tiny-128");
    let mut json = sharded.json("model.safetensors.index.json");
    json["weight_map"].as_object_mut().expect("a map").remove(name).expect("a tensor");
    sharded.write_json("model.safetensors.index.json", &json);
    let error = sharded.refusal();
    assert!(error.contains(name) && error.contains("index.json"), "{error}");
}

#[test]
fn a_missing_shard_is_named() {
    let folder = copy("tiny-128");
    let shard = "model-00003-of-00005.safetensors";
    std::fs::remove_file(folder.path().join(shard)).expect("removed");
    let error = folder.refusal();
    assert!(error.contains(shard), "{error}");
}

#[test]
fn sizes_that_the_weights_do_not_have_are_refused_by_key_before_anything_is_made() {
    copy("tiny-80").refuses_sizes(
        &[
            ("d_model", 8_000_000),
            ("encoder_layers", 1000),
            ("decoder_layers", 1000),
            ("encoder_ffn_dim", 8_000_000),
            ("decoder_ffn_dim", 8_000_000),
            ("num_mel_bins", 8_000_000),
            ("vocab_size", 8_000_000),
            ("max_source_positions", 200_000),
            ("max_target_positions", 200_000),
        ],
        "layers.2.",
    );
}

#[test]
fn models_from_before_settings_of_generation_had_a_file_are_as_multilingual_as_their_vocabulary() {
    let folder = copy("tiny-80");
    let old = json!({"_from_model_config": true, "begin_suppress_tokens": [7], "max_length": 20});
    folder.write_json("generation_config.json", &old);
    let whisper = folder.load();
    assert!(whisper.generation.is_multilingual);
    assert_eq!(whisper.tokenizer.prompt(&whisper.generation, Some("en"), None).map(|prompt| prompt.len()), Ok(4));
    // Without a file, transformers takes what the model's own settings say.
    std::fs::remove_file(folder.path().join("generation_config.json")).expect("removed");
    let mut config = folder.json("config.json");
    (config["suppress_tokens"], config["begin_suppress_tokens"]) = (Value::Null, json!([7, 8]));
    folder.write_json("config.json", &config);
    let settings = folder.load().generation;
    assert!(settings.is_multilingual && settings.suppress_tokens.is_empty());
    assert_eq!(settings.begin_suppress_tokens, [7, 8]);
}

#[test]
fn settings_of_features_are_those_of_the_model_wherever_they_are() {
    let folder = copy("tiny-80");
    for (name, settings) in [
        ("preprocessor_config.json", json!({"feature_size": 128})),
        ("processor_config.json", json!({"feature_extractor": {"feature_size": 128}})),
    ] {
        folder.write_json(name, &settings);
        let error = folder.refusal();
        assert!(error.contains(name) && error.contains("128"), "{error}");
        std::fs::remove_file(folder.path().join(name)).expect("removed");
    }
}

#[test]
fn odd_numbers_beside_the_weights_are_refused_or_without_effect() {
    let folder = copy("tiny-80");
    let odd = json!({
        "is_multilingual": true, "suppress_tokens": [u64::MAX, -5, 4_000_000_000_u64, 1e300, "x"], "max_length": u64::MAX,
        "begin_suppress_tokens": [1_000_000_000], "language": "", "alignment_heads": [[u64::MAX, -1]],
    });
    folder.write_json("generation_config.json", &odd);
    let whisper = folder.load();
    let mel = burn::tensor::Tensor::zeros([1, 80, 8], &Device::default());
    let options = whisper.generate_options();
    assert!(whisper.model.generate(mel, &[vec![3]], &options).len() == 1);
    let mut tokenizer: Value = serde_json::from_slice(whisper.tokenizer.to_bytes()).expect("JSON");
    tokenizer["model"]["vocab"]["far"] = 4_000_000_000_u64.into();
    folder.write_json("tokenizer.json", &tokenizer);
    let error = folder.refusal();
    assert!(error.contains("tokenizer.json") && error.contains("4000000001"), "{error}");
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    let folder = copy("tiny-80");
    let name = "decoder.layers.1.fc2.weight";
    change_tensors(&folder.path().join("model.safetensors"), |tensors| {
        tensors.get_mut(&format!("model.{name}")).expect("a tensor").shape.reverse();
    });
    let error = folder.refusal();
    for part in [name, "[32, 64]", "[64, 32]"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}
