//! The `tokenizer.json` of folders that have none, from the files that older programs write.

use super::TextModelType;
use crate::tokenizer_file::parts::{added_token, merges, object};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Names of the special tokens: unknown, start, end, padding, mask.
type Special = [String; 5];

/// Returns a `tokenizer.json` of the vocabulary of a folder that has none, as transformers makes it: BERT's of `vocab.txt`, RoBERTa's of
/// `vocab.json` and `merges.txt`. `declared` are the settings of `tokenizer_config.json` and `special_tokens_map.json`. `None` if there is no
/// such vocabulary.
pub(super) fn of_files(
    files: &BTreeMap<String, Vec<u8>>,
    declared: &[Map<String, Value>],
    model_type: TextModelType,
) -> Option<Result<Vec<u8>, String>> {
    Some(match model_type {
        TextModelType::Bert | TextModelType::Distilbert => word_pieces(files.get("vocab.txt")?, files, declared),
        TextModelType::Roberta => byte_pairs(files.get("vocab.json")?, files.get("merges.txt")?, files, declared),
        TextModelType::XlmRoberta | TextModelType::Camembert => return None,
    })
}

fn word_pieces(
    vocab: &[u8],
    files: &BTreeMap<String, Vec<u8>>,
    declared: &[Map<String, Value>],
) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(vocab).map_err(|e| format!("`vocab.txt` is not text: {e}"))?;
    let vocab: Map<String, Value> = text.lines().enumerate().map(|(id, token)| (token.to_owned(), id.into())).collect();
    let special = special(declared, ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]);
    let [unknown, start, end, ..] = &special;
    let setting = |key: &str, default: Value| named(declared, key).cloned().unwrap_or(default);
    let [first, last] = [start, end].map(|token| json!({"SpecialToken": {"id": token, "type_id": 0}}));
    let second = json!({"SpecialToken": {"id": end, "type_id": 1}});
    let sequence = |id: &str, type_id: u32| json!({"Sequence": {"id": id, "type_id": type_id}});
    let frame =
        |token: &String| Some((token.clone(), json!({"id": token, "ids": [vocab.get(token)?], "tokens": [token]})));
    let framing: Map<String, Value> = [start, end].into_iter().filter_map(frame).collect();
    Ok(file(json!({
        "added_tokens": added(&vocab, &special, files)?,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": setting("tokenize_chinese_chars", true.into()),
            "strip_accents": setting("strip_accents", Value::Null), "lowercase": setting("do_lower_case", true.into()),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, sequence("A", 0), last],
            "pair": [first, sequence("A", 0), last, sequence("B", 1), second], "special_tokens": framing,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    })))
}

