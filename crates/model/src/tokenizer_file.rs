//! `tokenizer.json` files.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;
use tokenizers::normalizers::Precompiled;

/// Reads one, or says what is wrong with it. The library that reads it panics at some of what is checked here first: at a
/// decoder that is no JSON, and at a table of characters that is none.
pub(crate) fn read(bytes: &[u8]) -> Result<Tokenizer, String> {
    let json: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    check_tables(&json).map_err(|e| format!("`precompiled_charsmap`: {e}"))?;
    Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())
}

/// Reads every table of characters by itself, wherever one stands among normalizers.
fn check_tables(json: &Value) -> Result<(), serde_json::Error> {
    match json {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "Precompiled") {
                Precompiled::deserialize(json)?;
            }
            fields.values().try_for_each(check_tables)
        }
        Value::Array(values) => values.iter().try_for_each(check_tables),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(normalizer: &Value) -> Vec<u8> {
        let file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 9, "vocab": {"?": 0}},
        });
        file.to_string().into_bytes()
    }

    #[test]
    fn a_file_that_ends_or_breaks_anywhere_is_refused() {
        let whole = file(&Value::Null);
        assert!(read(&whole).is_ok());
        for at in 0..whole.len() {
            assert!(read(&whole[..at]).is_err(), "cut at {at}");
            let mut broken = whole.clone();
            broken[at] = b'\x01';
            assert!(read(&broken).is_err(), "broken at {at}");
        }
    }

    #[test]
    fn a_table_of_characters_that_is_none_is_refused() {
        for table in [json!("AAAA"), json!("?"), json!(3), Value::Null] {
            let table = json!({"type": "Precompiled", "precompiled_charsmap": table});
            for normalizer in [table.clone(), json!({"type": "Sequence", "normalizers": [table]})] {
                let error = read(&file(&normalizer)).expect_err("refused");
                assert!(error.contains("precompiled_charsmap"), "{error}");
            }
        }
    }
}
