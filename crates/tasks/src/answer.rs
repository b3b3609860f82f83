//! What a model answers, and how answers are scored.

use crate::{BoxError, TextSample};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// What a head answered to a sample: a text, or a value of its kind's own, which says something with its sample only.
#[derive(Clone, Debug)]
pub struct Answer {
    text: String,
    value: Option<Arc<dyn Any + Send + Sync>>,
}

impl Answer {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None }
    }

    /// A value of a kind's own.
    pub fn value<T: Any + Send + Sync>(value: T) -> Self {
        Self { text: String::new(), value: Some(Arc::new(value)) }
    }

    /// The value, if it is of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.value.as_ref()?.downcast_ref()
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        self.value.is_none().then_some(&self.text)
    }

    /// What it says, as far as it says something by itself.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// What should have been said and what was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredText {
    /// What a person would call the sample.
    pub name: String,
    /// What should have been said.
    pub reference: String,
    /// What was.
    pub hypothesis: String,
}

/// What a task's answers have scored so far, in terms of its kind.
pub trait TaskScore: Debug + Send {
    /// Counts the answer to a sample; none, where the router sent it to another task's head, is wrong. What was said may
    /// be known at once, or when more samples have been seen.
    ///
    /// # Errors
    /// When the sample is of another kind.
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError>;

    /// Scores what is still open.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    fn finish(&mut self) -> Result<Option<ScoredText>, BoxError> {
        Ok(None)
    }

    /// The value of one of the kind's metrics, once there is one.
    fn metric(&self, name: &str) -> Option<f64>;

    /// The error where a metric has no value; unless it says that nothing was asked and nothing is wrong, no number.
    fn error_of_nothing(&self) -> f64 {
        f64::NAN
    }
}
