//! Kinds of tasks.

use crate::{
    Answer, BaselineAnswer, BoxError, BoxedHead, ContextUse, ForeignSample, Framer, HostArrays, ReadError, TaskHead,
    TaskRecord, TaskScore, TextDataset, TextSample, TrivialBaseline, UserInput, UserInputError, UserSamples,
};
use burn::tensor::Device;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use undertone_data::records::{Origin, RecordsConfig, RecordsError};
use undertone_metrics::{Direction, direction_of};
use undertone_model::layers::Embedding;
use undertone_model::text::TextHead;

/// A configured kind of task: the configuration in a task's `head: {type: …}`, with all functions that depend on it.
///
/// The implementing type is the configuration itself, a struct that derives `Clone`, `PartialEq`, `Debug`, `Serialize`
/// and `Deserialize` with `#[serde(default, deny_unknown_fields)]`. Once [registered](crate::register), YAML can name
/// it. Everything from records to labels happens on the host; the head's network computes on the device.
///
/// A kind that answers a text, or a pair of texts, with a number or a text needs `name`, `metrics`, `records`, `head` and
/// `score`; everything else has a default for it. The example `task_kind` is such a kind.
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

    /// Configuration key of the maximum number of input tokens.
    fn max_input_key(&self) -> &'static str {
        "max_length"
    }

    /// Maximum number of input tokens, special ones included: by default what the configuration has under
    /// [`max_input_key`](Self::max_input_key), or 128 if it has no number there.
    fn max_input(&self) -> usize {
        let keys = erased_serde::serialize(self, serde_json::value::Serializer).unwrap_or_default();
        keys[self.max_input_key()].as_u64().map_or(MAX_INPUT, |tokens| usize::try_from(tokens).unwrap_or(usize::MAX))
    }

    /// Maximum number of written tokens, special ones included; `None` for a kind that writes no text.
    fn max_target(&self) -> Option<usize> {
        None
    }

    /// Checks the configuration for a text backbone; by default everything that can be read is valid.
    ///
    /// # Errors
    /// Names the invalid key.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks the configuration for a speech backbone, which writes with its own decoder.
    ///
    /// # Errors
    /// Names the invalid key, or states that the kind does not work on speech.
    fn validate_on_speech(&self) -> Result<(), String> {
        Err(format!("`{}` is for text, and the backbone reads speech: use `seq2seq`", self.name()))
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

    /// Reads records as texts with their targets. A kind with its own [`read`](Self::read) leaves targets unknown here.
    ///
    /// # Errors
    /// Names the file and the invalid line.
    fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError>;

    /// Reads records and makes samples of them: by default one row of at most [`max_input`](Self::max_input) tokens for
    /// each of its [`records`](Self::records).
    ///
    /// # Errors
    /// Names the file and the invalid line.
    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError> {
        Ok(TextDataset::from_records(self.records(records)?, self.max_input(), framer)?)
    }

    /// Returns for each record the parts of its text that another record's input may share: the passage of a question,
    /// each text of a pair. For checks of the data; by default the texts of pairs.
    ///
    /// # Errors
    /// As for [`records`](Self::records).
    fn passages(&self, records: &RecordsConfig) -> Result<Vec<Vec<String>>, RecordsError> {
        let both = |record: TaskRecord| record.pair.map_or(Vec::new(), |pair| vec![record.text, pair]);
        Ok(self.records(records)?.into_iter().map(both).collect())
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

    /// Makes the labels of the loss, for a batch of rows of `tokens` tokens. The data loader's workers call it. By
    /// default `labels`, `[rows]`, are the samples' targets: floats of `f32`, or integers of `i64`.
    ///
    /// # Errors
    /// When a sample is of another kind.
    fn labels(&self, samples: &[&TextSample], tokens: usize) -> Result<HostArrays, BoxError> {
        let _ = tokens;
        let arrays = HostArrays::default();
        if let Ok(indices) = targets::<i64>(samples) {
            return Ok(arrays.with_ints("labels", [samples.len()], indices));
        }
        Ok(arrays.with_floats("labels", [samples.len()], targets::<f32>(samples)?))
    }

    /// Creates a head on a text backbone with these word embeddings, `[vocabulary, d_model]`. Parameters whose path
    /// ends in `embed_tokens.weight` are assumed to be those embeddings: they are neither trained nor saved with the
    /// head.
    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead;

    /// Returns a trained head of this kind as models of other programs have it.
    ///
    /// # Errors
    /// Says why there is no such head, as by default.
    fn text_head(&self, head: &BoxedHead) -> Result<TextHead, String> {
        let _ = head;
        Err(format!("transformers has no encoder with a head of the type `{}`", self.name()))
    }

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

    /// Use of the context of a user input. A router chooses no task that requires one for a text without.
    fn context_use(&self) -> ContextUse {
        ContextUse::Optional
    }

    /// Makes samples of user input, as of a record; by default one row of the text and its context.
    ///
    /// # Errors
    /// When it needs a context and there is none, or the tokenizer fails.
    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError> {
        let name = text.origin().to_string();
        let (sample, cut) = TextSample::plain(name, text.text, text.context, self.max_input(), framer)?;
        Ok(UserSamples { samples: vec![sample], cut })
    }

    /// Formats the head's answers to the samples of a user input as text: by default the first, which is a text, an
    /// `f32` or an `i64`.
    ///
    /// # Errors
    /// When the answers are not those of its head.
    fn answer_text(&self, text: &UserInput, samples: &[TextSample], answers: &[Answer]) -> Result<String, BoxError> {
        let _ = (text, samples);
        let answer = answers.first().ok_or("nothing was answered")?;
        let number = answer.get::<f32>().map(f32::to_string).or_else(|| answer.get::<i64>().map(i64::to_string));
        let text = number.or_else(|| answer.as_text().map(str::to_owned));
        Ok(text.ok_or_else(|| format!("an answer of `{}` is neither a text nor a number", self.name()))?)
    }

    /// Returns what there is of the head's answers to the samples of a user input beside the text, by its names in JSON: nothing by
    /// default.
    ///
    /// # Errors
    /// When the answers are not those of its head.
    fn answer_details(
        &self,
        text: &UserInput,
        samples: &[TextSample],
        answers: &[Answer],
    ) -> Result<Map<String, Value>, BoxError> {
        let _ = (text, samples, answers);
        Ok(Map::new())
    }
}

/// Maximum number of input tokens of a kind whose configuration has none.
const MAX_INPUT: usize = 128;

/// Returns the module of a head that `kind` has made.
pub(crate) fn own_head<H: TaskHead + Clone>(kind: &dyn TaskKind, head: &BoxedHead) -> Result<H, String> {
    head.downcast_ref::<H>().cloned().ok_or_else(|| format!("the head is none of the type `{}`", kind.name()))
}

/// Targets that are of this type.
fn targets<T: Copy + 'static>(samples: &[&TextSample]) -> Result<Vec<T>, ForeignSample> {
    samples.iter().map(|sample| sample.target.get::<T>().copied()).collect()
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
    /// Returns the origin and the text of each record, for checks of the data; the texts of a pair on a line each.
    ///
    /// # Errors
    /// As for [`records`](TaskKind::records).
    pub fn texts(&self, records: &RecordsConfig) -> Result<Vec<(Origin, String)>, RecordsError> {
        let text = |text, pair| [Some(text), pair].into_iter().flatten().collect::<Vec<_>>().join("\n");
        let records = self.records(records)?.into_iter();
        Ok(records.map(|TaskRecord { text: first, pair, origin, .. }| (origin, text(first, pair))).collect())
    }

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
}

