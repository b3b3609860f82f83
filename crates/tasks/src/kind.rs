//! Kinds of tasks.

use crate::{
    Answer, BaselineAnswer, BoxError, BoxedHead, Framer, HostArrays, ReadError, TaskScore, TextDataset, TextSample,
    TrivialBaseline, UserInput, UserInputError, UserSamples,
};
use burn::tensor::Device;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use undertone_data::records::{RecordsConfig, RecordsError};
use undertone_metrics::{Direction, direction_of};
use undertone_model::layers::Embedding;

/// A configured kind of task: the configuration in a task's `head: {type: …}`, with all functions that depend on it.
///
/// The implementing type is the configuration itself, a struct that derives `Clone`, `PartialEq`, `Debug`, `Serialize`
/// and `Deserialize` with `#[serde(default, deny_unknown_fields)]`. Once [registered](crate::register), YAML can name
/// it. Everything from records to labels happens on the host; the head's network computes on the device.
///
/// A kind creates the targets of its samples and the values of its answers itself and should receive no others. If it
/// does receive those of another kind, it returns an error.
pub trait TaskKind: KindConfig {
    /// Name in YAML.
    fn name(&self) -> &'static str;

    /// Metrics of the kind; the first is the default for selecting the best model.
    fn metrics(&self) -> &'static [KindMetric];

    /// Registered metrics, for example from [`undertone_metrics::registry`], by which the kind can also be evaluated;
    /// none by default.
    fn registered_metrics(&self) -> Vec<KindMetric> {
        Vec::new()
    }

    /// JSON Schema of its configuration, without `type`; by default any keys.
    fn schema(_: &mut SchemaGenerator) -> Schema
    where
        Self: Sized,
    {
        json_schema!({"type": "object"})
    }

    /// Maximum number of input tokens.
    fn max_input(&self) -> usize;

    /// Configuration key of that maximum.
    fn max_input_key(&self) -> &'static str {
        "max_length"
    }

    /// Maximum number of written tokens, special ones included; `None` for a kind that writes no text.
    fn max_target(&self) -> Option<usize> {
        None
    }

    /// Checks the configuration for a text backbone.
    ///
    /// # Errors
    /// Names the invalid key.
    fn validate(&self) -> Result<(), String>;

    /// Checks the configuration for a speech backbone, which writes with its own decoder.
    ///
    /// # Errors
    /// Names the invalid key, or states that the kind does not work on speech.
    fn validate_on_speech(&self) -> Result<(), String> {
        Err(format!("`{}` is for text, and the backbone hears speech: use `seq2seq`", self.name()))
    }

    /// Checks that it fits a text backbone whose states are `d_model` wide.
    ///
    /// # Errors
    /// Names the invalid key.
    fn fits(&self, d_model: usize) -> Result<(), String> {
        let _ = d_model;
        Ok(())
    }

    /// Configuration that the weights depend on: itself, with defaults for keys that may change after training.
    fn trained(&self) -> HeadConfig {
        self.to_head_config()
    }

    /// Reads records and makes samples of them.
    ///
    /// # Errors
    /// Names the file and the invalid line.
    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError>;

    /// Returns the origin and the text of each record, for checks of the data.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn texts(&self, records: &RecordsConfig) -> Result<Vec<(String, String)>, RecordsError>;

    /// Returns for each record the parts of its text that another record's input may share: the passage of a question,
    /// each text of a pair. For checks of the data; none by default.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn passages(&self, records: &RecordsConfig) -> Result<Vec<Vec<String>>, RecordsError> {
        let _ = records;
        Ok(Vec::new())
    }

    /// Number of samples of each label, for a kind with labels.
    fn label_counts(&self, samples: &[TextSample]) -> BTreeMap<String, usize> {
        let _ = samples;
        BTreeMap::new()
    }

    /// Makes the arrays that the head needs besides the states, for a batch of rows of `tokens` tokens. The samples may
    /// belong to another task, if a router sent them to this head.
    fn inputs(&self, samples: &[&TextSample], tokens: usize) -> HostArrays {
        let _ = (samples, tokens);
        HostArrays::default()
    }

    /// Makes the labels of the loss, for a batch of rows of `tokens` tokens. The data loader's workers call it.
    ///
    /// # Errors
    /// When a sample is of another kind.
    fn labels(&self, samples: &[&TextSample], tokens: usize) -> Result<HostArrays, BoxError>;

    /// Creates a head on a text backbone with these word embeddings, `[vocabulary, d_model]`. Parameters whose path
    /// ends in `embed_tokens.weight` are assumed to be those embeddings: they are neither trained nor saved with the
    /// head.
    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead;

    /// Creates an empty score for these metrics.
    fn score(&self, metrics: &[String]) -> Box<dyn TaskScore>;

    /// Serialises an answer of its head as text, from which [`unpack`](Self::unpack) restores it. So processes that
    /// train together can share the evaluation: each answers a part of the samples. With `None`, each process answers
    /// all of them. By default text answers are their text, and values cannot be serialised.
    fn pack(&self, answer: &Answer) -> Option<String> {
        answer.as_text().map(str::to_owned)
    }

    /// Restores a [serialised](Self::pack) answer; `None` if it belongs to another kind.
    fn unpack(&self, packed: &str) -> Option<Answer> {
        Some(Answer::text(packed))
    }

    /// Returns a baseline that needs no model, if the kind has one; it takes statistics from `train`.
    fn baseline(&self, trivial: TrivialBaseline, train: &[TextSample]) -> Option<BaselineAnswer> {
        let _ = (trivial, train);
        None
    }

    /// Makes samples of user input, as of a record.
    ///
    /// # Errors
    /// When it needs a context and there is none, or the tokenizer fails.
    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError>;

    /// Formats the head's answers to the samples of a user input as text.
    ///
    /// # Errors
    /// When the answers are not those of its head.
    fn answer_text(&self, text: &UserInput, samples: &[TextSample], answers: &[Answer]) -> Result<String, BoxError>;
}

