//! Text encoders' folders in the Hugging Face layout: reading, writing, and what travels with them.

use burn::tensor::Device;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use undertone::model::adaptable::adapt;
use undertone::model::adapters::lora::LoraConfig;
use undertone::model::text::{PretrainedText, TextEncoderConfig, tensor_name};
use undertone::store::{Dtype, HostTensor, parameters};
use undertone_tests::model_folder::{Folder, read_json};
use undertone_tests::reference::fixture;
use undertone_tests::{change_tensors, tensors};

fn copy(name: &str) -> Folder<PretrainedText> {
    Folder::copy(&fixture("text").join(name), &["io.safetensors", "texts.json"], load)
}

fn load(path: &Path) -> Result<PretrainedText, String> {
    PretrainedText::load(path, &Device::default()).map_err(|e| e.to_string())
}

/// The parameters under their names in files.
fn named(text: &PretrainedText) -> BTreeMap<String, HostTensor> {
    parameters(&text.model)
        .into_iter()
        .map(|(path, tensor)| (tensor_name(&path, text.config.model_type), tensor))
        .collect()
}

#[test]
fn every_tensor_of_the_encoder_is_read_and_no_head() {
    for (name, prefix) in [("bert", "bert."), ("distilbert", "distilbert."), ("roberta", "")] {
        let folder = copy(name);
        let stored = folder.stored();
        let all = stored.len();
        let of_encoder = stored.into_iter().filter_map(|(name, tensor)| {
            let name = name.strip_prefix(prefix)?.to_owned();
            ["embeddings.", "encoder.", "transformer."]
                .iter()
                .any(|part| name.starts_with(part))
                .then_some((name, tensor))
        });
        let of_encoder: BTreeMap<String, HostTensor> = of_encoder.collect();
        assert!(of_encoder.len() < all, "the fixture has a pooler");
        assert!(named(&folder.load()) == of_encoder, "{name}");
    }
}

#[test]
fn a_folder_comes_back_bit_by_bit_with_what_the_crate_does_not_know() {
    for (name, architecture) in [("bert", "BertModel"), ("distilbert", "DistilBertModel"), ("roberta", "RobertaModel")]
    {
        let folder = copy(name);
        let mut config = folder.json("config.json");
        config["their_key"] = json!({"kept": true});
        folder.write_json("config.json", &config);
        folder.write("vocab.txt", "[PAD]\n");
        let text = folder.load();
        let copy = folder.beside("copy");
        text.save(&copy, Dtype::F32).expect("saved");
        assert!(tensors(&copy.join("model.safetensors")) == named(&text), "{name}");
        let again = load(&copy).expect("a model");
        assert!(named(&again) == named(&text) && again.config == text.config, "{name}");
        let written = read_json(&copy.join("config.json"));
        let kept = |key: &str| !["dtype", "architectures"].contains(&key);
        for (key, value) in config.as_object().expect("an object").iter().filter(|(key, _)| kept(key)) {
            assert_eq!(&written[key], value, "{key}");
        }
        assert_eq!(written["architectures"], json!([architecture]));
        for file in ["tokenizer.json", "vocab.txt"] {
            let read = |dir: &Path| std::fs::read(dir.join(file)).expect("read");
            assert_eq!(read(&copy), read(&folder.path()), "{file}");
        }
        assert!(!copy.join("model.safetensors.index.json").exists(), "one file needs no index");
    }
}

#[test]
fn a_fresh_model_takes_its_vocabulary_from_the_tokenizer() {
    let folder = copy("roberta");
    let PretrainedText { config, tokenizer, .. } = folder.load();
    let fresh = TextEncoderConfig { vocab_size: 1000, pad_token_id: 900, ..config };
    let text = PretrainedText::init(fresh, tokenizer, &Device::default()).expect("a model");
    assert_eq!((text.config.vocab_size, text.config.pad_token_id), (29, 1));
    let copy = folder.beside("copy");
    text.save(&copy, Dtype::F32).expect("saved");
    let again = load(&copy).expect("a model");
    assert!(named(&again) == named(&text) && again.config == text.config);
}

