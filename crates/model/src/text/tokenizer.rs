//! Tokenizer of a text encoder: WordPiece or byte-level BPE, and the special tokens around a text.

use crate::tokenizer_file;
use serde_json::{Map, Value};
use tokenizers::Tokenizer;

/// A `tokenizer.json` with the special tokens of an encoder.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    inner: Tokenizer,
    bytes: Vec<u8>,
    cls: u32,
    sep: u32,
    pad: u32,
    mask: Option<u32>,
}

/// Reason why a file is not an encoder's tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextTokenizerError {
    /// The file is not a `tokenizer.json`.
    #[error("not a tokenizer.json: {0}")]
    Format(String),
    /// A special token is not in the vocabulary.
    #[error("the vocabulary has no `{token}`, which should be its {role}: name another in tokenizer_config.json")]
    NoToken {
        /// Role of the token, as tokenizer_config.json names it.
        role: &'static str,
        /// The token, or its usual names.
        token: String,
    },
}

/// Role of a special token: the keys that name it, and its usual names.
type Role = ([&'static str; 2], [&'static str; 2]);

const CLS: Role = (["cls_token", "bos_token"], ["[CLS]", "<s>"]);
const SEP: Role = (["sep_token", "eos_token"], ["[SEP]", "</s>"]);
const PAD: Role = (["pad_token", "pad_token"], ["[PAD]", "<pad>"]);
const MASK: Role = (["mask_token", "mask_token"], ["[MASK]", "<mask>"]);

impl TextTokenizer {
    /// Reads a `tokenizer.json`. Special tokens are those that `declared` names (`tokenizer_config.json`,
    /// `special_tokens_map.json`; the first that has one wins), or those with the names of BERT or RoBERTa.
    ///
    /// The file's truncation and padding settings are ignored: they are those of its last user. Use the model's
    /// [`max_tokens`](super::TextEncoder::max_tokens) and your batch instead.
    ///
    /// # Errors
    /// When the file is not a tokenizer, or lacks a token that starts, ends or pads a text.
    pub fn from_bytes(bytes: Vec<u8>, declared: &[Map<String, Value>]) -> Result<Self, TextTokenizerError> {
        let inner = tokenizer_file::read(&bytes).map_err(TextTokenizerError::Format)?;
        let required = |role: Role| {
            let missing = || TextTokenizerError::NoToken { role: role.0[0], token: role.1.join("` or `") };
            find(&inner, declared, role)?.ok_or_else(missing)
        };
        let (cls, sep, pad) = (required(CLS)?, required(SEP)?, required(PAD)?);
        let mask = find(&inner, declared, MASK)?;
        Ok(Self { inner, bytes, cls, sep, pad, mask })
    }

    /// The tokenizer itself, which neither truncates nor pads.
    pub fn inner(&self) -> &Tokenizer {
        &self.inner
    }

    /// Returns the file that this tokenizer was read from.
    pub fn to_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Vocabulary size: one more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Token before a text: `[CLS]` or `<s>`.
    pub fn cls(&self) -> u32 {
        self.cls
    }

    /// Token after a text: `[SEP]` or `</s>`.
    pub fn sep(&self) -> u32 {
        self.sep
    }

    /// Padding token: `[PAD]` or `<pad>`.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// Mask token, if there is one: `[MASK]` or `<mask>`.
    pub fn mask(&self) -> Option<u32> {
        self.mask
    }

    /// Returns the text of `ids` without special tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        let special = [Some(self.cls), Some(self.sep), Some(self.pad), self.mask];
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !special.contains(&Some(*id))).collect();
        self.inner.decode(&ids, true).unwrap_or_default()
    }
}

/// Returns the id of a special token; `None` if it is not declared and no usual name is in the vocabulary.
fn find(
    tokenizer: &Tokenizer,
    declared: &[Map<String, Value>],
    (keys, names): Role,
) -> Result<Option<u32>, TextTokenizerError> {
    // A token is a string, or an object with the string and its matching rules.
    let content = |value: &Value| value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned);
    let named = keys.iter().find_map(|key| declared.iter().find_map(|json| content(json.get(*key)?)));
    match named {
        Some(token) => match tokenizer.token_to_id(&token) {
            Some(id) => Ok(Some(id)),
            None => Err(TextTokenizerError::NoToken { role: keys[0], token }),
        },
        None => Ok(names.iter().find_map(|name| tokenizer.token_to_id(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A WordPiece vocabulary of the given words, none of them marked as special.
    fn file(words: &[&str]) -> Vec<u8> {
        let vocab: Map<String, Value> = words.iter().enumerate().map(|(i, w)| ((*w).to_owned(), i.into())).collect();
        let file = json!({
            "version": "1.0", "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
            "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
            "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                        "pad_type_id": 0, "pad_token": "x"},
            "added_tokens": [], "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 9, "vocab": vocab},
        });
        file.to_string().into_bytes()
    }

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn special_tokens_have_declared_or_usual_names() {
        let bytes = file(&["?", "<s>", "</s>", "<pad>", "begin", "dog", "##s"]);
        let usual = TextTokenizer::from_bytes(bytes.clone(), &[]).expect("a tokenizer");
        assert_eq!((usual.cls(), usual.sep(), usual.pad(), usual.mask(), usual.vocab_size()), (1, 2, 3, None, 7));
        let declared = [object(json!({"pad_token": null, "bos_token": {"content": "begin", "special": true}}))];
        let declared = TextTokenizer::from_bytes(bytes, &declared).expect("a tokenizer");
        assert_eq!((declared.cls(), declared.sep(), declared.pad()), (4, 2, 3));
        assert_eq!(declared.decode(&[4, 5, 6, 2, 3]), "dogs");
        assert_eq!(usual.decode(&[4, 5, 6, 2, 3]), "begin dogs");
    }

    #[test]
    fn a_missing_special_token_is_named() {
        let refusal = |words: &[&str], declared: Value| {
            TextTokenizer::from_bytes(file(words), &[object(declared)]).expect_err("refused").to_string()
        };
        let error = refusal(&["?", "<s>", "<pad>"], json!({}));
        assert!(error.contains("sep_token") && error.contains("`[SEP]` or `</s>`"), "{error}");
        let error = refusal(&["?", "<s>", "</s>"], json!({}));
        assert!(error.contains("pad_token") && error.contains("`[PAD]` or `<pad>`"), "{error}");
        let error = refusal(&["?", "<s>", "</s>", "<pad>"], json!({"mask_token": "<m>"}));
        assert!(error.contains("mask_token") && error.contains("`<m>`"), "{error}");
        assert!(matches!(TextTokenizer::from_bytes(b"{}".to_vec(), &[]), Err(TextTokenizerError::Format(_))));
    }

    #[test]
    fn the_files_truncation_and_padding_are_set_aside_and_kept() {
        let bytes = file(&["?", "<s>", "</s>", "<pad>", "dog"]);
        let tokenizer = TextTokenizer::from_bytes(bytes.clone(), &[]).expect("a tokenizer");
        let encoding = tokenizer.inner().encode("dog dog dog cat", true).expect("encoded");
        assert_eq!(encoding.get_ids(), [4, 4, 4, 0]);
        assert_eq!(tokenizer.to_bytes(), bytes);
    }
}
