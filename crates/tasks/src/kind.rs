//! What a kind of task is.

use crate::{
    Answer, BaselineAnswer, BoxError, BoxedHead, Framer, HostArrays, ReadError, TaskScore, TextDataset, TextSample,
    TrivialBaseline, UserInput, UserInputError, UserSamples,
};
use burn::tensor::Device;
use serde::{Serialize, Serializer};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use undertone_data::records::{RecordsConfig, RecordsError};
use undertone_metrics::{Direction, direction_of};
use undertone_model::layers::Embedding;

/// A kind of task, configured: what `head: {type: …}` of a task says, and everything that follows from it.
///
/// It is the configuration itself, a struct that derives `Clone`, `PartialEq`, `Debug`, `Serialize` and `Deserialize` with
/// `#[serde(default, deny_unknown_fields)]`. Once [registered](crate::register), YAML can name it. What samples are made
/// of, from records to labels, stays on the host; the head's network computes.
///
/// A kind makes the targets of its samples and the values of its answers itself, so that it is given no others; where it is
/// asked about somebody else's all the same, it says so with an error.
pub trait TaskKind: KindConfig {
    /// Its name in YAML.
    fn name(&self) -> &'static str;

    /// The metrics there are for it; the first is the one that decides where none is named.
    fn metrics(&self) -> &'static [KindMetric];

    /// Metrics that others have registered, by [`undertone_metrics::registry`] say, and that it can be judged by besides its
    /// own; none by default.
    fn registered_metrics(&self) -> Vec<KindMetric> {
        Vec::new()
    }

    /// Tokens of an input at most.
    fn max_input(&self) -> usize;

    /// The key that says so.
    fn max_input_key(&self) -> &'static str {
        "max_length"
    }

    /// Tokens of what it writes at most, special ones included; nothing for a kind that writes no text.
    fn max_target(&self) -> Option<usize> {
        None
    }

    /// Whether the configuration makes sense on a text backbone; if not, why.
    ///
    /// # Errors
    /// Names the key.
    fn validate(&self) -> Result<(), String>;

    /// Whether it makes sense on a speech backbone, which writes with its own decoder; if not, why.
    ///
    /// # Errors
    /// Names the key, or says that it does not.
    fn validate_on_speech(&self) -> Result<(), String> {
        Err(format!("`{}` is for text, and the backbone hears speech: use `seq2seq`", self.name()))
    }

    /// Whether it fits a text backbone whose states are `d_model` wide; if not, why.
    ///
    /// # Errors
    /// Names the key.
    fn fits(&self, d_model: usize) -> Result<(), String> {
        let _ = d_model;
        Ok(())
    }

    /// What its weights were made for: itself, with defaults for what may change after training.
    fn trained(&self) -> HeadConfig {
        self.to_head_config()
    }

    /// Samples of records.
    ///
    /// # Errors
    /// Names the file and the line that does not fit.
    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError>;

    /// Where each record comes from, and what is read of it: for checks of the data.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn texts(&self, records: &RecordsConfig) -> Result<Vec<(String, String)>, RecordsError>;

    /// Of each record the texts that are a part of what is read, where others may have the same in another input: the passage of
    /// a question, each text of a pair. For checks of the data; none by default.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn passages(&self, records: &RecordsConfig) -> Result<Vec<Vec<String>>, RecordsError> {
        let _ = records;
        Ok(Vec::new())
    }

    /// How often each label is the answer, of a kind that has some.
    fn label_counts(&self, samples: &[TextSample]) -> BTreeMap<String, usize> {
        let _ = samples;
        BTreeMap::new()
    }

    /// What its head is given besides the states, for a batch of rows of so many tokens: of samples of its own, and of
    /// others that a router sent to it.
    fn inputs(&self, samples: &[&TextSample], tokens: usize) -> HostArrays {
        let _ = (samples, tokens);
        HostArrays::default()
    }

    /// What the loss compares with, for a batch of rows of so many tokens: made by the loader's workers.
    ///
    /// # Errors
    /// When a sample is of another kind.
    fn labels(&self, samples: &[&TextSample], tokens: usize) -> Result<HostArrays, BoxError>;

    /// A fresh head on a text backbone with these word embeddings, `[vocabulary, d_model]`. Parameters whose path ends in
    /// `embed_tokens.weight` are taken to be those embeddings: they are neither trained nor saved with the head.
    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead;

    /// An empty score that is to be asked for these metrics.
    fn score(&self, metrics: &[String]) -> Box<dyn TaskScore>;

    /// An answer of its head as text that [`unpack`](Self::unpack) makes the same answer of, so that processes that train together
    /// each let the model answer a part of the samples. Nothing where that cannot be done: each then answers all of them. By
    /// default answers that are text are their text, and values cannot be packed.
    fn pack(&self, answer: &Answer) -> Option<String> {
        answer.as_text().map(str::to_owned)
    }

    /// The answer that was [packed](Self::pack); nothing if it was another kind's.
    fn unpack(&self, packed: &str) -> Option<Answer> {
        Some(Answer::text(packed))
    }

    /// Answers that need no model, where there are such; what they have to know, they count in `train`.
    fn baseline(&self, trivial: TrivialBaseline, train: &[TextSample]) -> Option<BaselineAnswer> {
        let _ = (trivial, train);
        None
    }

    /// A single text as its records are read.
    ///
    /// # Errors
    /// When there is no context and it needs one, or the text does not become tokens.
    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError>;

    /// What the head answered to the samples of a single text, as text.
    ///
    /// # Errors
    /// When the answers are not those of its head.
    fn answer_text(&self, text: &UserInput, samples: &[TextSample], answers: &[Answer]) -> Result<String, BoxError>;
}

