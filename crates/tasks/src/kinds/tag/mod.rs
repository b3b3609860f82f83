//! Tagging: a tag for each word.

mod features;
mod words;

pub use features::{TagFeatures, tag_features};

use crate::kind::own_head;
use crate::packed::{packed_numbers, unpacked_numbers};
use crate::{
    Answer, AnswerContext, BaselineAnswer, BoxError, BoxedHead, ContextUse, Cut, Framer, HeadInput, HostArrays,
    IGNORED, KindMetric, ReadError, ScoredText, Target, TaskHead, TaskKind, TaskRecord, TaskScore, TextDataset,
    TextError, TextSample, TrivialBaseline, UserInput, UserInputError, UserSamples, argmax, pad_row,
};
use burn::tensor::{Device, Tensor};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use undertone_data::records::{OUTSIDE, RecordsConfig, RecordsError, TagRecord};
use undertone_metrics::{EntityCounts, SampleScores, entities};
use undertone_model::heads::{TagHead, TagHeadConfig};
use undertone_model::layers::Embedding;
use undertone_model::text::TextHead;
use undertone_ops::cross_entropy;
use words::words;

/// Tagging of words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TagConfig {
    /// Names of the tags: `O`, `B-person`, `I-person` and so on. Records contain names or their indices from 0.
    pub labels: Vec<String>,
    /// Maximum number of tokens of a sentence; words beyond are tagged `O`.
    pub max_length: usize,
    /// Dropout in the head, in training.
    pub dropout: f64,
}

impl Default for TagConfig {
    fn default() -> Self {
        Self { labels: Vec::new(), max_length: 128, dropout: TagHeadConfig::default().dropout }
    }
}

/// Target: a tag for each word of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct TagTarget {
    /// Token features of the sentence.
    pub features: TagFeatures,
    /// Index of each word's tag.
    pub tags: Vec<usize>,
}

/// Index of each token's tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTags(pub Vec<usize>);

impl TagTarget {
    /// Returns the tag of each word according to an answer; without tags, all words are outside.
    fn word_tags(&self, answer: Option<&Answer>, outside: usize) -> Result<Vec<usize>, TextError> {
        match answer.and_then(Answer::get::<TokenTags>) {
            Some(TokenTags(tokens)) => self.features.word_tags(tokens, outside),
            None => Ok(vec![outside; self.tags.len()]),
        }
    }
}

impl TagConfig {
    fn head_config(&self) -> TagHeadConfig {
        TagHeadConfig::new().with_dropout(self.dropout)
    }

    fn outside(&self) -> usize {
        outside(&self.labels)
    }

    /// Returns the words of a user's text that have a tag, with its name.
    fn tagged<'a>(
        &'a self,
        text: &'a str,
        samples: &[TextSample],
        answers: &[Answer],
    ) -> Result<Vec<(&'a str, &'a str)>, BoxError> {
        let target = samples.first().ok_or("nothing was read")?.target.get::<TagTarget>()?;
        let tags = target.word_tags(answers.first(), self.outside())?;
        let tagged = words(text).into_iter().zip(tags).filter(|(_, tag)| *tag != self.outside());
        Ok(tagged.map(|(word, tag)| (word, self.labels[tag].as_str())).collect())
    }

    fn samples(&self, records: Vec<TagRecord>, framer: &Framer) -> Result<(Vec<TextSample>, Cut), TextError> {
        let rows = tag_features(framer, &records, self.max_length)?;
        let mut cut = Cut::default();
        let samples = records.into_iter().zip(rows).map(|(record, row)| {
            cut.inputs += usize::from(row.cut > 0);
            cut.targets += usize::from(row.lost > 0);
            let decisions = row.labels.iter().filter(|label| **label >= 0).count();
            TextSample {
                name: record.origin.to_string(),
                text: record.words.join(" ").into(),
                ids: row.ids.clone(),
                type_ids: row.type_ids.clone(),
                target: Target::new(TagTarget { features: row, tags: record.tags }, decisions),
            }
        });
        let samples = samples.collect();
        Ok((samples, cut))
    }
}

fn outside(labels: &[String]) -> usize {
    labels.iter().position(|label| label == OUTSIDE).unwrap_or_default()
}

