//! Text encoders against transformers, on the fixtures of `fixtures/text/make.py`.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use undertone::model::layers::mean_pool;
use undertone::model::text::{PretrainedText, tensor_name};
use undertone_testing::shared;
use undertone_tests::model_folder::read_json;
use undertone_tests::reference::{Expected, assert_close, assert_within, fixture, gradients, values};

/// A model and its expected answers.
fn load(name: &str) -> (PretrainedText, Expected) {
    let dir = fixture("text").join(name);
    let text = PretrainedText::load(&dir, &Device::default()).expect("a text encoder");
    (text, Expected::load(&dir.join("io.safetensors")))
}

fn type_ids(io: &Expected, device: &Device) -> Option<Tensor<2, Int>> {
    io.contains("type_ids").then(|| io.ids("type_ids", device))
}

#[test]
fn states_and_pooled_states_equal_transformers() {
    for (name, blocks) in [("bert", 2), ("distilbert", 2), ("roberta", 1)] {
        let (text, io) = load(name);
        let device = Device::default();
        let padding = io.ids("mask", &device).equal_scalar(0);
        let mut x = text.model.embed(io.ids("ids", &device), type_ids(&io, &device), Some(&padding));
        assert_close("states.0", &values(x.clone()), &io.floats("states.0"));
        for block in 0..blocks {
            x = text.model.blocks(x, block..block + 1, Some(&padding), None);
            let key = format!("states.{}", block + 1);
            assert_close(&key, &values(x.clone()), &io.floats(&key));
        }
        assert_close("pooled", &values(mean_pool(x, Some(&padding))), &io.floats("pooled"));
    }
}

#[test]
fn loss_and_gradients_equal_transformers() {
    for (name, expected) in [("bert", 9), ("distilbert", 9), ("roberta", 6)] {
        let (text, io) = load(name);
        let model = text.model.train();
        let device = Device::default().autodiff();
        let mask = io.ids("mask", &device);
        let padding = mask.clone().equal_scalar(0);
        let states = model.forward(io.ids("ids", &device), type_ids(&io, &device), Some(&padding), None);
        let mask = mask.float();
        let squares = (states - io.tensor("target", &device)).square().mean_dim(2).squeeze_dim::<2>(2);
        let loss = (squares * mask.clone()).sum() / mask.sum();
        assert_close("loss", &values(loss.clone()), &io.floats("loss"));
        let found: BTreeMap<String, Vec<f32>> = gradients(&model, &loss.backward())
            .into_iter()
            .map(|(path, gradient)| (tensor_name(&path, text.config.model_type), gradient))
            .collect();
        assert_eq!(io.assert_gradients(&found, str::to_owned), expected, "named gradients of {name}");
    }
}

#[test]
fn tokens_and_their_texts_equal_tokenizers() {
    for name in ["bert", "distilbert", "roberta"] {
        let (text, _) = load(name);
        let texts = read_json(&fixture("text").join(name).join("texts.json"));
        let texts = texts.as_array().expect("a list");
        assert_eq!(texts.len(), 4);
        for expected in texts {
            let encoding = text.tokenizer.inner().encode(expected["text"].as_str().expect("text"), true).expect("ids");
            assert_eq!(serde_json::json!(encoding.get_ids()), expected["ids"], "{name}");
            let ids = encoding.get_ids();
            assert_eq!(text.tokenizer.decode(ids), expected["decoded"], "{name}");
            assert_eq!((ids[0], ids[ids.len() - 1]), (text.tokenizer.cls(), text.tokenizer.sep()));
        }
        assert_eq!(text.tokenizer.pad(), text.config.pad_token_id);
        assert!(text.tokenizer.mask().is_some());
    }
}

#[test]
fn minilm_gives_the_sentence_vectors_that_transformers_gives() {
    let Some(dir) = shared("models/minilm-l6") else { return };
    let device = Device::default();
    let text = PretrainedText::load(&dir, &device).expect("MiniLM");
    let expected = fixture("text/minilm");
    let io = Expected::load(&expected.join("io.safetensors"));
    let sentences = serde_json::from_value::<Vec<String>>(read_json(&expected.join("sentences.json"))).expect("a list");
    let encodings = text.tokenizer.inner().encode_batch(sentences, true).expect("ids");
    let longest = encodings.iter().map(|e| e.len()).max().expect("sentences");
    let rows = encodings.iter().flat_map(|encoding| {
        let ids = encoding.get_ids().iter().map(|id| i64::from(*id));
        ids.chain(std::iter::repeat(i64::from(text.tokenizer.pad()))).take(longest)
    });
    let rows: Vec<i64> = rows.collect();
    assert_eq!(rows, io.ints("ids"));
    let ids = Tensor::<2, Int>::from_ints(TensorData::new(rows, [encodings.len(), longest]), &device);
    let padding = ids.clone().equal_scalar(text.tokenizer.pad());
    let pooled = mean_pool(text.model.forward(ids, None, Some(&padding), None), Some(&padding));
    assert_within("pooled", &values(pooled), &io.floats("pooled"), 1e-3);
}
