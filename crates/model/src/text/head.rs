//! Heads of text models as other programs have them.

use super::TextModelType;
use super::modules::Modules;
use crate::heads::{ClassifyHead, Pooling, SpanHead, TagHead};
use crate::layers::Linear;
use burn::module::Module;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use undertone_store::{HostTensor, parameters};

/// Head of a text model that transformers or sentence-transformers has, with the names of what it answers.
#[derive(Clone, Debug)]
pub enum TextHead {
    /// A label for a text: `…ForSequenceClassification`, or a model of sentence-transformers where transformers has no such head.
    Classify {
        /// Head.
        head: ClassifyHead,
        /// Names of the labels.
        labels: Vec<String>,
    },
    /// The begin and the end of an answer in a text: `…ForQuestionAnswering`.
    Span(SpanHead),
    /// A tag for each token: `…ForTokenClassification`.
    Tag {
        /// Head.
        head: TagHead,
        /// Names of the tags.
        labels: Vec<String>,
    },
}

impl TextHead {
    /// The hub's name for the work of the head, and that of transformers' pipeline for it.
    pub fn pipeline(&self) -> &'static str {
        match self {
            Self::Classify { .. } => "text-classification",
            Self::Span(_) => "question-answering",
            Self::Tag { .. } => "token-classification",
        }
    }

    /// The hub's name for the program that loads the head on an encoder of a family.
    pub fn library(&self, model_type: TextModelType) -> &'static str {
        if self.modules(model_type, 0).is_some() { "sentence-transformers" } else { "transformers" }
    }

    /// Modules that sentence-transformers runs after the encoder, for texts of at most `max_tokens` tokens; `None` for a head that
    /// transformers has itself. Its classification of DistilBERT has another activation, and none reads the mean of the states.
    pub(super) fn modules(&self, model_type: TextModelType, max_tokens: usize) -> Option<Modules<'_>> {
        let Self::Classify { head, .. } = self else { return None };
        let is_own = head.pooling() == Pooling::Mean || model_type == TextModelType::Distilbert;
        is_own.then_some(Modules { head, max_tokens })
    }

    /// Writes class, labels and dropout into a `config.json`. Labels of another head go.
    pub(super) fn write_hf(&self, json: &mut Map<String, Value>, model_type: TextModelType) {
        // Each of them would change the number of outputs, or how they are read.
        for key in ["id2label", "label2id", "num_labels", "problem_type", "classifier_dropout"] {
            json.shift_remove(key);
        }
        let (class, labels, dropout) = match self {
            Self::Classify { head, labels } => {
                json.insert("problem_type".into(), "single_label_classification".into());
                ("ForSequenceClassification", labels.as_slice(), head.dropout())
            }
            Self::Span(_) => ("ForQuestionAnswering", [].as_slice(), 0.0),
            Self::Tag { head, labels } => ("ForTokenClassification", labels.as_slice(), head.dropout()),
        };
        json.insert("architectures".into(), json!([format!("{}{class}", model_type.class())]));
        if !labels.is_empty() {
            let named = labels.iter().enumerate();
            json.insert("id2label".into(), named.clone().map(|(id, name)| (id.to_string(), json!(name))).collect());
            json.insert("label2id".into(), named.map(|(id, name)| (name.clone(), json!(id))).collect());
            json.insert("classifier_dropout".into(), dropout.into());
        }
    }

    /// Parameters under transformers' names, which are BERT's or RoBERTa's.
    pub(super) fn tensors(&self, model_type: TextModelType) -> BTreeMap<String, HostTensor> {
        let maps: Vec<(String, &Linear)> = match self {
            Self::Classify { head, .. } => {
                let [dense, out_proj] = match model_type {
                    TextModelType::Bert => [format!("{}pooler.dense", model_type.prefix()), "classifier".into()],
                    _ => ["classifier.dense".into(), "classifier.out_proj".into()],
                };
                vec![(dense, &head.dense), (out_proj, &head.out_proj)]
            }
            Self::Span(head) => vec![("qa_outputs".into(), &head.qa_outputs)],
            Self::Tag { head, .. } => vec![("classifier".into(), &head.classifier)],
        };
        let named = |(name, map): (String, &Linear)| {
            parameters(&map.valid()).into_iter().map(move |(path, tensor)| (format!("{name}.{path}"), tensor))
        };
        maps.into_iter().flat_map(named).collect()
    }
}
