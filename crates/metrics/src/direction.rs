//! Directions of metrics.

use serde::{Deserialize, Serialize};

/// Direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Lower is better: errors and losses.
    Lower,
    /// Higher is better: accuracies and scores.
    Higher,
}

impl Direction {
    /// Returns `value`, negated if necessary so that lower is better.
    pub fn as_cost(self, value: f64) -> f64 {
        match self {
            Self::Lower => value,
            Self::Higher => -value,
        }
    }

    /// Whether `value` is better than `other`; false for equal values and for NaN.
    pub fn is_better(self, value: f64, other: f64) -> bool {
        self.as_cost(value) < self.as_cost(other)
    }

    /// Returns an arrow, for tables.
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
    fn better_is_as_the_direction_says() {
        for (direction, better, worse) in [(Direction::Lower, 0.1, 0.2), (Direction::Higher, 0.2, 0.1)] {
            assert!(direction.is_better(better, worse) && !direction.is_better(worse, better));
            assert!(!direction.is_better(better, better) && !direction.is_better(f64::NAN, worse));
        }
    }
}
