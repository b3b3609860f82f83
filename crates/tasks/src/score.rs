//! Score of a task over an evaluation set.

use crate::{HeadConfig, TaskScore};
use std::ops::{Deref, DerefMut};
use undertone_metrics::Direction;

/// Metrics of one task over an evaluation set: the [`TaskScore`] of its kind, with values where that may have none.
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

    /// Value of a metric; NaN if there is none.
    pub fn metric(&self, name: &str) -> f64 {
        self.score.metric(name).unwrap_or(f64::NAN)
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

impl Deref for Score {
    type Target = dyn TaskScore;

    fn deref(&self) -> &Self::Target {
        &*self.score
    }
}

impl DerefMut for Score {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.score
    }
}
