//! `tokenizer.json` files.

mod growth;
mod patterns;
mod table;
mod template;

use serde_json::Value;
use tokenizers::Tokenizer;

/// The longest entry of a vocabulary, in bytes: those there are have some hundred. An answer may be made of many of one.
const LONGEST_TOKEN: usize = 8192;

/// Reads one, or says what is wrong with it. The library that reads it panics at some of what is checked here first, and
/// takes any memory for what makes much out of little text.
///
/// The file's own truncation and padding are set aside, as its last user left them there.
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

/// Refuses a vocabulary with an entry that is no token.
fn check_tokens(json: &Value) -> Result<(), String> {
    let vocabulary = &json["model"]["vocab"];
    // Most have words with their ids, Unigram's has pairs of a word and its score.
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