/// Metric of a kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindMetric {
    /// Name in logs and tables.
    pub name: &'static str,
    /// Direction in which it improves.
    pub direction: Direction,
}

impl KindMetric {
    /// Creates a metric that is an error: lower is better. Errors of tasks are averaged to choose the best model, so a
    /// range from 0 to 1 gives each task the same weight.
    pub const fn lower(name: &'static str) -> Self {
        Self { name, direction: Direction::Lower }
    }

    /// Creates a metric that is a share between 0 and 1: higher is better.
    pub const fn higher(name: &'static str) -> Self {
        Self { name, direction: Direction::Higher }
    }
}

impl dyn TaskKind {
    /// Direction of a metric: its own, or the registered direction of that name.
    pub fn direction(&self, metric: &str) -> Option<Direction> {
        let own = self.metrics().iter().find(|own| own.name == metric);
        own.map(|own| own.direction).or_else(|| direction_of(metric))
    }
}

/// Methods that every [`TaskKind`] struct gets from its derives.
pub trait KindConfig: Any + Debug + Send + Sync + erased_serde::Serialize {
    /// Whether it equals another configuration.
    fn is_equal(&self, other: &dyn Any) -> bool;
    /// Returns a copy as a [`HeadConfig`].
    fn to_head_config(&self) -> HeadConfig;
    /// Returns itself as [`Any`], to query its type.
    fn as_any(&self) -> &dyn Any;
}

impl<K: TaskKind + Clone + PartialEq + Serialize> KindConfig for K {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K>() == Some(self)
    }

    fn to_head_config(&self) -> HeadConfig {
        HeadConfig::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Configuration of a task's head, such as `head: {type: classify, labels: [negative, positive]}`: a [`TaskKind`] of
/// the type that is registered under the name.
#[derive(Clone)]
pub struct HeadConfig(Arc<dyn TaskKind>);

impl HeadConfig {
    /// Creates a head configuration from a kind in code.
    pub fn new<K: TaskKind>(kind: K) -> Self {
        Self(Arc::new(kind))
    }

    /// Returns the kind, if it is of this type.
    pub fn downcast_ref<K: TaskKind>(&self) -> Option<&K> {
        self.0.as_any().downcast_ref()
    }

    /// Checks the configuration for a text backbone, or for a speech backbone if `text` is false.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self, text: bool) -> Result<(), String> {
        let checked = if text { self.0.validate() } else { self.0.validate_on_speech() };
        checked.map_err(|reason| format!("`head`: {reason}"))
    }

    /// Checks that it fits a text backbone with states `d_model` wide and positions for `longest` tokens.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn fits(&self, d_model: usize, longest: usize) -> Result<(), String> {
        self.0.fits(d_model)?;
        let (key, length) = (self.max_input_key(), self.max_input());
        if length > longest {
            return Err(format!(
                "`{key}` is {length}, and the backbone has positions for {longest} tokens: give at most that"
            ));
        }
        Ok(())
    }
}

impl Deref for HeadConfig {
    type Target = dyn TaskKind;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for HeadConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other.0.as_any())
    }
}

impl Debug for HeadConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for HeadConfig {
    /// Writes the name as `type`, then the kind's own keys.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a> {
            #[serde(rename = "type")]
            name: &'static str,
            #[serde(flatten)]
            kind: Erased<'a>,
        }

        struct Erased<'a>(&'a dyn TaskKind);

        impl Serialize for Erased<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                erased_serde::serialize(self.0, serializer)
            }
        }

        Named { name: self.name(), kind: Erased(&*self.0) }.serialize(serializer)
    }
}
