//! Samples of text tasks: tokens for the backbone, and targets.

use crate::row::classify_features;
use crate::{Framer, TextError};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use undertone_data::records::{Origin, RecordsError};
use undertone_model::word_counts::PAIR;

/// One row of tokens with its target.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSample {
    /// Name for display: file and line.
    pub name: String,
    /// Text that it was made from, of a pair both with [`PAIR`] between. The windows of a context share it.
    pub text: Arc<str>,
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// Token type of each token.
    pub type_ids: Vec<u32>,
    /// Target.
    pub target: Target,
}

/// A record of a task: a text or a pair of texts, and the target.
#[derive(Clone, Debug)]
pub struct TaskRecord {
    /// Text.
    pub text: String,
    /// Second text, for tasks on pairs.
    pub pair: Option<String>,
    /// Target.
    pub target: Target,
    /// Origin of the record.
    pub origin: Origin,
}

/// Target of a sample, a value of its kind of task. Clones share it.
#[derive(Clone, Debug)]
pub struct Target {
    value: Arc<dyn TargetValue>,
    decisions: usize,
    written: usize,
}

/// A sample was passed to another kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sample of one task was scored as another's")]
pub struct ForeignSample;

/// Requirements on a target's type.
trait TargetValue: Any + Debug + Send + Sync {
    fn is_equal(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + Debug + Send + Sync + 'static> TargetValue for T {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
}

impl Target {
    /// Creates a target from `value`, of a type of the kind, with the number of its decisions, by which losses over
    /// such samples are divided.
    pub fn new<T: PartialEq + Debug + Send + Sync + 'static>(value: T, decisions: usize) -> Self {
        Self { value: Arc::new(value), decisions, written: 0 }
    }

    /// Creates an empty target, for user input.
    pub fn unknown() -> Self {
        Self::new((), 0)
    }

    /// Sets the number of tokens that are to be written, special ones included.
    pub fn with_written(self, tokens: usize) -> Self {
        Self { written: tokens, ..self }
    }

    /// Returns the value that it was created from.
    ///
    /// # Errors
    /// When the value is of another type: the sample belongs to another kind of task.
    pub fn get<T: 'static>(&self) -> Result<&T, ForeignSample> {
        (&*self.value as &dyn Any).downcast_ref().ok_or(ForeignSample)
    }

    /// Number of decisions: the divisor of its loss.
    pub fn count(&self) -> usize {
        self.decisions
    }

    /// Number of tokens to be written, special ones included; 0 if no text is to be written.
    pub fn written(&self) -> usize {
        self.written
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        (self.decisions, self.written) == (other.decisions, other.written) && (*self.value).is_equal(&*other.value)
    }
}

impl TaskRecord {
    /// Creates a record of one text.
    pub fn new(text: impl Into<String>, target: Target, origin: Origin) -> Self {
        Self { text: text.into(), pair: None, target, origin }
    }
}

/// Returns the text of a sample: a text, or those of a pair with [`PAIR`] between.
pub(crate) fn joined(text: &str, pair: Option<&str>) -> Arc<str> {
    pair.map_or_else(|| text.into(), |pair| format!("{text}{PAIR}{pair}").into())
}

impl TextSample {
    /// Makes a row of at most `length` tokens from a text or a pair without a target, and returns it with the number of
    /// tokens that did not fit.
    ///
    /// # Errors
    /// When the length leaves no room for text, or the tokenizer rejects it.
    pub fn plain(
        name: String,
        text: &str,
        pair: Option<&str>,
        length: usize,
        framer: &Framer,
    ) -> Result<(Self, usize), TextError> {
        let row = classify_features(framer, &[(text, pair)], length)?.remove(0);
        let text = joined(text, pair);
        Ok((Self { name, text, ids: row.ids, type_ids: row.type_ids, target: Target::unknown() }, row.cut))
    }
}

/// The samples of a task, in memory.
#[derive(Clone, Debug, Default)]
pub struct TextDataset {
    samples: Vec<TextSample>,
    cut: Cut,
    columns: BTreeMap<String, Columns>,
}

/// Values of columns, by name.
pub type Columns = BTreeMap<String, String>;

/// Counts of truncated samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of inputs that lost tokens.
    pub inputs: usize,
    /// Number of texts that lost tokens, of sentences that lost words, and of answers that are whole in no window.
    pub targets: usize,
}

/// Reason why records do not become samples.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file lacks data that the task needs.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The tokenizer failed.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl TextDataset {
    /// Creates a data set from samples.
    pub fn new(samples: Vec<TextSample>, cut: Cut) -> Self {
        Self { samples, cut, columns: BTreeMap::new() }
    }

    /// Sets what else is known about the records, by their names.
    pub fn with_columns(self, columns: BTreeMap<String, Columns>) -> Self {
        Self { columns, ..self }
    }

    /// Makes a row of at most `length` tokens from each record.
    ///
    /// # Errors
    /// When the length leaves no room for text, or the tokenizer rejects one.
    pub fn from_records(records: Vec<TaskRecord>, length: usize, framer: &Framer) -> Result<Self, TextError> {
        let texts: Vec<_> = records.iter().map(|record| (record.text.as_str(), record.pair.as_deref())).collect();
        let rows = classify_features(framer, &texts, length)?;
        let mut cut = Cut::default();
        let samples = records.into_iter().zip(rows).map(|(record, row)| {
            cut.inputs += usize::from(row.cut > 0);
            let (name, text) = (record.origin.to_string(), joined(&record.text, record.pair.as_deref()));
            TextSample { name, text, ids: row.ids, type_ids: row.type_ids, target: record.target }
        });
        let samples = samples.collect();
        Ok(Self::new(samples, cut))
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns a sample.
    pub fn get(&self, index: usize) -> TextSample {
        self.samples[index].clone()
    }

    /// All samples.
    pub fn samples(&self) -> &[TextSample] {
        &self.samples
    }

    /// Returns a sample with the longest input and, if targets are text, the longest target of all samples; `None`
    /// without samples.
    pub fn most_demanding(&self) -> Option<TextSample> {
        let mut longest = self.samples.iter().max_by_key(|sample| sample.ids.len())?.clone();
        let written = |sample: &TextSample| sample.target.written();
        if let Some(wordy) = self.samples.iter().max_by_key(|sample| written(sample)).filter(|s| written(s) > 0) {
            longest.target = wordy.target.clone();
        }
        Some(longest)
    }

    /// Returns what else is known about a record, by its name.
    pub fn columns(&self, name: &str) -> Option<&Columns> {
        self.columns.get(name)
    }

    /// Counts of truncated samples.
    pub fn cut(&self) -> Cut {
        self.cut
    }
}
