//! How a task is scored over an evaluation set.

use crate::{Answer, BoxError, HeadConfig, ScoredText, TaskScore, TextSample};
use undertone_metrics::Direction;

/// The metrics of one task over an evaluation set.
#[derive(Debug)]
pub struct Score {
    head: HeadConfig,
    score: Box<dyn TaskScore>,
}

impl Score {
    /// Nothing scored yet, of a task that is judged by `metrics`.
    pub fn new(head: &HeadConfig, metrics: &[String]) -> Self {
        Self { head: head.clone(), score: head.score(metrics) }
    }

    /// As [`TaskScore::add`].
    ///
    /// # Errors
    /// When the sample is of another kind.
    pub fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        self.score.add(sample, answer)
    }

    /// As [`TaskScore::finish`].
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn finish(&mut self) -> Result<Option<ScoredText>, BoxError> {
        self.score.finish()
    }

    /// The value of a metric, no number where there is none.
    pub fn metric(&self, name: &str) -> f64 {
        self.score.metric(name).unwrap_or(f64::NAN)
    }

    /// The metric as an error: lower is better. A metric of which nobody knows which way it is better makes no error, and
    /// no model is the best by it.
    pub fn error(&self, name: &str) -> f64 {
        let value = self.metric(name);
        if value.is_nan() {
            return self.score.error_of_nothing();
        }
        match self.head.direction(name) {
            Some(Direction::Lower) => value,
            Some(Direction::Higher) => 1.0 - value,
            None => f64::NAN,
        }
    }
}
