//! Tables of characters (`precompiled_charsmap`) in SentencePiece's format: the size of a tree in bytes (32 bits,
//! little-endian), the tree (units of 32 bits), and zero-terminated texts, to which leaves of the tree refer.

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
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
        // The library reads texts with and without padding.
        let text = step["precompiled_charsmap"].as_str()?.trim_end_matches('=');
        let bytes = BASE64_STANDARD_NO_PAD.decode(text).ok()?;
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
