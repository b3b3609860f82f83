//! Which way a metric is better.

use serde::{Deserialize, Serialize};

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Errors and losses.
    Lower,
    /// Accuracies and scores.
    Higher,
}

/// Metrics by the names that logs call them: those that this project computes, and what it is usual to compute besides.
const KNOWN: [(&str, Direction); 16] = [
    ("cer", Direction::Lower),
    ("wer", Direction::Lower),
    ("loss", Direction::Lower),
    ("error", Direction::Lower),
    ("perplexity", Direction::Lower),
    ("accuracy", Direction::Higher),
    ("routing_accuracy", Direction::Higher),
    ("macro_f1", Direction::Higher),
    ("f1", Direction::Higher),
    ("entity_f1", Direction::Higher),
    ("exact", Direction::Higher),
    ("exact_match", Direction::Higher),
    ("rouge1", Direction::Higher),
    ("rouge2", Direction::Higher),
    ("rouge_l", Direction::Higher),
    ("bleu", Direction::Higher),
];

/// Which way a metric is better, `cer` say, or `task.cer` of one task; nothing for a name that is not known here, for a guess
/// would train models the wrong way.
pub fn direction_of(metric: &str) -> Option<Direction> {
    let name = metric.rsplit('.').next().unwrap_or(metric);
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, direction)| *direction)
}

impl Direction {
    /// `value` turned so that lower is better.
    pub fn as_cost(self, value: f64) -> f64 {
        match self {
            Self::Lower => value,
            Self::Higher => -value,
        }
    }

    /// Whether `value` is better than `other`; of equals and of what is no number, neither is.
    pub fn is_better(self, value: f64, other: f64) -> bool {
        self.as_cost(value) < self.as_cost(other)
    }

    /// As an arrow, for tables.
    pub fn arrow(self) -> &'static str {
        match self {
            Self::Lower => "↓",
            Self::Higher => "↑",
        }
    }

    /// In words, for the axes of pictures and for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lower => "lower is better",
            Self::Higher => "higher is better",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_direction() {
        assert_eq!(direction_of("cer"), Some(Direction::Lower));
        assert_eq!(direction_of("copy-fast.bleu"), Some(Direction::Higher));
        assert_eq!((direction_of("brier"), direction_of(""), direction_of("cer.mine")), (None, None, None));
    }

    #[test]
    fn better_is_as_the_direction_says() {
        for (direction, better, worse) in [(Direction::Lower, 0.1, 0.2), (Direction::Higher, 0.2, 0.1)] {
            assert!(direction.is_better(better, worse) && !direction.is_better(worse, better));
            assert!(!direction.is_better(better, better) && !direction.is_better(f64::NAN, worse));
        }
    }
}
