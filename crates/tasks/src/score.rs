//! Score of a task over an evaluation set.

use crate::{Answer, BoxError, HeadConfig, ScoredText, TaskScore, TextSample};
use undertone_metrics::{Direction, ErrorRate, Interval, bootstrap};

/// Metrics of one task over an evaluation set.
#[derive(Debug)]
pub struct Score {
    head: HeadConfig,
    score: Box<dyn TaskScore>,
}

impl Score {
    /// Creates an empty score of a task that is evaluated by `metrics`.
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

    /// Value of a metric; NaN if there is none.
    pub fn metric(&self, name: &str) -> f64 {
        self.score.metric(name).unwrap_or(f64::NAN)
    }

    /// As [`TaskScore::samples`].
    pub fn samples(&self) -> usize {
        self.score.samples()
    }

    /// As [`TaskScore::metric_of`].
    pub fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        self.score.metric_of(name, samples)
    }

    /// As [`TaskScore::errors`].
    pub fn errors(&self, name: &str) -> Option<ErrorRate> {
        self.score.errors(name)
    }

    /// Confidence interval of a metric; `None` if it has no value, there are fewer than two samples, or its kind of task
    /// cannot score some samples by themselves.
    pub fn interval(&self, name: &str) -> Option<Interval> {
        self.score.metric(name)?;
        bootstrap(self.samples(), |drawn| self.metric_of(name, drawn))
    }

    /// Returns the metric as an error, where lower is better. A metric of unknown direction gives NaN, so it selects no
    /// best model.
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
