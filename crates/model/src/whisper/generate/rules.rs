//! Rules for the next token: suppression, repetitions, timestamps.

use super::options::{GenerateOptions, TimestampRules};
use burn::tensor::{Device, Tensor, TensorData};
use undertone_ops::log_sum_exp;

/// Rules of the options, ready to be applied to scores.
pub(super) struct Rules {
    options: GenerateOptions,
    prompt_length: usize,
    suppress: Tensor<2>,
    begin_suppress: Tensor<2>,
}

/// Logarithms of the sums of exponentials of a row's logits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// Over all tokens.
    pub all: f32,
    /// Over the tokens that are allowed.
    pub allowed: f32,
}

impl Rules {
    pub(super) fn new(options: &GenerateOptions, prompt_length: usize, vocab_size: usize, device: &Device) -> Self {
        Self {
            suppress: mask(std::slice::from_ref(&options.suppress), vocab_size, device),
            begin_suppress: mask(std::slice::from_ref(&options.begin_suppress), vocab_size, device),
            options: options.clone(),
            prompt_length,
        }
    }

    /// Whether the rules can be applied on the device: those for timestamps depend on the probabilities.
    pub(super) fn fit_device(&self) -> bool {
        self.options.timestamps.is_none()
    }

    /// Sets to minus infinity the scores of tokens that must not follow the rows' tokens, except by the rules for
    /// timestamps. `scores`: `[rows, vocab_size]`.
    pub(super) fn apply(&self, scores: Tensor<2>, rows: &[&[u32]]) -> Tensor<2> {
        let mut scores = scores + self.suppress.clone();
        if rows.first().is_some_and(|tokens| tokens.len() == self.prompt_length) {
            scores = scores + self.begin_suppress.clone();
        }
        if self.options.no_repeat_ngram > 0 {
            let repeated = rows.iter().map(|tokens| repeated(tokens, self.options.no_repeat_ngram)).collect::<Vec<_>>();
            scores = scores + mask(&repeated, self.suppress.dims()[1], &self.suppress.device());
        }
        scores
    }

    /// Sets to minus infinity the logits of tokens that must not follow `tokens`, by all rules.
    pub(super) fn apply_to_row(&self, logits: &mut [f32], tokens: &[u32]) -> Sums {
        let all = log_sum_exp(logits);
        forbid(logits, &self.options.suppress);
        if tokens.len() == self.prompt_length {
            forbid(logits, &self.options.begin_suppress);
        }
        if self.options.no_repeat_ngram > 0 {
            forbid(logits, &repeated(tokens, self.options.no_repeat_ngram));
        }
        match &self.options.timestamps {
            Some(rules) => {
                let start = self.prompt_length.saturating_sub(rules.begun);
                Sums { all, allowed: rules.apply(logits, &tokens[start..], self.options.end) }
            }
            None => Sums { all, allowed: log_sum_exp(logits) },
        }
    }
}

impl TimestampRules {
    /// Sets to minus infinity the logits of tokens that must not follow `tokens`, those of the text. Returns the
    /// logarithm of the sum of the others' exponentials.
    fn apply(self, logits: &mut [f32], tokens: &[u32], end: u32) -> f32 {
        let begin = (self.begin as usize).min(logits.len());
        let is_time = |token: &u32| *token >= self.begin;
        let after_time = tokens.last().is_some_and(is_time);
        let pair_is_complete = tokens.len() < 2 || is_time(&tokens[tokens.len() - 2]);
        if after_time && pair_is_complete {
            logits[begin..].fill(f32::NEG_INFINITY);
        } else if after_time {
            // The end of a pair, or of the sequence.
            let text = (end as usize).min(logits.len());
            logits[..text].fill(f32::NEG_INFINITY);
        }
        if let Some(last) = tokens.iter().rev().find(|token| is_time(token)) {
            // The same time may end one segment and begin the next; a segment has a length.
            let least = if after_time && !pair_is_complete { *last } else { last + 1 };
            let least = (least as usize).min(logits.len());
            logits[begin..least].fill(f32::NEG_INFINITY);
        }
        if tokens.is_empty() {
            logits[..begin].fill(f32::NEG_INFINITY);
            if let Some(most) = self.max_initial {
                let beyond = begin.saturating_add(most as usize + 1).min(logits.len());
                logits[beyond..].fill(f32::NEG_INFINITY);
            }
        }
        let (text, times) = logits.split_at_mut(begin);
        let [any_time, any_text] = [log_sum_exp(times), log_sum_exp(text)];
        if any_time > text.iter().copied().fold(f32::NEG_INFINITY, f32::max) {
            text.fill(f32::NEG_INFINITY);
            return any_time;
        }
        log_sum_exp(&[any_time, any_text])
    }
}