impl TaskKind for TagConfig {
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Self::json_schema(generator)
    }

    fn name(&self) -> &'static str {
        "tag"
    }

    fn metrics(&self) -> &'static [KindMetric] {
        const { &[KindMetric::higher("entity_f1")] }
    }

    fn validate(&self) -> Result<(), String> {
        if !self.labels.iter().any(|label| label == OUTSIDE) || self.labels.len() < 2 {
            return Err("`labels` need `O`, the tag of words outside of everything, and others".into());
        }
        let known = |label: &str| label == OUTSIDE || matches!(label.split('-').next(), Some("B" | "I"));
        if let Some(label) = self.labels.iter().find(|label| !known(label)) {
            return Err(format!("`labels` has `{label}`: tags are `O`, `B-` and a type, or `I-` and a type"));
        }
        self.head_config().validate().map_err(|e| e.to_string())
    }

    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError> {
        let (samples, cut) = self.samples(TagRecord::read(records, &self.labels)?, framer)?;
        Ok(TextDataset::new(samples, cut))
    }

    fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
        let record = |record: TagRecord| TaskRecord::new(record.words.join(" "), Target::unknown(), record.origin);
        Ok(TagRecord::read(records, &self.labels)?.into_iter().map(record).collect())
    }

    fn label_counts(&self, samples: &[TextSample]) -> BTreeMap<String, usize> {
        let mut counts = vec![0; self.labels.len()];
        let targets = samples.iter().filter_map(|sample| sample.target.get::<TagTarget>().ok());
        targets.flat_map(|target| &target.tags).for_each(|tag| counts[*tag] += 1);
        self.labels.iter().cloned().zip(counts).collect()
    }

    fn labels(&self, samples: &[&TextSample], tokens: usize) -> Result<HostArrays, BoxError> {
        let mut labels = Vec::with_capacity(samples.len() * tokens);
        for sample in samples {
            labels.extend(pad_row(&sample.target.get::<TagTarget>()?.features.labels, tokens, IGNORED));
        }
        Ok(HostArrays::default().with_ints("labels", [samples.len() * tokens], labels))
    }

    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
        BoxedHead::new("Tag", self.head_config().init(embeddings.weight.dims()[1], self.labels.len(), device))
    }

    fn text_head(&self, head: &BoxedHead) -> Result<TextHead, String> {
        Ok(TextHead::Tag { head: own_head(self, head)?, labels: self.labels.clone() })
    }

    fn pack(&self, answer: &Answer) -> Option<String> {
        answer.get::<TokenTags>().map(|tags| packed_numbers(&tags.0))
    }

    fn unpack(&self, packed: &str) -> Option<Answer> {
        Some(Answer::value(TokenTags(unpacked_numbers(packed)?)))
    }

    fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
        Box::new(TagScore { names: self.labels.clone(), found: Default::default() })
    }

    /// Baseline: no word is part of an entity.
    fn baseline(&self, trivial: TrivialBaseline, _: &[TextSample]) -> Option<BaselineAnswer> {
        (trivial == TrivialBaseline::Copy).then(|| Box::new(|_: &TextSample| Answer::text("")) as BaselineAnswer)
    }

    fn context_use(&self) -> ContextUse {
        ContextUse::Unused
    }

    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError> {
        let words: Vec<String> = words(text.text).into_iter().map(str::to_owned).collect();
        let record = TagRecord { tags: vec![self.outside(); words.len()], words, origin: text.origin() };
        let (samples, _) = self.samples(vec![record], framer)?;
        let of = |sample: &TextSample| sample.target.get::<TagTarget>().map_or(0, |target| target.features.cut);
        let cut = samples.iter().map(of).sum();
        Ok(UserSamples { samples, cut })
    }

    /// Lists the words that have a tag, with their tags.
    fn answer_text(&self, text: &UserInput, samples: &[TextSample], answers: &[Answer]) -> Result<String, BoxError> {
        let tagged = self.tagged(text.text, samples, answers)?;
        Ok(tagged.into_iter().map(|(word, tag)| format!("{word} ({tag})")).collect::<Vec<_>>().join(" "))
    }

    /// `tags`: the same words, each with where it starts and ends in the text, in characters.
    fn answer_details(
        &self,
        text: &UserInput,
        samples: &[TextSample],
        answers: &[Answer],
    ) -> Result<Map<String, Value>, BoxError> {
        let characters = |bytes: usize| text.text[..bytes].chars().count();
        let tags = self.tagged(text.text, samples, answers)?.into_iter().map(|(word, tag)| {
            // A word is a part of the text.
            let from = word.as_ptr() as usize - text.text.as_ptr() as usize;
            json!({"word": word, "tag": tag, "start": characters(from), "end": characters(from + word.len())})
        });
        Ok([("tags".to_owned(), tags.collect())].into_iter().collect())
    }
}

