//! How decoding is done, as a user writes it.

/// How [`WhisperDecoder::generate`](super::super::WhisperDecoder::generate) decodes.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// The token that ends a sequence.
    pub end: u32,
    /// The most tokens a sequence may have, prompt included; never more than the decoder's positions.
    pub max_length: usize,
    /// Tokens never generated.
    pub suppress: Vec<u32>,
    /// Tokens never generated first.
    pub begin_suppress: Vec<u32>,
    /// No sequence of so many tokens comes twice in prompt and output together; 0 allows all.
    pub no_repeat_ngram: usize,
    /// How many hypotheses of each sample are followed; up to 1 is greedy decoding.
    pub beams: usize,
    /// The exponent of a finished hypothesis' length, its end token counted, that its log probability is divided by:
    /// above 0 favours long outputs, below 0 short ones. Greedy decoding has no use for it.
    pub length_penalty: f64,
    /// Whether the search ends as soon as `beams` hypotheses are finished. Otherwise it goes on while the best that runs,
    /// divided by the penalty of its present length, is above the worst of the finished ones.
    pub early_stopping: bool,
}

impl GenerateOptions {
    /// Greedy decoding that may say anything; the other values are those of transformers.
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
