//! Compression ratio of a text, which shows whether it repeats itself.

use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
};

/// Ratio above which a text counts as one that repeats itself: the threshold of OpenAI's `transcribe`.
pub const REPETITIVE: f64 = 2.4;

/// zlib's usual level of compression.
const LEVEL: i32 = 6;

/// Returns the size of a text divided by its size when compressed by zlib; 0 for an empty text.
pub fn compression_ratio(text: &str) -> f64 {
    // zlib codes a block as is shorter; this library goes by its length alone, and makes short texts that repeat themselves twice as long.
    let sizes = [CompressionStrategy::Default, CompressionStrategy::Fixed].map(|strategy| compressed(text, strategy));
    text.len() as f64 / sizes.into_iter().min().unwrap_or_default().max(1) as f64
}

/// Returns the size of a text when compressed, with zlib's header.
fn compressed(text: &str, strategy: CompressionStrategy) -> usize {
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(LEVEL, 1, strategy as i32));
    let mut size = 0;
    compress_to_output(&mut compressor, text.as_bytes(), TDEFLFlush::Finish, |part| {
        size += part.len();
        true
    });
    size
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

    #[test]
    fn ratios_are_those_of_zlib() {
        // `len(text.encode()) / len(zlib.compress(text.encode()))` in Python.
        let the = |count: usize| vec!["the"; count].join(" ");
        for (text, compressed) in [
            (the(12), 15),
            (the(16), 15),
            (the(32), 15),
            ("Thank you. ".repeat(5), 22),
            ("the quick brown fox jumps over a lazy dog and the cat sat on mat while it rained in Spain".into(), 80),
        ] {
            assert_eq!(compression_ratio(&text), text.len() as f64 / f64::from(compressed), "{text}");
        }
    }
}
