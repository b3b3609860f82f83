//! Files that `fixtures/make.py` made with the programs themselves, all of the same weights.

use super::*;
use burn::tensor::{Int, Tensor};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use undertone_store::HostTensor;

const OPENAI: &[u8] = include_bytes!("fixtures/openai.pt.gz");
const FLOAT16: &[u8] = include_bytes!("fixtures/float16.bin.gz");
const INT8: &[u8] = include_bytes!("fixtures/int8.bin.gz");
const INT16: &[u8] = include_bytes!("fixtures/int16.bin.gz");

#[derive(serde::Deserialize)]
struct Reference {
    tokens: Vec<i64>,
    logits: Vec<Vec<f32>>,
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut all).expect("a packed file");
    all
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// A folder of CTranslate2 with the vocabulary of OpenAI's English models.
    fn ctranslate2(&self, weights: &[u8]) -> PathBuf {
        self.write("model.bin", weights);
        let tokenizer = crate::vocabulary::of_size(51864).expect("a vocabulary");
        self.write("tokenizer.json", tokenizer.to_bytes());
        self.0.path().to_owned()
    }
}

fn read(path: &Path) -> Result<PretrainedWhisper, ExchangeError> {
    Format::of(path).expect("a format").read(path, &Device::default())
}

fn openai() -> PretrainedWhisper {
    let place = Place::new();
    read(&place.write("tiny.pt", &unpacked(OPENAI))).expect("a model")
}

fn tensors(weights: &[u8]) -> BTreeMap<String, HostTensor> {
    read(&Place::new().ctranslate2(&unpacked(weights))).expect("a model").tensors()
}

#[test]
fn a_checkpoint_of_openai_computes_what_its_program_does() {
    let whisper = openai();
    let config = &whisper.config;
    assert_eq!((config.encoder_attention_heads, config.decoder_attention_heads), (2, 4));
    assert_eq!((config.encoder_layers, config.decoder_layers, config.d_model), (1, 2, 8));
    assert_eq!((whisper.tokenizer.end(), whisper.tokenizer.start()), (50256, 50257));
    let reference: Reference = serde_json::from_str(include_str!("fixtures/logits.json")).expect("a reference");
    let device = Device::default();
    let features = (0..80 * 16).map(|at| -1.0 + 2.0 * at as f32 / (80.0 * 16.0 - 1.0)).collect::<Vec<f32>>();
    let features = Tensor::<1>::from_floats(features.as_slice(), &device).reshape([1, 80, 16]);
    let ids = Tensor::<1, Int>::from_ints(reference.tokens.as_slice(), &device).unsqueeze();
    let logits = HostTensor::from(whisper.model.forward(features, ids));
    for (row, expected) in logits.data.chunks(51864).zip(&reference.logits) {
        for (found, expected) in row.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-4, "{found} {expected}");
        }
    }
}

#[test]
fn a_folder_of_ctranslate2_has_the_same_weights() {
    let expected = openai().tensors();
    assert_eq!(tensors(FLOAT16), expected);
    for (weights, steps) in [(INT8, 127.0), (INT16, 512.0)] {
        let found = tensors(weights);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        let mut differ = 0;
        for (name, tensor) in &expected {
            let most = tensor.data.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            for (found, expected) in found[name].data.iter().zip(&tensor.data) {
                assert!((found - expected).abs() <= most / steps * 0.51, "{name}: {found} {expected}");
                differ += usize::from(found != expected);
            }
        }
        assert!(differ > 1000, "they are quantised");
    }
}