impl TaskHead for TagHead {
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
        let logits = self.forward(input.states);
        let [rows, tokens, tags] = logits.dims();
        let labels = input.arrays.ints::<1>("labels")?;
        Ok(cross_entropy(logits.reshape([rows * tokens, tags]), labels, Default::default()).sum)
    }

    fn answer(&self, input: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        let logits = self.forward(input.states);
        let [rows, tokens, tags] = logits.dims();
        let best = argmax(logits.reshape([rows * tokens, tags]));
        Ok(best.chunks(tokens).map(|row| Answer::value(TokenTags(row.to_vec()))).collect())
    }
}

/// Counts of expected, found and correct entities.
#[derive(Clone, Debug)]
struct TagScore {
    names: Vec<String>,
    found: SampleScores<EntityCounts>,
}

impl TaskScore for TagScore {
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let target = sample.target.get::<TagTarget>()?;
        let read = target.word_tags(answer, outside(&self.names))?;
        let named = |tags: &[usize]| tags.iter().map(|tag| self.names[*tag].as_str()).collect::<Vec<_>>();
        let (expected, found) = (named(&target.tags), named(&read));
        self.found.add(entities(&expected, &found)?);
        Ok(Some(ScoredText { name: sample.name.clone(), reference: expected.join(" "), hypothesis: found.join(" ") }))
    }

    fn metric(&self, _: &str) -> Option<f64> {
        f1(self.found.sum())
    }

    fn samples(&self) -> usize {
        self.found.len()
    }

    fn metric_of(&self, _: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        f1(&self.found.sum_of(samples))
    }

    /// Without expected and found entities, nothing is wrong.
    fn error_of_nothing(&self) -> f64 {
        0.0
    }
}

/// F1 of entities; `None` if none is expected or found.
fn f1(found: &EntityCounts) -> Option<f64> {
    (found.expected + found.found > 0).then(|| found.score().f1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_costs_what_samples_cost, sample};
    use crate::{HeadConfig, Score};

    fn head(labels: &[&str]) -> HeadConfig {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        HeadConfig::new(TagConfig { labels, ..Default::default() })
    }

    fn features(labels: &[i64], words: Vec<Option<usize>>, word_count: usize) -> TagFeatures {
        let n = labels.len();
        TagFeatures {
            ids: vec![5; n],
            type_ids: vec![0; n],
            labels: labels.to_vec(),
            words,
            word_count,
            lost: 0,
            cut: 0,
        }
    }

    #[test]
    fn a_batch_costs_what_its_samples_cost_by_themselves() {
        let target = |labels: &[i64]| {
            let features = features(labels, vec![None; labels.len()], 0);
            let decisions = labels.iter().filter(|label| **label >= 0).count();
            Target::new(TagTarget { features, tags: Vec::new() }, decisions)
        };
        let targets = [target(&[-100, 1, -100, 0, 0, -100]), target(&[-100, 1, 0, -100])];
        assert_costs_what_samples_cost(&head(&["O", "B-x"]), targets);
    }

    #[test]
    fn tags_are_read_from_the_first_token_of_each_word() {
        let head = head(&["O", "B-x", "I-x"]);
        let features = features(&[-100, 1, -100, 0], vec![None, Some(0), Some(0), Some(1)], 2);
        let target = Target::new(TagTarget { features, tags: vec![1, 0] }, 2);
        for (answer, f1) in [(Some(vec![2, 1, 2, 0]), 1.0), (Some(vec![0, 0, 1, 0]), 0.0), (None, 0.0)] {
            let mut score = Score::new(&head, &[]);
            let answer = answer.map(|tags| Answer::value(TokenTags(tags)));
            score.add(&sample(4, target.clone()), answer.as_ref()).expect("scored");
            assert_eq!(score.metric("entity_f1"), f1);
        }
        assert_eq!(Score::new(&head, &[]).error("entity_f1"), 0.0, "nothing was asked and nothing is wrong");
    }

    #[test]
    fn a_tagged_word_has_its_place_in_characters() {
        let head = head(&["O", "B-x"]);
        let features = features(&[-100, 0, 0, 0, 0], vec![None, Some(0), Some(1), Some(2), Some(3)], 4);
        let samples = [sample(5, Target::new(TagTarget { features, tags: vec![0; 4] }, 4))];
        let text = UserInput { text: "Über  “Rom”", context: None, origin: None };
        let answers = [Answer::value(TokenTags(vec![0, 0, 0, 1, 0]))];
        let details = head.answer_details(&text, &samples, &answers).expect("details");
        assert_eq!(Value::from(details), json!({"tags": [{"word": "Rom", "tag": "B-x", "start": 7, "end": 10}]}));
        assert_eq!(head.answer_text(&text, &samples, &answers).expect("a text"), "Rom (B-x)");
    }
}
