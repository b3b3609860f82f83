//! Tables of characters (`precompiled_charsmap`) in SentencePiece's format: the size of a tree in bytes (32 bits,
//! little-endian), the tree (units of 32 bits), and zero-terminated texts, to which leaves of the tree refer.

use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use tokenizers::normalizers::Precompiled;

/// Parses every table, at any depth, and traverses it, because the library does not check its numbers.
///
/// # Errors
/// Describes the error of the first invalid table.
pub fn check_all(json: &Value) -> Result<(), String> {
    match json {
        Value::Object(fields) => {
            if fields.contains_key("precompiled_charsmap") || json["type"] == "Precompiled" {
                Table::read(json).ok_or("it is not a table of characters")?.check()?;
                Precompiled::deserialize(json).map_err(|e| e.to_string())?;
            }
            fields.values().try_for_each(check_all)
        }
        Value::Array(values) => values.iter().try_for_each(check_all),
        _ => Ok(()),
    }
}

/// Number of characters of the longest replacement text.
pub fn longest(step: &Value) -> u64 {
    let longest = |table: Table| table.texts.split('\0').map(|text| text.chars().count()).max();
    Table::read(step).and_then(longest).unwrap_or(0).max(1) as u64
}

struct Table {
    tree: Vec<Unit>,
    texts: String,
}

impl Table {
    fn read(step: &Value) -> Option<Self> {
        let bytes = base64(step["precompiled_charsmap"].as_str()?)?;
        let (length, rest) = bytes.split_first_chunk()?;
        let (tree, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize / 4 * 4)?;
        let tree = tree.as_chunks().0.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
        Some(Self { tree, texts: String::from_utf8(texts.to_vec()).ok()? })
    }

    /// Visits all nodes that bytes of a text can reach.
    fn check(&self) -> Result<(), String> {
        let outside = || "its tree leads out of it".to_owned();
        let root = self.tree.first().ok_or_else(outside)?.offset();
        let (mut open, mut seen) = (vec![root], HashSet::from([root]));
        while let Some(node) = open.pop() {
            for byte in 1..=u8::MAX {
                let at = node ^ usize::from(byte);
                let unit = self.tree.get(at).ok_or_else(outside)?;
                if unit.label() != u32::from(byte) {
                    continue;
                }
                let next = at ^ unit.offset();
                if unit.has_leaf() {
                    let text = self.tree.get(next).ok_or_else(outside)?.value();
                    self.texts.get(text..).ok_or("its tree names a text that is not there")?;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        Ok(())
    }
}

/// Unit of the tree, a double array as in Darts-clone.
struct Unit(u32);

impl Unit {
    fn has_leaf(&self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(&self) -> usize {
        (self.0 & ((1 << 31) - 1)) as usize
    }

    fn label(&self) -> u32 {
        self.0 & (1 << 31 | 0xff)
    }

    fn offset(&self) -> usize {
        (self.0 as usize >> 10) << ((self.0 & 1 << 9) >> 6)
    }
}

/// Decodes base64 (RFC 4648).
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.chunks(4) {
        let mut bits = 0;
        for character in four {
            let digit = match character {
                b'A'..=b'Z' => character - b'A',
                b'a'..=b'z' => character - b'a' + 26,
                b'0'..=b'9' => character - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        let count = four.len() * 6 / 8;
        bits <<= 24 - four.len() * 6;
        bytes.extend(&bits.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}
