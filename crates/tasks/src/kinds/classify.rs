//! Classification: one of several labels for a text.

pub use crate::row::{ClassifyFeatures, classify_features};

use crate::kind::own_head;
use crate::{
    Answer, AnswerContext, BaselineAnswer, BoxError, BoxedHead, HeadInput, HostArrays, KindMetric, ScoredText, Target,
    TaskHead, TaskKind, TaskRecord, TaskScore, TextSample, TrivialBaseline, UserInput, argmax,
};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use undertone_data::records::{ClassifyRecord, RecordsConfig, RecordsError};
use undertone_metrics::ConfusionMatrix;
use undertone_model::heads::{ClassifyHead, ClassifyHeadConfig, Pooling};
use undertone_model::layers::Embedding;
use undertone_model::text::TextHead;
use undertone_ops::cross_entropy;

/// Classification of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyConfig {
    /// Names of the labels; records contain names or their indices from 0.
    pub labels: Vec<String>,
    /// Maximum number of tokens of a text; longer texts are truncated.
    pub max_length: usize,
    /// States from which the label is read: `cls` or `mean`.
    pub pooling: Pooling,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

impl Default for ClassifyConfig {
    fn default() -> Self {
        let head = ClassifyHeadConfig::default();
        Self { labels: Vec::new(), max_length: 128, pooling: head.pooling, dropout: head.dropout }
    }
}

/// Index of a label, as target and as answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(pub usize);

impl ClassifyConfig {
    fn head_config(&self) -> ClassifyHeadConfig {
        ClassifyHeadConfig::new().with_pooling(self.pooling).with_dropout(self.dropout)
    }

    /// Most frequent label; the first of equally frequent ones.
    fn frequent_label(&self, samples: &[TextSample]) -> Option<Label> {
        let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
        for label in samples.iter().filter_map(|sample| sample.target.get::<Label>().ok()) {
            *counts.entry(*label).or_default() += 1;
        }
        counts.iter().rev().max_by_key(|(_, count)| **count).map(|(label, _)| *label)
    }
}

/// Name of the label in an answer.
fn named<'a>(labels: &'a [String], answer: &'a Answer) -> &'a str {
    answer.get::<Label>().map_or(answer.as_str(), |label| &labels[label.0])
}

impl TaskKind for ClassifyConfig {
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Self::json_schema(generator)
    }

    fn name(&self) -> &'static str {
        "classify"
    }

    fn metrics(&self) -> &'static [KindMetric] {
        const { &[KindMetric::higher("accuracy"), KindMetric::higher("macro_f1")] }
    }

    fn validate(&self) -> Result<(), String> {
        if self.labels.len() < 2 {
            return Err("`labels` are fewer than two: name those that a text can have".into());
        }
        self.head_config().validate().map_err(|e| e.to_string())
    }

    fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
        let record = |ClassifyRecord { text, text_pair: pair, label, origin }| {
            let target = Target::new(Label(label), 1);
            TaskRecord { text, pair, target, origin }
        };
        Ok(ClassifyRecord::read(records, &self.labels)?.into_iter().map(record).collect())
    }

    fn label_counts(&self, samples: &[TextSample]) -> BTreeMap<String, usize> {
        let mut counts = vec![0; self.labels.len()];
        samples.iter().filter_map(|sample| sample.target.get::<Label>().ok()).for_each(|label| counts[label.0] += 1);
        self.labels.iter().cloned().zip(counts).collect()
    }

    fn labels(&self, samples: &[&TextSample], _: usize) -> Result<HostArrays, BoxError> {
        let labels = samples.iter().map(|sample| Ok(sample.target.get::<Label>()?.0 as i64));
        Ok(HostArrays::default().with_ints("labels", [samples.len()], labels.collect::<Result<_, BoxError>>()?))
    }

    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
        let d_model = embeddings.weight.dims()[1];
        BoxedHead::new("Classify", self.head_config().init(d_model, self.labels.len(), device))
    }

    fn text_head(&self, head: &BoxedHead) -> Result<TextHead, String> {
        Ok(TextHead::Classify { head: own_head(self, head)?, labels: self.labels.clone() })
    }

    fn pack(&self, answer: &Answer) -> Option<String> {
        answer.get::<Label>().map(|label| label.0.to_string())
    }

    fn unpack(&self, packed: &str) -> Option<Answer> {
        packed.parse().ok().filter(|label| *label < self.labels.len()).map(|label| Answer::value(Label(label)))
    }

    fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
        Box::new(LabelScore { names: self.labels.clone(), decisions: Vec::new() })
    }

    fn baseline(&self, trivial: TrivialBaseline, train: &[TextSample]) -> Option<BaselineAnswer> {
        let answer = self.frequent_label(train).map_or(Answer::text(""), Answer::value);
        (trivial == TrivialBaseline::Copy).then(|| Box::new(move |_: &TextSample| answer.clone()) as BaselineAnswer)
    }

    fn answer_text(&self, _: &UserInput, _: &[TextSample], answers: &[Answer]) -> Result<String, BoxError> {
        let answer = answers.first().ok_or("nothing was answered")?;
        Ok(named(&self.labels, answer).to_owned())
    }

    /// `scores`: the probability of each label.
    fn answer_details(
        &self,
        _: &UserInput,
        _: &[TextSample],
        answers: &[Answer],
    ) -> Result<Map<String, Value>, BoxError> {
        let probabilities = answers.first().ok_or("nothing was answered")?.probabilities();
        let scores: Map<String, Value> =
            self.labels.iter().cloned().zip(probabilities.iter().map(|p| Value::from(*p))).collect();
        Ok([("scores".to_owned(), scores.into())].into_iter().collect())
    }
}