#[test]
fn sizes_that_the_weights_do_not_have_are_refused_by_key_before_anything_is_made() {
    copy("bert").refuses_sizes(
        &[
            ("hidden_size", 8_000_000),
            ("num_hidden_layers", 1000),
            ("intermediate_size", 8_000_000),
            ("vocab_size", 8_000_000),
            ("max_position_embeddings", 200_000),
            ("type_vocab_size", 8_000_000),
        ],
        "encoder.layer.",
    );
    copy("distilbert").refuses_sizes(
        &[("dim", 8_000_000), ("n_layers", 1000), ("hidden_dim", 8_000_000), ("vocab_size", 8_000_000)],
        "transformer.layer.",
    );
}

#[test]
fn the_first_checkpoints_called_scale_and_shift_gamma_and_beta() {
    let folder = copy("roberta");
    let before = named(&folder.load());
    change_tensors(&folder.path().join("model.safetensors"), |tensors| {
        let old = std::mem::take(tensors);
        let renamed = |name: String| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
            format!("roberta.{name}")
        };
        tensors.extend(old.into_iter().map(|(name, tensor)| (renamed(name), tensor)));
        assert_eq!(tensors.keys().filter(|name| name.ends_with(".gamma")).count(), 3);
    });
    assert!(named(&folder.load()) == before);
}

#[test]
fn adapters_are_not_written_with_the_encoder() {
    let folder = copy("bert");
    let mut text = folder.load();
    let before = named(&text);
    let adapter = LoraConfig { target_modules: vec!["query".into()], ..Default::default() };
    adapt(&mut text.model, &[adapter], 0, &Device::default()).expect("adapted");
    let copy = folder.beside("copy");
    text.save(&copy, Dtype::F32).expect("saved");
    assert!(tensors(&copy.join("model.safetensors")) == before);
}

#[test]
fn a_missing_tensor_is_named_with_its_file() {
    let folder = copy("roberta");
    let name = "encoder.layer.0.attention.self.key.bias";
    change_tensors(&folder.path().join("model.safetensors"), |tensors| assert!(tensors.remove(name).is_some()));
    let error = folder.refusal();
    assert!(error.contains(&format!("`{name}`")) && error.contains("model.safetensors"), "{error}");
}

#[test]
fn anothers_tokenizer_is_refused() {
    let folder = copy("roberta");
    let mut config = folder.json("config.json");
    config["vocab_size"] = json!(20);
    folder.write_json("config.json", &config);
    let error = folder.refusal();
    assert!(error.contains("tokenizer.json") && error.contains("29 ids, the model has 20"), "{error}");

    config["vocab_size"] = json!(60);
    folder.write_json("config.json", &config);
    let whole = folder.json("tokenizer.json");
    let mut tokenizer = whole.clone();
    tokenizer["post_processor"]["sep"][1] = json!(60);
    folder.write_json("tokenizer.json", &tokenizer);
    let error = folder.refusal();
    assert!(error.contains("tokenizer.json") && error.contains("id 60 around texts, the model has 60 ids"), "{error}");
    folder.write_json("tokenizer.json", &whole);

    config["pad_token_id"] = json!(2);
    folder.write_json("config.json", &config);
    let error = folder.refusal();
    assert!(error.contains("tokenizer.json") && error.contains("pads with 1, the model with 2"), "{error}");
}

#[test]
fn anothers_configuration_is_refused_with_its_file_and_key() {
    let folder = copy("bert");
    let mut config = folder.json("config.json");
    config["hidden_act"] = json!("gelu_new");
    folder.write_json("config.json", &config);
    let error = folder.refusal();
    assert!(error.contains("config.json") && error.contains("`hidden_act` is `gelu_new`"), "{error}");
}
