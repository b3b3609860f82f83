//! The files that older programs write in place of a `tokenizer.json`.

use serde_json::{Map, Value, json};

/// Reads a JSON object; the error names the file.
pub(crate) fn object(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("`{name}` is not a JSON object: {e}"))
}

/// Reads the pairs of a `merges.txt`.
pub(crate) fn merges(bytes: &[u8]) -> Result<Value, String> {
    let merges = std::str::from_utf8(bytes).map_err(|e| format!("`merges.txt` is not text: {e}"))?;
    let pairs: Vec<[&str; 2]> = merges.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| [a, b]).collect();
    // The first line is `#version: 0.2`.
    Ok(json!(pairs.strip_prefix(&[["#version:", "0.2"]]).unwrap_or(&pairs)))
}

/// Returns a token beside the vocabulary's own, which is found before a text is split.
pub(crate) fn added_token(id: u64, token: &str, special: bool) -> Value {
    json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": special})
}
