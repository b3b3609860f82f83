//! Options of decoding.

/// Options of [`WhisperDecoder::generate`](super::super::WhisperDecoder::generate).
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Token that ends a sequence.
    pub end: u32,
    /// Maximum number of tokens of a sequence, prompt included; at most the decoder's positions.
    pub max_length: usize,
    /// Tokens that are never generated.
    pub suppress: Vec<u32>,
    /// Tokens that are never generated first.
    pub begin_suppress: Vec<u32>,
    /// Size of n-grams that must not repeat in prompt and output together; 0 allows all repetitions.
    pub no_repeat_ngram: usize,
    /// Number of beams per sample; up to 1 is greedy decoding.
    pub beams: usize,
    /// Exponent of a finished hypothesis' length, end token included, by which its log probability is divided: above 0
    /// favours long outputs, below 0 short ones. Greedy decoding ignores it.
    pub length_penalty: f64,
    /// Whether the search ends as soon as `beams` hypotheses are finished. Otherwise it continues while the best
    /// running hypothesis, with the penalty of its present length, scores higher than the worst finished one.
    pub early_stopping: bool,
}

impl GenerateOptions {
    /// Greedy decoding without suppressed tokens; the other values are the defaults of transformers.
    pub fn new(end: u32, max_length: usize) -> Self {
        Self {
            end,
            max_length,
            suppress: Vec::new(),
            begin_suppress: Vec::new(),
            no_repeat_ngram: 0,
            beams: 1,
            length_penalty: 1.0,
            early_stopping: false,
        }
    }
}