impl TaskHead for ClassifyHead {
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
        let labels = input.arrays.ints::<1>("labels")?;
        Ok(cross_entropy(self.forward(input.states, Some(&input.padding)), labels, Default::default()).sum)
    }

    fn answer(&self, input: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        let logits = self.forward(input.states, Some(&input.padding));
        let labels = logits.dims()[1];
        let probabilities: Vec<f32> = softmax(logits.clone(), 1).into_data().iter::<f32>().collect();
        let rows = argmax(logits).into_iter().zip(probabilities.chunks(labels));
        Ok(rows.map(|(label, row)| Answer::value(Label(label)).with_probabilities(row.to_vec())).collect())
    }
}

/// Answers to samples and their references.
#[derive(Clone, Debug)]
struct LabelScore {
    names: Vec<String>,
    /// Reference and answer of each sample as places in `names`; its length for an answer of another head.
    decisions: Vec<(usize, usize)>,
}

impl TaskScore for LabelScore {
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let label = sample.target.get::<Label>()?.0;
        let reference = self.names[label].clone();
        let hypothesis = answer.map_or(String::new(), |answer| named(&self.names, answer).to_owned());
        let found = self.names.iter().position(|name| *name == hypothesis).unwrap_or(self.names.len());
        self.decisions.push((label, found));
        Ok(Some(ScoredText { name: sample.name.clone(), reference, hypothesis }))
    }

    fn metric(&self, name: &str) -> Option<f64> {
        self.value(&self.decisions.iter().copied().collect(), name)
    }

    fn samples(&self) -> usize {
        self.decisions.len()
    }

    fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        self.value(&samples.map(|index| self.decisions[index]).collect(), name)
    }
}

impl LabelScore {
    fn value(&self, found: &ConfusionMatrix<usize>, name: &str) -> Option<f64> {
        if name == "accuracy" {
            return found.accuracy();
        }
        // An answer of another head is a miss of the reference label, and not a label of its own.
        let by_label = found.by_label().filter(|(label, _)| **label < self.names.len());
        let f1: Vec<f64> = by_label.map(|(_, score)| score.f1).collect();
        (!f1.is_empty()).then(|| f1.iter().sum::<f64>() / f1.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_costs_what_samples_cost, sample};
    use crate::{HeadConfig, Score};

    fn head(labels: &[&str]) -> HeadConfig {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        HeadConfig::new(ClassifyConfig { labels, ..Default::default() })
    }

    fn target(label: usize) -> Target {
        Target::new(Label(label), 1)
    }

    #[test]
    fn a_batch_costs_what_its_samples_cost_by_themselves() {
        assert_costs_what_samples_cost(&head(&["a", "b", "c"]), [target(2), target(0)]);
    }

    #[test]
    fn a_label_that_another_head_gave_is_wrong() {
        let mut score = Score::new(&head(&["bad", "good"]), &[]);
        let good = Answer::value(Label(1));
        for (label, answer) in [(1, Some(&good)), (0, Some(&good)), (1, None), (1, Some(&good))] {
            score.add(&sample(3, target(label)), answer).expect("scored");
        }
        assert_eq!((score.metric("accuracy"), score.error("accuracy")), (0.5, 0.5));
        // `good`: precision 2 of 3, recall 2 of 3; `bad`: 0.
        assert!((score.metric("macro_f1") - 1.0 / 3.0).abs() < 1e-12);
        assert!(score.add(&sample(3, Target::new("else", 1)), None).is_err(), "it is of another kind");
    }

    #[test]
    fn the_trivial_answer_is_the_most_frequent_label() {
        let train: Vec<TextSample> = [1, 0, 1].map(|label| sample(3, target(label))).into();
        let head = head(&["bad", "good"]);
        let answer = head.baseline(TrivialBaseline::Copy, &train).expect("there is one")(&train[1]);
        assert_eq!(answer.get(), Some(&Label(1)));
        assert!(head.baseline(TrivialBaseline::Lead, &train).is_none());
        let counts = head.label_counts(&train);
        assert_eq!((counts["bad"], counts["good"]), (1, 2));
    }
}
