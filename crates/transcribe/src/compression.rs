//! Compression ratio of a text, which shows whether it repeats itself.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// Ratio above which a text counts as one that repeats itself: the threshold of OpenAI's `transcribe`.
pub const REPETITIVE: f64 = 2.4;

/// Returns the size of a text divided by its size when compressed by zlib; 0 for an empty text.
pub fn compression_ratio(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Memory takes everything.
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
    text.len() as f64 / compressed.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::compression_ratio;

    #[test]
    fn what_repeats_itself_compresses_well() {
        assert!(compression_ratio("And so my fellow Americans, ask not what your country can do for you.") < 1.2);
        assert!(compression_ratio(&"thank you ".repeat(30)) > 5.0);
        assert_eq!(compression_ratio(""), 0.0);
    }
}
