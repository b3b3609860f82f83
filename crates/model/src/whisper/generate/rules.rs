//! Suppression of tokens.

use super::options::GenerateOptions;
use burn::tensor::{Device, Tensor, TensorData};

/// Suppression rules of the options, ready to be added to scores.
pub(super) struct Rules {
    suppress: Tensor<2>,
    begin_suppress: Tensor<2>,
    no_repeat_ngram: usize,
}

impl Rules {
    pub(super) fn new(options: &GenerateOptions, vocab_size: usize, device: &Device) -> Self {
        Self {
            suppress: mask(std::slice::from_ref(&options.suppress), vocab_size, device),
            begin_suppress: mask(std::slice::from_ref(&options.begin_suppress), vocab_size, device),
            no_repeat_ngram: options.no_repeat_ngram,
        }
    }

    /// Sets to minus infinity the scores of tokens that must not follow the rows' tokens. `scores`: `[rows,
    /// vocab_size]`.
    pub(super) fn apply(&self, scores: Tensor<2>, rows: &[&[u32]], first: bool) -> Tensor<2> {
        let mut scores = scores + self.suppress.clone();
        if first {
            scores = scores + self.begin_suppress.clone();
        }
        if self.no_repeat_ngram > 0 {
            let repeated: Vec<Vec<u32>> = rows.iter().map(|tokens| repeated(tokens, self.no_repeat_ngram)).collect();
            scores = scores + mask(&repeated, self.suppress.dims()[1], &self.suppress.device());
        }
        scores
    }
}

/// Returns `[rows, vocab_size]` with minus infinity at each row's tokens, 0 elsewhere.
fn mask(rows: &[Vec<u32>], vocab_size: usize, device: &Device) -> Tensor<2> {
    let mut mask = vec![0.0_f32; rows.len() * vocab_size];
    for (entries, tokens) in mask.chunks_mut(vocab_size).zip(rows) {
        for id in tokens {
            if let Some(entry) = entries.get_mut(*id as usize) {
                *entry = f32::NEG_INFINITY;
            }
        }
    }
    Tensor::from_data(TensorData::new(mask, [rows.len(), vocab_size]), device)
}

/// Tokens that would repeat a sequence of `n` tokens.
fn repeated(tokens: &[u32], n: usize) -> Vec<u32> {
    let Some(start) = (tokens.len() + 1).checked_sub(n) else { return Vec::new() };
    let latest = &tokens[start..];
    tokens.windows(n).filter(|ngram| ngram[..n - 1] == *latest).map(|ngram| ngram[n - 1]).collect()
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn what_would_repeat_follows_the_same_tokens_before() {
        let tokens = [5, 1, 2, 3, 1, 2, 4, 1, 2];
        assert_eq!(repeated(&tokens, 3), [3, 4]);
        assert_eq!(repeated(&tokens, 2), [3, 4]);
        assert_eq!(repeated(&tokens, 1), tokens);
        assert_eq!(repeated(&tokens, 4), [0_u32; 0]);
        assert_eq!(repeated(&tokens[..2], 4), [0_u32; 0]);
    }
}