#[test]
fn a_vocabulary_of_ctranslate2_alone_is_enough() {
    let place = Place::new();
    place.ctranslate2(&unpacked(FLOAT16));
    let whole = read(place.0.path()).expect("a model");
    std::fs::remove_file(place.0.path().join("tokenizer.json")).expect("removed");
    let missing = read(place.0.path()).expect_err("refused").to_string();
    assert!(missing.contains("no vocabulary") && missing.contains("tokenizer.json"), "{missing}");
    let folder = tempfile::tempdir().expect("a folder");
    whole.save(folder.path(), undertone_store::Dtype::F32).expect("saved");
    let vocab = std::fs::read(folder.path().join("vocab.json")).expect("read");
    let vocab: BTreeMap<String, u32> = serde_json::from_slice(&vocab).expect("a vocabulary");
    let by_id: BTreeMap<u32, String> = vocab.into_iter().map(|(token, id)| (id, token)).collect();
    let list = serde_json::to_vec(&by_id.into_values().collect::<Vec<_>>()).expect("a list");
    place.write("vocabulary.json", &list);
    place.write(
        "config.json",
        br#"{"lang_ids": [], "suppress_ids": [7], "suppress_ids_begin": null, "alignment_heads": [[1, 2]]}"#,
    );
    let read = read(place.0.path()).expect("a model");
    assert_eq!(
        read.tokenizer.encode("don't  it's 道").expect("spelled"),
        whole.tokenizer.encode("don't  it's 道").expect("spelled")
    );
    assert_eq!((read.generation.suppress_tokens.as_slice(), read.generation.is_multilingual), ([7].as_slice(), false));
    assert_eq!(read.generation.to_json()["alignment_heads"], serde_json::json!([[1, 2]]));
}

#[test]
fn a_model_of_ctranslate2_is_as_multilingual_as_its_vocabulary() {
    // The converter lists the languages of English models, too, and with transformers 5 those of no model.
    let place = Place::new();
    place.ctranslate2(&unpacked(FLOAT16));
    place.write("config.json", br#"{"lang_ids": [50258, 50259, 50260]}"#);
    let whisper = read(place.0.path()).expect("a model");
    assert!(!whisper.generation.is_multilingual);
    assert_eq!(whisper.tokenizer.prompt(&whisper.generation, None, None).map(|prompt| prompt.len()), Ok(2));
}

#[test]
fn a_bias_of_keys_is_refused() {
    for layer in ["encoder/layer_0/self_attention/linear_0/bias", "decoder/layer_1/attention/linear_1/bias"] {
        let mut weights = unpacked(FLOAT16);
        let name = weights.windows(layer.len()).position(|bytes| bytes == layer.as_bytes()).expect(layer);
        // After the name its null, the number of axes, one length, the type and the number of bytes.
        let length = name + layer.len() + 2;
        let values = u32::from_le_bytes(*weights[length..].first_chunk().expect("a length")) as usize;
        let data = length + 4 + 1 + 4;
        // Keys are the second of three parts, or the first of two.
        let key = if layer.starts_with("encoder") { values / 3 } else { 0 };
        weights[data + 2 * key + 1] = 0x3c;
        let place = Place::new();
        let error = read(&place.ctranslate2(&weights)).expect_err("refused").to_string();
        assert!(error.contains("the keys of `") && error.contains("bias"), "{layer}: {error}");
    }
}

#[test]
fn files_of_something_else_are_refused_in_a_sentence() {
    let place = Place::new();
    for name in ["x.pt", "x.bin"] {
        let other = place.write(name, b"PK\x03\x04 and nothing more");
        assert!(read(&other).expect_err("refused").to_string().contains("ZIP"));
    }
    assert!(Format::of(&place.write("x.bin", b"something else")).is_none());
    assert!(Format::of(place.0.path()).is_none());
    let mut weights = unpacked(FLOAT16);
    weights[0] = 3;
    let old = read(&place.ctranslate2(&weights)).expect_err("refused").to_string();
    assert!(old.contains("version 3") && old.contains("model.bin"), "{old}");
    weights[0] = 6;
    weights[6] = b'X';
    assert!(read(&place.ctranslate2(&weights)).expect_err("refused").to_string().contains("`XhisperSpec`"));
    let short = &unpacked(FLOAT16)[..2000];
    assert!(read(&place.ctranslate2(short)).expect_err("refused").to_string().contains("ends early"));
    place.write("model.safetensors.index.json", b"{}");
    assert!(Format::of(place.0.path()).is_none(), "a Hugging Face folder that was converted in its place");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn damage_is_read_or_refused(places in proptest::collection::vec((0usize..3000, 0u8..=255), 1..5), cut in 4usize..20_000) {
        for packed in [OPENAI, INT8] {
            let place = Place::new();
            let mut bytes = unpacked(packed);
            if cut % 3 == 0 {
                bytes.truncate(cut);
            }
            for (at, byte) in &places {
                bytes.get_mut(4 + at).into_iter().for_each(|place| *place = *byte);
            }
            let _ = match packed == OPENAI {
                true => read(&place.write("tiny.pt", &bytes)),
                false => read(&place.ctranslate2(&bytes)),
            };
        }
    }
}
