//! Answers of a model, and their scores.

use crate::{BoxError, TextSample};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use undertone_metrics::ErrorRate;

/// A head's answer to a sample: a text, or a value of its kind, which is meaningful only together with the sample.
#[derive(Clone, Debug)]
pub struct Answer {
    text: String,
    value: Option<Arc<dyn Any + Send + Sync>>,
    probabilities: Vec<f32>,
}

impl Answer {
    /// Creates a text answer.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, probabilities: Vec::new() }
    }

    /// Creates an answer from a value of the kind.
    pub fn value<T: Any + Send + Sync>(value: T) -> Self {
        Self { text: String::new(), value: Some(Arc::new(value)), probabilities: Vec::new() }
    }

    /// Adds the probabilities of all possible answers, in the order of their kind.
    #[must_use]
    pub fn with_probabilities(self, probabilities: Vec<f32>) -> Self {
        Self { probabilities, ..self }
    }

    /// Returns the probabilities of all possible answers, in the order of their kind; none if they are not known.
    pub fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }

    /// Returns the value, if it is of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.value.as_ref()?.downcast_ref()
    }

    /// Returns the text, if the answer is a text.
    pub fn as_text(&self) -> Option<&str> {
        self.value.is_none().then_some(&self.text)
    }

    /// Returns the answer as text, or an empty text if it is a value of a kind.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Reference and hypothesis of a sample, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredText {
    /// Name of the sample, for display.
    pub name: String,
    /// Reference text.
    pub reference: String,
    /// Hypothesis text.
    pub hypothesis: String,
}

/// Running score of a task's answers, defined by its kind.
pub trait TaskScore: Debug + Send {
    /// Adds the answer to a sample. Without an answer, because the router sent the sample to another task's head, it
    /// counts as wrong. Returns the texts of a scored sample, which may be known only when more samples have been
    /// added.
    ///
    /// # Errors
    /// When the sample is of another kind.
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError>;

    /// Scores the samples that are still pending.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    fn finish(&mut self) -> Result<Option<ScoredText>, BoxError> {
        Ok(None)
    }

    /// Value of one of the kind's metrics, once there is one.
    fn metric(&self, name: &str) -> Option<f64>;

    /// Number of samples that [`metric_of`](Self::metric_of) takes from; 0, which is the default, if the kind cannot
    /// score some of its samples by themselves. Confidence intervals, groups and comparisons need it.
    fn samples(&self) -> usize {
        0
    }

    /// Value of one of the kind's metrics over some of the samples, each as often as it is given: by indices in the order
    /// in which the texts of samples were returned.
    fn metric_of(&self, _name: &str, _samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        None
    }

    /// Alignment of all texts with their references, for a metric that is an error rate; `None` by default.
    fn errors(&self, _name: &str) -> Option<ErrorRate> {
        None
    }

    /// Error if a metric has no value: NaN by default, or 0 where having nothing to score means that nothing is wrong.
    fn error_of_nothing(&self) -> f64 {
        f64::NAN
    }
}
