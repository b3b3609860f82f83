//! Vocabularies of byte-pair encoding, trained or from the files of older programs, and the `tokenizer.json` around them.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{TokenizerBuilder, TokenizerImpl};

/// Number of byte symbols.
const BYTES: usize = 256;

type Trained = TokenizerImpl<BPE, NormalizerWrapper, ByteLevel, PostProcessorWrapper, DecoderWrapper>;

/// Returns the symbols by id and the merges of a byte-level vocabulary of at most `vocab_size`.
pub(super) fn train<'a>(
    texts: impl Iterator<Item = &'a str> + Send,
    vocab_size: usize,
) -> Result<(Map<String, Value>, Value), String> {
    if vocab_size < BYTES {
        return Err(format!("{vocab_size} tokens have no room for all {BYTES} bytes: give at least so many"));
    }
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let said = |e: tokenizers::Error| e.to_string();
    let builder = TokenizerBuilder::new().with_model(BPE::default()).with_pre_tokenizer(Some(byte_level()));
    let mut tokenizer: Trained = builder.build().map_err(said)?;
    tokenizer.train(&mut trainer, texts).map_err(said)?;
    let mut model = serde_json::to_value(tokenizer.get_model()).map_err(|e| e.to_string())?;
    let Value::Object(vocab) = model["vocab"].take() else { return Err("the trained model has no vocabulary".into()) };
    Ok((vocab, model["merges"].take()))
}

/// Pre-tokenizer that splits texts into words as GPT-2 does, spelled in bytes.
fn byte_level() -> ByteLevel {
    ByteLevel::new(false, true, true)
}

/// Returns a `tokenizer.json` of byte-pair encoding with special tokens after the vocabulary. With `splits`, texts are
/// split into words first.
pub(super) fn file(vocab: Map<String, Value>, merges: Value, splits: bool, special: Vec<String>) -> Vec<u8> {
    let added = (vocab.len() as u64..).zip(special).map(|(id, token)| added_token(id, &token, true)).collect();
    file_with(vocab, merges, splits, added)
}

/// Returns the `tokenizer.json` of a folder that has none, from the files that older programs write: `vocab.json` and
/// `merges.txt`, and the tokens that were added to the vocabulary, from `added_tokens.json` or `tokenizer_config.json`.
/// `None` if there is no vocabulary.
pub(super) fn of_files(files: &BTreeMap<String, Vec<u8>>) -> Option<Result<Vec<u8>, String>> {
    let (vocab, merges) = (files.get("vocab.json")?, files.get("merges.txt")?);
    Some(assembled(vocab, merges, files))
}

fn assembled(vocab: &[u8], merges: &[u8], files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, String> {
    let object = |name: &str, bytes: &[u8]| {
        serde_json::from_slice::<Map<String, Value>>(bytes).map_err(|e| format!("`{name}` is not a JSON object: {e}"))
    };
    let vocab = object("vocab.json", vocab)?;
    let merges = std::str::from_utf8(merges).map_err(|e| format!("`merges.txt` is not text: {e}"))?;
    let pairs: Vec<[&str; 2]> = merges.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| [a, b]).collect();
    // The first line is `#version: 0.2`.
    let pairs = pairs.strip_prefix(&[["#version:", "0.2"]]).unwrap_or(&pairs);
    let mut added: BTreeMap<u64, String> = BTreeMap::new();
    let id_of = |(token, id): (&String, &Value)| Some((id.as_u64()?, token.clone()));
    added.extend(vocab.iter().filter(|(token, _)| is_control(token)).filter_map(id_of));
    if let Some(bytes) = files.get("added_tokens.json") {
        added.extend(object("added_tokens.json", bytes)?.iter().filter_map(id_of));
    }
    if let Some(bytes) = files.get("tokenizer_config.json") {
        let settings = object("tokenizer_config.json", bytes)?;
        let tokens = settings.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten();
        added.extend(tokens.filter_map(|(id, token)| Some((id.parse().ok()?, token["content"].as_str()?.to_owned()))));
    }
    let added = added.iter().map(|(id, token)| added_token(*id, token, !is_time(token))).collect();
    Ok(file_with(vocab, json!(pairs), true, added))
}

