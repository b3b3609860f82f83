//! Keys of the cache's entries.

/// Key of an entry: a BLAKE3 hash of everything that its value depends on.
///
/// That is the sample's content (the bytes of its file and the segment, or the synthesiser's settings and the sample's
/// number), the kind of data that is kept, and the settings it was computed with. The cache does not notice changes of
/// anything that is not in the key.
///
/// ```
/// use undertone_data::cache::Key;
///
/// let settings = br#"{"bins":80}"#;
/// assert_eq!(Key::new(&[b"features", settings, b"content"]), Key::new(&[b"features", settings, b"content"]));
/// // Parts are not simply joined.
/// assert_ne!(Key::new(&[b"ab", b"c"]), Key::new(&[b"a", b"bc"]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

/// Changes whenever the file's layout or the arithmetic behind the values changes. Older entries are then no longer
/// found, and are removed when room is needed.
const VERSION: &str = "undertone sample cache, version 3";

impl Key {
    /// Returns the key of a value that depends on these parts, in this order.
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(VERSION);
        for part in parts {
            // Each part is preceded by its length, so no two lists of parts give the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Returns the key as written in an entry's file.
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the key as written in an entry's path: 64 hexadecimal digits.
    pub(super) fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Parses a key from [`Key::hex`].
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        blake3::Hash::from_hex(hex).ok().map(|hash| Self(hash.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::features::LogMelConfig;

    #[test]
    fn every_part_and_every_boundary_counts() {
        let settings = |bins| serde_json::to_vec(&LogMelConfig { bins }).unwrap();
        let keys = [
            Key::new(&[]),
            Key::new(&[b""]),
            Key::new(&[b"", b""]),
            Key::new(&[b"features", b"clip", &settings(80)]),
            Key::new(&[b"features", b"clip", &settings(128)]),
            Key::new(&[b"features", b"clop", &settings(80)]),
            Key::new(&[b"audio", b"clip", &settings(80)]),
            Key::new(&[b"featuresclip", &settings(80)]),
            Key::new(&[b"clip", b"features", &settings(80)]),
        ];
        assert_eq!(HashSet::from(keys).len(), keys.len());
        assert_eq!(keys[3], Key::new(&[b"features", b"clip", &settings(80)]));
        assert_eq!(Key::from_hex(&keys[3].hex()), Some(keys[3]));
        assert_eq!(Key::from_hex("ab"), None);
    }
}