fn forbid(logits: &mut [f32], tokens: &[u32]) {
    for token in tokens {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Returns `[rows, vocab_size]` with minus infinity at each row's tokens, 0 elsewhere.
fn mask(rows: &[Vec<u32>], vocab_size: usize, device: &Device) -> Tensor<2> {
    let mut mask = vec![0.0_f32; rows.len() * vocab_size];
    for (entries, tokens) in mask.chunks_mut(vocab_size).zip(rows) {
        forbid(entries, tokens);
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_would_repeat_follows_the_same_tokens_before() {
        let tokens = [5, 1, 2, 3, 1, 2, 4, 1, 2];
        assert_eq!(repeated(&tokens, 3), [3, 4]);
        assert_eq!(repeated(&tokens, 2), [3, 4]);
        assert_eq!(repeated(&tokens, 1), tokens);
        assert_eq!(repeated(&tokens, 4), [0_u32; 0]);
        assert_eq!(repeated(&tokens[..2], 4), [0_u32; 0]);
    }

    /// Text is 0 to 3, the end 4, a control token 5, times from 6 to 11.
    const RULES: TimestampRules = TimestampRules { begin: 6, max_initial: Some(2), begun: 0 };

    fn allowed(tokens: &[u32], logits: [f32; 12]) -> Vec<u32> {
        let mut logits = logits;
        RULES.apply(&mut logits, tokens, 4);
        (0..12).filter(|token| logits[*token as usize] > f32::NEG_INFINITY).collect()
    }

    /// Logits with which text is more probable than all times together.
    const TEXT: [f32; 12] = [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];

    #[test]
    fn times_come_in_pairs_and_do_not_decrease() {
        assert_eq!(allowed(&[], TEXT), [6, 7, 8], "a transcript begins with a time");
        assert_eq!(allowed(&[7], TEXT), [0, 1, 2, 3, 4, 5], "text follows the first time");
        assert_eq!(allowed(&[7, 1], TEXT), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11], "a segment has a length");
        assert_eq!(allowed(&[7, 1, 9], TEXT), [4, 5, 9, 10, 11], "the next begins, or the transcript ends");
        assert_eq!(allowed(&[7, 1, 9, 9], TEXT), [0, 1, 2, 3, 4, 5]);
        assert_eq!(allowed(&[7, 1, 9, 9, 2], TEXT), [0, 1, 2, 3, 4, 5, 10, 11]);
    }

    #[test]
    fn a_time_is_written_where_times_together_are_more_probable_than_any_text() {
        // Four times of weight 1 each, beside text of weight 3.
        let mut logits = [3.0_f32.ln(), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(allowed(&[7, 1], logits), [8, 9, 10, 11]);
        logits[0] = 5.0_f32.ln();
        assert_eq!(allowed(&[7, 1], logits), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]);
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_tokens_that_are_left(
            logits in prop::array::uniform12(-4.0_f32..4.0),
            tokens in prop::collection::vec(0_u32..12, 0..6),
        ) {
            let mut left = logits;
            let sum = RULES.apply(&mut left, &tokens, 4);
            let exact = left.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            prop_assert!(f64::from(sum) == exact || (f64::from(sum) - exact).abs() < 1e-5, "{sum} is not {exact}");
        }
    }
}
