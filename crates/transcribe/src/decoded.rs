//! Decoding of one window.

use undertone_model::whisper::Generated;

/// Decoding of a window.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub generated: Generated,
    /// Text of the tokens, without timestamps and surrounding spaces.
    pub text: String,
    pub temperature: f64,
    pub compression_ratio: f64,
}

/// Returns the mean of logarithms; 0 for an empty slice.
pub(crate) fn mean_log(log_probs: &[f32]) -> f64 {
    log_probs.iter().map(|log_prob| f64::from(*log_prob)).sum::<f64>() / log_probs.len().max(1) as f64
}