fn byte_pairs(
    vocab: &[u8],
    pairs: &[u8],
    files: &BTreeMap<String, Vec<u8>>,
    declared: &[Map<String, Value>],
) -> Result<Vec<u8>, String> {
    let (vocab, merges) = (object("vocab.json", vocab)?, merges(pairs)?);
    let special = special(declared, ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]);
    let [_, start, end, ..] = &special;
    let prefix = named(declared, "add_prefix_space").cloned().unwrap_or(false.into());
    let [cls, sep] = [start, end].map(|token| json!([token, vocab.get(token)]));
    // Without them the reader says which token is missing.
    let framed = vocab.contains_key(start) && vocab.contains_key(end);
    let processing =
        json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": true, "add_prefix_space": prefix});
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true});
    Ok(file(json!({
        "added_tokens": added(&vocab, &special, files)?, "normalizer": null, "pre_tokenizer": byte_level,
        "post_processor": framed.then_some(processing), "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    })))
}

fn file(mut parts: Value) -> Vec<u8> {
    parts["version"] = "1.0".into();
    parts["truncation"] = Value::Null;
    parts["padding"] = Value::Null;
    parts.to_string().into_bytes()
}

/// Returns the tokens that are never split, by id: the special ones of the vocabulary, and those of `added_tokens.json`.
fn added(
    vocab: &Map<String, Value>,
    special: &Special,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<Value>, String> {
    let further = files.get("added_tokens.json").map(|bytes| object("added_tokens.json", bytes)).transpose()?;
    let further = further.unwrap_or_default();
    let id_of = |token: &str| vocab.get(token).or_else(|| further.get(token))?.as_u64();
    let names = special.iter().chain(further.keys());
    let by_id: BTreeMap<u64, &String> = names.filter_map(|token| Some((id_of(token)?, token))).collect();
    let mask = &special[4];
    let token = |(id, token): (u64, &String)| {
        let mut added = added_token(id, token, special.contains(token));
        // The mask of RoBERTa takes the space before it.
        added["lstrip"] = (token == mask && token == "<mask>").into();
        added
    };
    Ok(by_id.into_iter().map(token).collect())
}

fn special(declared: &[Map<String, Value>], usual: [&str; 5]) -> Special {
    let keys = ["unk_token", "cls_token", "sep_token", "pad_token", "mask_token"];
    let mut names = usual.map(str::to_owned);
    for (name, key) in names.iter_mut().zip(keys) {
        // A token is a string, or an object with the string and its matching rules.
        let given = named(declared, key).and_then(|value| value.as_str().or_else(|| value.get("content")?.as_str()));
        if let Some(given) = given {
            given.clone_into(name);
        }
    }
    names
}

/// Returns a setting that is not null, of the first file that has it.
fn named<'a>(declared: &'a [Map<String, Value>], key: &str) -> Option<&'a Value> {
    declared.iter().find_map(|settings| settings.get(key).filter(|value| !value.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TextTokenizer;
    use proptest::prelude::*;

    const TEXTS: [&str; 8] = [
        "",
        "Printing, in 1450.",
        "  Đường đi 道路 🙂\n\n",
        "don't  it's\u{200b}",
        "a\tb—c [MASK] d",
        "ẞ\u{301}e naïve",
        "<mask>x <mask> y</s>",
        "supercalifragilisticexpialidocious\u{0}\u{fffd}",
    ];

    fn files(of: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        of.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    fn read(files: &BTreeMap<String, Vec<u8>>, declared: Value, model_type: TextModelType) -> TextTokenizer {
        let declared = [serde_json::from_value(declared).expect("an object")];
        let bytes = of_files(files, &declared, model_type).expect("a vocabulary").expect("whole");
        TextTokenizer::from_bytes(bytes, &declared).expect("a tokenizer")
    }

    /// Holds a tokenizer that is made of the parts of a model's against the model's own.
    fn compare_with_whole(model: &str, parts: &[&str], model_type: TextModelType) {
        let Some(dir) = undertone_testing::shared(model) else { return };
        let bytes = |name: &str| std::fs::read(dir.join(name)).expect(name);
        let whole = TextTokenizer::from_bytes(bytes("tokenizer.json"), &[]).expect("a tokenizer");
        let parts = parts.iter().map(|name| ((*name).to_owned(), bytes(name))).collect();
        let parts = read(&parts, json!({}), model_type);
        assert_eq!((parts.vocab_size(), parts.cls(), parts.pad()), (whole.vocab_size(), whole.cls(), whole.pad()));
        for first in TEXTS {
            for second in TEXTS {
                let of = |tokenizer: &TextTokenizer| {
                    let encoding = tokenizer.inner().encode((first, second), true).expect("encoded");
                    let alone = tokenizer.inner().encode(first, true).expect("encoded");
                    (encoding.get_ids().to_vec(), encoding.get_offsets().to_vec(), alone.get_ids().to_vec())
                };
                assert_eq!(of(&parts), of(&whole), "{first:?} {second:?}");
            }
        }
        let ids = whole.inner().encode(TEXTS[1], true).expect("encoded").get_ids().to_vec();
        assert_eq!(parts.decode(&ids), whole.decode(&ids));
    }

    #[test]
    fn the_parts_of_bert_and_roberta_give_the_ids_of_the_whole() {
        compare_with_whole("models/minilm-l6", &["vocab.txt"], TextModelType::Bert);
        compare_with_whole("models/roberta-base-tokenizer", &["vocab.json", "merges.txt"], TextModelType::Roberta);
    }

    #[test]
    fn settings_of_the_tokenizer_are_followed() {
        let parts = files(&[("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nDog\ndog\n##s\n<n>\n")]);
        let ids = |declared: Value, text: &str| {
            let tokenizer = read(&parts, declared, TextModelType::Bert);
            tokenizer.inner().encode(text, true).expect("encoded").get_ids().to_vec()
        };
        assert_eq!(ids(json!({}), "Dogs"), [2, 5, 6, 3]);
        assert_eq!(ids(json!({"do_lower_case": false}), "Dogs"), [2, 4, 6, 3]);
        assert_eq!(ids(json!({"unk_token": "<n>", "mask_token": null}), "cat"), [2, 7, 3]);

        let vocab = r#"{"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3, "b": 4, "ab": 5, "Ġ": 6, "Ġab": 7}"#;
        let parts = [
            ("vocab.json", vocab),
            ("merges.txt", "#version: 0.2\na b\nĠ ab\n"),
            ("added_tokens.json", r#"{"[E]": 8}"#),
        ];
        let parts = files(&parts);
        let ids = |declared: Value, text: &str| {
            let tokenizer = read(&parts, declared, TextModelType::Roberta);
            tokenizer.inner().encode(text, true).expect("encoded").get_ids().to_vec()
        };
        assert_eq!(ids(json!({}), "ab ab[E]"), [0, 5, 7, 8, 2]);
        assert_eq!(ids(json!({"add_prefix_space": true}), "ab"), [0, 7, 2]);
        assert!(of_files(&parts, &[], TextModelType::Bert).is_none(), "no vocab.txt");
    }

    proptest! {
        #[test]
        fn any_parts_are_a_vocabulary_or_refused(vocab in "\\PC{0,40}", merges in "\\PC{0,40}", added in "\\PC{0,40}") {
            let parts = files(&[("vocab.txt", &vocab), ("vocab.json", &vocab), ("merges.txt", &merges), ("added_tokens.json", &added)]);
            for model_type in [TextModelType::Bert, TextModelType::Roberta] {
                let _ = of_files(&parts, &[], model_type).expect("a vocabulary").map(|bytes| TextTokenizer::from_bytes(bytes, &[]));
            }
        }
    }
}
