//! A task's metrics over an evaluation set.

use undertone_train::metrics::{ErrorRate, cer, wer};

/// Counts for the metrics of a task that writes text.
#[derive(Clone, Debug, Default)]
pub(super) struct TextScore {
    characters: ErrorRate,
    words: ErrorRate,
    exact: usize,
    samples: usize,
}

impl TextScore {
    pub fn add(&mut self, reference: &str, hypothesis: &str) {
        self.characters += cer(reference, hypothesis);
        self.words += wer(reference, hypothesis);
        self.exact += usize::from(reference == hypothesis);
        self.samples += 1;
    }

    /// The value of a metric: `cer` and `wer` are errors, `exact` is the share of texts without any.
    pub fn metric(&self, name: &str) -> f64 {
        match name {
            "cer" => self.characters.rate().unwrap_or(f64::NAN),
            "wer" => self.words.rate().unwrap_or(f64::NAN),
            _ => self.exact as f64 / self.samples as f64,
        }
    }

    /// The metric as an error: lower is better.
    pub fn error(&self, name: &str) -> f64 {
        if name == "exact" { 1.0 - self.metric(name) } else { self.metric(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_lower_when_better() {
        let mut score = TextScore::default();
        score.add("CQ DX", "CQ DX");
        score.add("ABCDE", "ABCDX");
        assert_eq!((score.metric("cer"), score.metric("wer"), score.metric("exact")), (0.1, 1.0 / 3.0, 0.5));
        assert_eq!((score.error("cer"), score.error("exact")), (0.1, 0.5));
    }
}
