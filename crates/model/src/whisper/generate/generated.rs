//! Generated sequences.

/// Sequence that a decoder generated, with its probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Tokens after the prompt, without the end token.
    pub tokens: Vec<u32>,
    /// Natural logarithm of the model's own probability of each token, before tokens are suppressed.
    pub log_probs: Vec<f32>,
    /// Sum of the log probabilities among the tokens that were allowed, the end token's included.
    pub total: f64,
    /// Probability of no speech, if it was asked for.
    pub no_speech: Option<f32>,
}

impl Generated {
    /// Mean log probability of the tokens and the end token.
    pub fn mean_log_prob(&self) -> f64 {
        self.total / (self.tokens.len() + 1) as f64
    }
}
