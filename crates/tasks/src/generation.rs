//! Decoding settings of a task.

use serde::{Deserialize, Serialize};
use undertone_model::whisper::GenerateOptions;

/// Decoding settings of a task's answers, with transformers' keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GenerationSettings {
    /// Maximum number of tokens of an answer; by default as many as the decoder has positions for.
    pub max_new_tokens: Option<usize>,
    /// Number of beams; 1 is greedy decoding.
    pub num_beams: usize,
    /// Exponent of the length by which a hypothesis' log probability is divided; for several beams.
    pub length_penalty: f64,
    /// Size of n-grams that must not repeat; 0 allows all repetitions.
    pub no_repeat_ngram_size: usize,
}

impl Default for GenerationSettings {
    fn default() -> Self {
        Self { max_new_tokens: None, num_beams: 1, length_penalty: 1.0, no_repeat_ngram_size: 0 }
    }
}

impl GenerationSettings {
    /// Returns settings for answers of any of several tasks: the longest answer that one of them allows, and the other settings where
    /// all agree.
    pub fn common(tasks: impl IntoIterator<Item = Self>) -> Self {
        let usual = Self::default();
        let join = |a: Self, b: Self| Self {
            max_new_tokens: a.max_new_tokens.zip(b.max_new_tokens).map(|(a, b)| a.max(b)),
            num_beams: if a.num_beams == b.num_beams { a.num_beams } else { usual.num_beams },
            length_penalty: if a.length_penalty == b.length_penalty { a.length_penalty } else { usual.length_penalty },
            no_repeat_ngram_size: match a.no_repeat_ngram_size == b.no_repeat_ngram_size {
                true => a.no_repeat_ngram_size,
                false => usual.no_repeat_ngram_size,
            },
        };
        tasks.into_iter().reduce(join).unwrap_or_default()
    }

    /// Applies these settings to `options`, for a decoder with `positions` positions and prompts of `prompt` tokens.
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
