//! How answers are decoded.

use serde::{Deserialize, Serialize};
use undertone_model::whisper::GenerateOptions;

/// How a task's answers are decoded, in transformers' words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerationSettings {
    /// The most tokens an answer may have; as many as the decoder has positions for, if not given.
    pub max_new_tokens: Option<usize>,
    /// Hypotheses that are followed; 1 is greedy decoding.
    pub num_beams: usize,
    /// The exponent of its length that a hypothesis' log probability is divided by; for beams.
    pub length_penalty: f64,
    /// No sequence of so many tokens comes twice; 0 allows all.
    pub no_repeat_ngram_size: usize,
}

impl Default for GenerationSettings {
    fn default() -> Self {
        Self { max_new_tokens: None, num_beams: 1, length_penalty: 1.0, no_repeat_ngram_size: 0 }
    }
}

impl GenerationSettings {
    /// `options` with what a task changes, for a decoder with so many positions and prompts of so many tokens.
    pub fn applied(&self, options: GenerateOptions, positions: usize, prompt: usize) -> GenerateOptions {
        GenerateOptions {
            max_length: self.max_new_tokens.map_or(positions, |tokens| prompt.saturating_add(tokens).min(positions)),
            beams: self.num_beams,
            length_penalty: self.length_penalty,
            no_repeat_ngram: self.no_repeat_ngram_size,
            ..options
        }
    }
}
