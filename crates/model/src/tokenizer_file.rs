//! `tokenizer.json` files.

mod growth;
pub(crate) mod parts;
mod patterns;
mod table;
mod template;

use serde_json::Value;
use tokenizers::Tokenizer;

/// Maximum length of a vocabulary entry in bytes; existing ones have some hundred. An answer may consist of many copies
/// of one.
const LONGEST_TOKEN: usize = 8192;

/// Reads a `tokenizer.json`, or describes its error. The library panics at some of the errors that are checked here
/// first, and allocates without limit for files that expand a short text.
///
/// The file's truncation and padding settings are ignored: they are those of its last user.
pub(crate) fn read(bytes: &[u8]) -> Result<Tokenizer, String> {
    let json: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    table::check_all(&json).map_err(|e| format!("`precompiled_charsmap`: {e}"))?;
    patterns::check(&json)?;
    growth::check(&json)?;
    template::check(&json["post_processor"]).map_err(|e| format!("`post_processor`: {e}"))?;
    check_tokens(&json)?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// Rejects a vocabulary with an entry that is too long.
fn check_tokens(json: &Value) -> Result<(), String> {
    let vocabulary = &json["model"]["vocab"];
    // Most vocabularies map words to ids; Unigram's is a list of pairs of a word and its score.
    let words = vocabulary.as_object().into_iter().flat_map(|words| words.keys().map(String::as_str));
    let pairs = vocabulary.as_array().into_iter().flatten().filter_map(|pair| pair[0].as_str());
    let added = json["added_tokens"].as_array().into_iter().flatten().filter_map(|token| token["content"].as_str());
    match words.chain(pairs).chain(added).map(str::len).max() {
        Some(length) if length > LONGEST_TOKEN => {
            Err(format!("a token of the vocabulary has {length} bytes, more than the {LONGEST_TOKEN} of any"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