/// Whether a token looks like one that controls Whisper: `<|endoftext|>`.
fn is_control(token: &str) -> bool {
    token.len() > 4 && token.starts_with("<|") && token.ends_with("|>")
}

/// Whether a token stands for a time, as `<|0.02|>` does.
fn is_time(token: &str) -> bool {
    is_control(token) && token[2..token.len() - 2].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn added_token(id: u64, token: &str, special: bool) -> Value {
    json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": special})
}

fn file_with(vocab: Map<String, Value>, merges: Value, splits: bool, added: Vec<Value>) -> Vec<u8> {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    });
    file.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whisper::WhisperTokenizer;
    use proptest::prelude::*;

    fn files(of: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        of.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    const VOCAB: &str = r#"{"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<|endoftext|>": 4}"#;
    const ADDED: &str = r#"{"<|startoftranscript|>": 5, "<|notimestamps|>": 6, "<|0.00|>": 7}"#;

    #[test]
    fn a_vocabulary_in_parts_is_one() {
        let parts =
            files(&[("vocab.json", VOCAB), ("merges.txt", "#version: 0.2\na b\n"), ("added_tokens.json", ADDED)]);
        let bytes = of_files(&parts).expect("a vocabulary").expect("whole");
        let tokenizer = WhisperTokenizer::from_bytes(bytes).expect("a tokenizer");
        assert_eq!(tokenizer.encode("ab ba").expect("spelled"), [2, 3, 1, 0]);
        assert_eq!((tokenizer.end(), tokenizer.start(), tokenizer.timestamp_begin()), (4, 5, 7));
        assert_eq!(tokenizer.vocab_size(), 8);
        let decoder = r#"{"added_tokens_decoder": {"5": {"content": "<|startoftranscript|>"}, "6": {"content": "<|notimestamps|>"}}}"#;
        let newer = files(&[("vocab.json", VOCAB), ("merges.txt", "a b"), ("tokenizer_config.json", decoder)]);
        let bytes = of_files(&newer).expect("a vocabulary").expect("whole");
        assert_eq!(WhisperTokenizer::from_bytes(bytes).expect("a tokenizer").vocab_size(), 7);
        assert!(of_files(&files(&[("vocab.json", VOCAB)])).is_none());
        let broken = of_files(&files(&[("vocab.json", "[]"), ("merges.txt", "")])).expect("a vocabulary");
        assert!(broken.expect_err("refused").contains("vocab.json"));
    }

    #[test]
    fn openais_vocabulary_in_parts_gives_the_ids_of_the_whole() {
        let name = "models/whisper-tokenizer";
        let Some(dir) = undertone_testing::shared(name) else { return };
        let read = |name: &str| std::fs::read(dir.join(name)).expect(name);
        let whole = WhisperTokenizer::from_bytes(read("tokenizer.json")).expect("a tokenizer");
        let names = ["vocab.json", "merges.txt", "tokenizer_config.json"];
        let parts = names.iter().map(|name| ((*name).to_owned(), read(name))).collect();
        let parts = of_files(&parts).expect("a vocabulary").expect("whole");
        let parts = WhisperTokenizer::from_bytes(parts).expect("a tokenizer");
        assert_eq!(parts.vocab_size(), whole.vocab_size());
        assert_eq!((parts.start(), parts.end(), parts.languages()), (whole.start(), whole.end(), whole.languages()));
        for text in ["Printing, in 1450.", "  Đường đi 道 🙂\n\n", "don't  it's", "a\tb—c", "ẞ\u{301}e"] {
            assert_eq!(parts.encode(text).expect(text), whole.encode(text).expect(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_parts_are_a_vocabulary_or_refused(vocab in "\\PC{0,40}", merges in "\\PC{0,40}", added in "\\PC{0,40}") {
            let parts = files(&[("vocab.json", &vocab), ("merges.txt", &merges), ("added_tokens.json", &added)]);
            let _ = of_files(&parts).expect("a vocabulary").map(WhisperTokenizer::from_bytes);
        }
    }
}
