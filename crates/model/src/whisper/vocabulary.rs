//! Vocabularies of byte-pair encoding, trained or from the files of older programs, and the `tokenizer.json` around them.

use crate::tokenizer_file::parts::{self, added_token, object};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
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
    let added = (vocab.len() as u64..).zip(special).map(|(id, token)| added_token(id, &token, !is_time(&token)));
    let added = added.collect();
    file_with(vocab, merges, splits, added)
}

/// Longest token of a vocabulary by rank, in bytes. OpenAI's longest has 128.
const LONGEST_TOKEN: usize = 1024;

/// Returns the `tokenizer.json` of a byte-level vocabulary that is given as the bytes of its tokens, in the order in which they
/// were merged. `symbol` spells a byte. Special tokens follow; those of times are ordinary ones in decoding, as in OpenAI's.
pub(super) fn of_ranks(
    tokens: &[Vec<u8>],
    symbol: impl Fn(u8) -> char,
    special: Vec<String>,
) -> Result<Vec<u8>, String> {
    let (vocab, merges) = with_merges(tokens, symbol)?;
    let added = (vocab.len() as u64..).zip(special).map(|(id, token)| added_token(id, &token, !is_time(&token)));
    Ok(file_with(vocab, merges, true, added.collect()))
}

/// Returns the symbols by id and the merges of a vocabulary by rank.
fn with_merges(tokens: &[Vec<u8>], symbol: impl Fn(u8) -> char) -> Result<(Map<String, Value>, Value), String> {
    let spell = |bytes: &[u8]| bytes.iter().map(|byte| symbol(*byte)).collect::<String>();
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (token.as_slice(), rank)).collect();
    if ranks.len() != tokens.len() {
        return Err("two of its tokens are the same".into());
    }
    let (mut vocab, mut merges) = (Map::new(), Vec::new());
    for (rank, token) in tokens.iter().enumerate() {
        if token.len() > LONGEST_TOKEN {
            return Err(format!("token {rank} has {} bytes, and none may have more than {LONGEST_TOKEN}", token.len()));
        }
        vocab.insert(spell(token), rank.into());
        merges.extend(halves(token, rank, &ranks).map(|(a, b)| json!([spell(a), spell(b)])));
    }
    Ok((vocab, merges.into()))
}

/// Returns the two tokens that were merged to `token`: what is left when its bytes are merged by the tokens of lower rank.
fn halves<'a>(token: &'a [u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<(&'a [u8], &'a [u8])> {
    // Ends of the parts.
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let merged = |at: &usize| ranks.get(&token[ends[*at]..ends[at + 2]]).filter(|found| **found < rank);
        let at = (0..ends.len() - 2).filter(|at| merged(at).is_some()).min_by_key(|at| merged(at))?;
        ends.remove(at + 1);
    }
    let [start, middle, end] = ends[..] else { return None };
    Some((&token[start..middle], &token[middle..end]))
}

/// Returns the `tokenizer.json` of a folder that has none, from the files that older programs write: `vocab.json` and
/// `merges.txt`, and the tokens that were added to the vocabulary, from `added_tokens.json` or `tokenizer_config.json`.
/// `None` if there is no vocabulary.
pub(super) fn of_files(files: &BTreeMap<String, Vec<u8>>) -> Option<Result<Vec<u8>, String>> {
    let (vocab, merges) = (files.get("vocab.json")?, files.get("merges.txt")?);
    Some(assembled(vocab, merges, files))
}

