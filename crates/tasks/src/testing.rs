//! Small tokenizers for tests, and real ones if they are available beside the repository.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use undertone_data::records::{Origin, Place};
use undertone_model::text::TextTokenizer;
use undertone_testing::shared;

use crate::{Framer, HeadConfig, HeadInput, Target, TextBatch, TextSample};
use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use undertone_model::layers::Embedding;

/// WordPiece with a BERT post-processor, as JSON.
pub(crate) fn words_json() -> Value {
    let pieces = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "what", "is", "a", "lion", "?", "the", "lions", "##s", "roar", ".", "שלום",
        "עולם", ",",
    ];
    let letters = ('a'..='z').map(|letter| format!("##{letter}"));
    let pieces = pieces.into_iter().map(str::to_owned).chain(letters).chain(('b'..='z').map(String::from));
    let mut vocab = serde_json::Map::new();
    for piece in pieces {
        let id = vocab.len();
        vocab.entry(piece).or_insert(id.into());
    }
    let special = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": null,
        "added_tokens": [special(2, "[CLS]"), special(3, "[SEP]")],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20, "vocab": vocab},
    })
}

/// Word pieces as in BERT: pad 0, unknown 1, start 2, end 3.
pub(crate) fn words() -> Framer {
    framer(&tokenizer(&words_json()))
}

/// Bytes with two merges as in RoBERTa: start 0, pad 1, end 2.
pub(crate) fn bytes() -> Framer {
    framer(&tokenizer(&bytes_json()))
}

/// Byte-level BPE with RoBERTa's post-processor, as JSON.
pub(crate) fn bytes_json() -> Value {
    // GPT-2's alphabet: printable bytes stand for themselves, the others for characters from U+0100.
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=255u8).filter(|byte| !printable(byte)).count() as u32;
    let alphabet =
        (0..=255u8).filter(printable).map(char::from).chain((0..others).filter_map(|n| char::from_u32(256 + n)));
    let mut vocab = serde_json::Map::new();
    let pieces = ["<s>", "<pad>", "</s>", "<unk>"].map(String::from).into_iter();
    for piece in pieces.chain(alphabet.map(String::from)).chain(["Ġb", "Ġbe"].map(String::from)) {
        let id = vocab.len();
        vocab.insert(piece, id.into());
    }
    let special = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<s>"), special(1, "<pad>"), special(2, "</s>"), special(3, "<unk>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [["Ġ", "b"], ["Ġb", "e"]]},
    })
}

/// A tokenizer from JSON, with special tokens of the usual names.
pub(crate) fn tokenizer(json: &Value) -> TextTokenizer {
    TextTokenizer::from_bytes(json.to_string().into_bytes(), &[]).expect("a tokenizer")
}

/// A framer of a tokenizer.
pub(crate) fn framer(tokenizer: &TextTokenizer) -> Framer {
    Framer::new(tokenizer).expect("a framer")
}

/// A framer of a real tokenizer, if the folder of shared models is there.
pub(crate) fn real(name: &str) -> Option<Framer> {
    real_tokenizer(name).as_ref().map(framer)
}

/// A real tokenizer, if the folder of shared models is there.
pub(crate) fn real_tokenizer(name: &str) -> Option<TextTokenizer> {
    let path = shared(&format!("models/{name}/tokenizer.json"))?;
    Some(TextTokenizer::from_bytes(std::fs::read(path).expect("a file"), &[]).expect("a tokenizer"))
}

/// Origin of a test's record.
pub(crate) fn origin() -> Origin {
    Origin::new(&Arc::from(Path::new("test.jsonl")), Place::Line(1))
}

/// A sample of `length` tokens.
pub(crate) fn sample(length: usize, target: Target) -> TextSample {
    let ids = (3..3 + length as u32).collect();
    TextSample { name: "s".into(), text: "a text".into(), ids, type_ids: vec![0; length], target }
}

/// Asserts that a head's loss over two samples, of six and four tokens, is the sum of their losses, and before training
/// about the logarithm of the number of choices.
pub(crate) fn assert_costs_what_samples_cost(head: &HeadConfig, [long, short]: [Target; 2]) {
    const D_MODEL: usize = 8;
    let device = Device::default();
    undertone_ops::seed(3);
    let embeddings = Embedding { weight: Param::from_tensor(undertone_ops::normal([20, D_MODEL], 0.02, &device)) };
    let network = head.head(&embeddings, &device);
    let states = undertone_ops::normal([2, 6, D_MODEL], 1.0, &device);
    let loss = |samples: &[TextSample], states: Tensor<3>| {
        let tasks = vec![0; samples.len()];
        let batch = TextBatch::new(samples.to_vec(), 0).labelled(std::slice::from_ref(head), &tasks).expect("labels");
        let shape = [samples.len(), batch.tokens];
        let part = batch.upload_parts(&device).remove(0).expect("it has rows");
        let ended = samples.iter().flat_map(|sample| (0..batch.tokens).map(move |at| at >= sample.ids.len()));
        let input = HeadInput {
            states,
            padding: Tensor::from_data(TensorData::new(ended.collect::<Vec<bool>>(), shape), &device),
            ids: Tensor::from_data(TensorData::new(batch.ids.clone(), shape), &device),
            arrays: part.arrays,
        };
        assert!(part.rows.is_none() && batch.parts[0].rows.len() == samples.len());
        (network.loss(input).expect("a loss").into_scalar::<f32>(), batch.parts[0].count)
    };
    let samples = [sample(6, long), sample(4, short)];
    let (together, counts) = loss(&samples, states.clone());
    let alone = |row: usize, length: usize| {
        let states = states.clone().slice([row..row + 1, 0..length]);
        loss(&samples[row..=row], states).0
    };
    let alone = alone(0, 6) + alone(1, 4);
    assert!(together.is_finite() && (together - alone).abs() < 1e-4, "{head:?}: {together} for {alone}");
    // Untrained, a decision costs about the logarithm of the number of choices: 3, then 4 and 2 open tokens, 2, 20.
    let mean = f64::from(together) / counts as f64;
    assert!((0.3..4.5).contains(&mean), "{head:?}: {mean} for each of {counts}");
}
