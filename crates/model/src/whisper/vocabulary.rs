//! Training of vocabularies: byte-pair encoding, and the `tokenizer.json` around it.

use serde_json::{Map, Value, json};
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
    let added: Vec<_> = (vocab.len()..)
        .zip(special)
        .map(|(id, token)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    });
    file.to_string().into_bytes()
}