fn assembled(vocab: &[u8], merges: &[u8], files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, String> {
    let (vocab, merges) = (object("vocab.json", vocab)?, parts::merges(merges)?);
    // Tokens by id, and whether they are special.
    let mut added: BTreeMap<u64, (String, bool)> = BTreeMap::new();
    let is_special = |token: &str| is_control(token) && !is_time(token);
    let id_of = |(token, id): (&String, &Value)| Some((id.as_u64()?, (token.clone(), is_special(token))));
    added.extend(vocab.iter().filter(|(token, _)| is_control(token)).filter_map(id_of));
    if let Some(bytes) = files.get("added_tokens.json") {
        added.extend(object("added_tokens.json", bytes)?.iter().filter_map(id_of));
    }
    if let Some(bytes) = files.get("tokenizer_config.json") {
        let settings = object("tokenizer_config.json", bytes)?;
        let tokens = settings.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten();
        added.extend(tokens.filter_map(|(id, token)| {
            let content = token["content"].as_str()?;
            let special = token["special"].as_bool().unwrap_or(is_special(content)) && !is_time(content);
            Some((id.parse().ok()?, (content.to_owned(), special)))
        }));
    }
    let added = added.iter().map(|(id, (token, special))| added_token(*id, token, *special)).collect();
    Ok(file_with(vocab, merges, true, added))
}

/// Whether a token looks like one that controls Whisper: `<|endoftext|>`.
pub(super) fn is_control(token: &str) -> bool {
    token.len() > 4 && token.starts_with("<|") && token.ends_with("|>")
}

/// Whether a token stands for a time, as `<|0.02|>` does.
fn is_time(token: &str) -> bool {
    is_control(token) && token[2..token.len() - 2].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn file_with(vocab: Map<String, Value>, merges: Value, splits: bool, added: Vec<Value>) -> Vec<u8> {
    // What transformers 4 frames texts with for training, as OpenAI's tokenizers do.
    let id_of = |token: &str| added.iter().find(|added| added["content"] == token).map(|added| &added["id"]);
    let frame = ["<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"];
    let special: Map<String, Value> = frame
        .iter()
        .filter_map(|token| {
            Some(((*token).to_owned(), json!({"id": token, "ids": [id_of(token)?], "tokens": [token]})))
        })
        .collect();
    let post_processor = (special.len() == frame.len()).then(|| {
        let [start, plain, end] = frame.map(|token| json!({"SpecialToken": {"id": token, "type_id": 0}}));
        let text = |id: &str, type_id: u32| json!({"Sequence": {"id": id, "type_id": type_id}});
        json!({"type": "TemplateProcessing", "single": [start, plain, text("A", 0), end],
            "pair": [start, plain, text("A", 0), text("B", 1), end], "special_tokens": special})
    });
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": post_processor, "decoder": byte_level,
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
        assert_eq!((tokenizer.end(), tokenizer.start(), tokenizer.timestamp_begin()), (4, 5, Some(7)));
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
    fn merges_follow_from_ranks() {
        let tokens =
            ["a", "b", "c", "ab", "bc", "abc", "ca", "cab", "bcab", "xx"].map(|token| token.as_bytes().to_vec());
        let (vocab, merges) = with_merges(&tokens, char::from).expect("a vocabulary");
        assert_eq!(vocab["abc"], 5);
        let expected = json!([["a", "b"], ["b", "c"], ["ab", "c"], ["c", "a"], ["c", "ab"], ["bc", "ab"], ["x", "x"]]);
        assert_eq!(merges, expected);
        let refused = |tokens: &[&[u8]]| {
            let tokens: Vec<Vec<u8>> = tokens.iter().map(|token| token.to_vec()).collect();
            with_merges(&tokens, char::from).expect_err("refused")
        };
        assert!(refused(&[b"a", b"a"]).contains("same"));
        assert!(refused(&[b"", b""]).contains("same"), "OpenAI's multilingual vocabulary has one");
        assert!(refused(&[&[7; 1025]]).contains("1025 bytes"));
    }

    #[test]
    fn openais_vocabulary_by_rank_gives_the_ids_of_the_whole() {
        let name = "models/whisper-tokenizer";
        let Some(dir) = undertone_testing::shared(name) else { return };
        let whole = WhisperTokenizer::from_bytes(std::fs::read(dir.join("tokenizer.json")).expect("read"));
        let whole = whole.expect("a tokenizer");
        let tokens: Vec<Vec<u8>> = (0..whole.end()).map(|id| whole.token_bytes(id).expect("bytes")).collect();
        let by_id: BTreeMap<u32, String> = whole.languages().into_iter().map(|(token, id)| (id, token)).collect();
        let languages: Vec<&str> = by_id.values().map(|token| token.trim_matches(['<', '|', '>'])).collect();
        let ranked = WhisperTokenizer::of_ranks(&tokens, &languages, 1501).expect("a tokenizer");
        assert_eq!((ranked.vocab_size(), ranked.languages()), (whole.vocab_size(), whole.languages()));
        assert_eq!((ranked.start(), ranked.timestamp_begin()), (whole.start(), whole.timestamp_begin()));
        for text in ["Printing, in 1450.", "  Đường đi 道 🙂\n\n", "don't  it's", "a\tb—c", "ẞ\u{301}e"] {
            assert_eq!(ranked.encode(text).expect(text), whole.encode(text).expect(text), "{text:?}");
        }
        let timed = [ranked.timestamp_begin().expect("times"), 50, ranked.end()];
        assert_eq!(ranked.decode(&timed), whole.decode(&timed));
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