/// A metric of a kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindMetric {
    /// What logs and tables call it.
    pub name: &'static str,
    /// Which way it is better.
    pub direction: Direction,
}

impl KindMetric {
    /// An error: lower is better. Errors of tasks are averaged to choose the best model, so one between 0 and 1 counts as
    /// much as another's.
    pub const fn lower(name: &'static str) -> Self {
        Self { name, direction: Direction::Lower }
    }

    /// A share between 0 and 1, 1 at best.
    pub const fn higher(name: &'static str) -> Self {
        Self { name, direction: Direction::Higher }
    }
}

impl dyn TaskKind {
    /// Which way one of its metrics is better; of one that is not its own, what is known of the name.
    pub fn direction(&self, metric: &str) -> Option<Direction> {
        let own = self.metrics().iter().find(|own| own.name == metric);
        own.map(|own| own.direction).or_else(|| direction_of(metric))
    }
}

/// What every struct that is a [`TaskKind`] has from what it derives.
pub trait KindConfig: Any + Debug + Send + Sync + erased_serde::Serialize {
    /// Whether another configuration says the same.
    fn is_equal(&self, other: &dyn Any) -> bool;
    /// A copy, as a task has it.
    fn to_head_config(&self) -> HeadConfig;
    /// Itself, to ask for its type.
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

/// What a task's answers are made by: `head: {type: classify, labels: [negative, positive]}`. It is a [`TaskKind`] of
/// whatever type is registered under the name.
#[derive(Clone)]
pub struct HeadConfig(Arc<dyn TaskKind>);

impl HeadConfig {
    /// Of a kind that is configured in code.
    pub fn new<K: TaskKind>(kind: K) -> Self {
        Self(Arc::new(kind))
    }

    /// The kind, if it is of this type.
    pub fn downcast_ref<K: TaskKind>(&self) -> Option<&K> {
        self.0.as_any().downcast_ref()
    }

    /// Whether it makes sense on a backbone of text or of speech; if not, why.
    ///
    /// # Errors
    /// Names the key.
    pub fn validate(&self, text: bool) -> Result<(), String> {
        let checked = if text { self.0.validate() } else { self.0.validate_on_speech() };
        checked.map_err(|reason| format!("`head`: {reason}"))
    }

    /// Whether it fits a text backbone with states `d_model` wide that has positions for `longest` tokens; if not, why.
    ///
    /// # Errors
    /// Names the key.
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
    /// The name as `type`, then the kind's own keys.
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