impl<K: TaskKind + Clone + PartialEq + Serialize> KindConfig for K {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K>() == Some(self)
    }

    fn to_head_config(&self) -> HeadConfig {
        HeadConfig::new(self.clone())
    }
}

/// Configuration of a task's head, such as `head: {type: classify, labels: [negative, positive]}`: a [`TaskKind`] of
/// the type that is registered under the name.
#[derive(Clone)]
pub struct HeadConfig(pub(crate) Arc<dyn TaskKind>);

impl HeadConfig {
    /// Creates a head configuration from a kind in code.
    pub fn new<K: TaskKind>(kind: K) -> Self {
        Self(Arc::new(kind))
    }

    /// Returns the kind, if it is of this type.
    pub fn downcast_ref<K: TaskKind>(&self) -> Option<&K> {
        (&*self.0 as &dyn Any).downcast_ref()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::words;
    use crate::{MeanScore, Target};
    use serde::Deserialize;
    use undertone_data::records::FieldsRecord;

    /// A kind with nothing but what has no default: a length in letters, or a class.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Length {
        max_length: Option<usize>,
        is_class: bool,
    }

    impl TaskKind for Length {
        fn name(&self) -> &'static str {
            "length"
        }

        fn metrics(&self) -> &'static [KindMetric] {
            const { &[KindMetric::lower("mean_absolute_error")] }
        }

        fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
            let record = |FieldsRecord { fields, origin }: FieldsRecord| {
                let text = |name: &str| fields.get(name).and_then(|text| text.as_str()).map(str::to_owned);
                let (text, pair) = (text("text").unwrap_or_default(), text("pair"));
                let length = text.len();
                let target = if self.is_class { Target::new(length as i64, 1) } else { Target::new(length as f32, 1) };
                TaskRecord { text, pair, target, origin }
            };
            Ok(FieldsRecord::read(records, &["text"], &["pair"])?.into_iter().map(record).collect())
        }

        fn head(&self, _: &Embedding, _: &Device) -> BoxedHead {
            unreachable!("nothing is computed")
        }

        fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
            Box::new(MeanScore::new("mean_absolute_error", |target: &f32, answer: Option<&f32>| {
                f64::from((target - answer.unwrap_or(&0.0)).abs())
            }))
        }
    }

    fn head(max_length: Option<usize>, is_class: bool) -> HeadConfig {
        HeadConfig::new(Length { max_length, is_class })
    }

    #[test]
    fn a_simple_kind_makes_samples_and_labels_of_its_records() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lengths.jsonl");
        let lines = ["{\"text\": \"a lion\"}", "{\"text\": \"what is a lion\", \"pair\": \"is a\"}"];
        std::fs::write(&path, lines.join("\n")).expect("written");
        let records = RecordsConfig { path: path.into(), ..Default::default() };

        let length = head(Some(6), false);
        let data = length.read(&records, &words()).expect("samples");
        let ids: Vec<_> = data.samples().iter().map(|sample| sample.ids.clone()).collect();
        assert_eq!((ids, data.cut().inputs), (vec![vec![2, 6, 7, 3], vec![2, 4, 5, 3, 5, 3]], 1));
        let texts: Vec<_> = length.texts(&records).expect("texts").into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["a lion", "what is a lion\nis a"]);
        let passages = length.passages(&records).expect("passages");
        assert_eq!(passages, [vec![], vec!["what is a lion".to_owned(), "is a".to_owned()]]);

        let samples: Vec<&TextSample> = data.samples().iter().collect();
        let labels = HostArrays::default().with_floats("labels", [2], vec![6.0, 14.0]);
        assert_eq!(length.labels(&samples, 6).expect("labels"), labels);
        let class = head(None, true);
        let data = class.read(&records, &words()).expect("samples");
        let samples: Vec<&TextSample> = data.samples().iter().collect();
        let labels = HostArrays::default().with_ints("labels", [2], vec![6, 14]);
        assert_eq!(class.labels(&samples, 6).expect("labels"), labels);
        let foreign = TextSample { target: Target::new("text", 1), ..data.get(0) };
        assert!(length.labels(&[&foreign], 6).is_err());
    }

    #[test]
    fn a_simple_kind_answers_a_users_text() {
        assert_eq!((head(Some(5), false).max_input(), head(None, false).max_input()), (5, MAX_INPUT));
        assert_eq!(head(None, false).validate(true), Ok(()));
        let length = head(Some(5), false);
        let text = UserInput { text: "what is a lion", context: None, origin: None };
        let UserSamples { samples, cut } = length.user_samples(&text, &words()).expect("a sample");
        assert_eq!((samples[0].ids.clone(), cut), (vec![2, 4, 5, 6, 3], 1));
        let said = |answer| length.answer_text(&text, &samples, &[answer]).map_err(|error| error.to_string());
        assert_eq!(said(Answer::value(2.5f32)), Ok("2.5".to_owned()));
        assert_eq!(said(Answer::value(3i64)), Ok("3".to_owned()));
        assert_eq!(said(Answer::text("long")), Ok("long".to_owned()));
        assert_eq!(said(Answer::value('l')), Err("an answer of `length` is neither a text nor a number".to_owned()));
    }
}
