//! Samples of text tasks: tokens for the backbone, and what should be answered.

use crate::row::classify_features;
use crate::{Framer, TextError};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use undertone_data::records::RecordsError;

/// One row of tokens, and what should be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSample {
    /// What a person would call it: file and line.
    pub name: String,
    /// Tokens, special ones included.
    pub ids: Vec<u32>,
    /// As many types.
    pub type_ids: Vec<u32>,
    /// What should be answered.
    pub target: Target,
}

/// What should be answered, in terms of the sample's kind of task. Copies share it.
#[derive(Clone, Debug)]
pub struct Target {
    value: Arc<dyn TargetValue>,
    decisions: usize,
    written: usize,
}

/// A sample was given to a kind of task that it is not of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sample of one task was scored as another's")]
pub struct ForeignSample;

/// What can be a target.
trait TargetValue: Any + Debug + Send + Sync {
    fn is_equal(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<T: PartialEq + Debug + Send + Sync + 'static> TargetValue for T {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Target {
    /// `value`, a type of the kind's own, which asks for so many decisions: what a loss over such samples is divided by.
    pub fn new<T: PartialEq + Debug + Send + Sync + 'static>(value: T, decisions: usize) -> Self {
        Self { value: Arc::new(value), decisions, written: 0 }
    }

    /// Nothing that is known: of a text that was typed.
    pub fn unknown() -> Self {
        Self::new((), 0)
    }

    /// With so many tokens that are to be written, special ones included.
    pub fn with_written(self, tokens: usize) -> Self {
        Self { written: tokens, ..self }
    }

    /// The value that it was made of.
    ///
    /// # Errors
    /// When that is of another type: the sample is of another kind of task.
    pub fn get<T: 'static>(&self) -> Result<&T, ForeignSample> {
        (*self.value).as_any().downcast_ref().ok_or(ForeignSample)
    }

    /// How many decisions it asks for: what its loss is divided by.
    pub fn count(&self) -> usize {
        self.decisions
    }

    /// How many tokens are to be written, special ones included; 0 where no text is to be written.
    pub fn written(&self) -> usize {
        self.written
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        (self.decisions, self.written) == (other.decisions, other.written)
            && (*self.value).is_equal((*other.value).as_any())
    }
}

impl TextSample {
    /// A text or a pair of texts that nothing is known of but itself, as a row of at most `length` tokens, and how many
    /// tokens did not fit.
    ///
    /// # Errors
    /// When the length leaves no room for text, or the tokenizer refuses it.
    pub fn plain(
        name: String,
        text: &str,
        pair: Option<&str>,
        length: usize,
        framer: &Framer,
    ) -> Result<(Self, usize), TextError> {
        let row = classify_features(framer, &[(text, pair)], length)?.remove(0);
        Ok((Self { name, ids: row.ids, type_ids: row.type_ids, target: Target::unknown() }, row.cut))
    }
}

/// The samples of a task, in memory.
#[derive(Clone, Debug, Default)]
pub struct TextDataset {
    samples: Vec<TextSample>,
    cut: Cut,
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Inputs that lost tokens.
    pub inputs: usize,
    /// Texts that lost tokens, sentences that lost words, and answers that are whole in no window.
    pub targets: usize,
}

/// Why records do not become samples.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file does not hold what the task needs.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// They do not become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl TextDataset {
    /// Of samples that have been made.
    pub fn new(samples: Vec<TextSample>, cut: Cut) -> Self {
        Self { samples, cut }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// A sample.
    pub fn get(&self, index: usize) -> TextSample {
        self.samples[index].clone()
    }

    /// All of them.
    pub fn samples(&self) -> &[TextSample] {
        &self.samples
    }

    /// A sample with the longest input of all and, where it is text that is to be answered, the longest of those; none of
    /// no samples.
    pub fn most_demanding(&self) -> Option<TextSample> {
        let mut longest = self.samples.iter().max_by_key(|sample| sample.ids.len())?.clone();
        let written = |sample: &TextSample| sample.target.written();
        if let Some(wordy) = self.samples.iter().max_by_key(|sample| written(sample)).filter(|s| written(s) > 0) {
            longest.target = wordy.target.clone();
        }
        Some(longest)
    }

    /// What did not fit.
    pub fn cut(&self) -> Cut {
        self.cut
    }
}
