//! Tests that features equal those of transformers, if the real tokenizers are available; see
//! `fixtures/make_features.py`.

use serde::Deserialize;
use serde_json::Value;
use undertone_data::records::{Answer, SpanRecord, TagRecord};

use crate::Framer;
use crate::kinds::classify::classify_features;
use crate::kinds::span::{SpanConfig, span_windows};
use crate::kinds::tag::tag_features;
use crate::testing::{origin, real};

#[derive(Deserialize)]
struct Fixture {
    #[serde(flatten)]
    models: std::collections::BTreeMap<String, Value>,
    max_length: usize,
    question: String,
    context: String,
    answers: Vec<String>,
    window: usize,
    stride: usize,
}

#[derive(Deserialize)]
struct Model {
    classify: Vec<Classify>,
    spans: Vec<Spans>,
    tags: Vec<Tags>,
}

#[derive(Deserialize)]
struct Classify {
    text: String,
    pair: Option<String>,
    ids: Vec<u32>,
    type_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Spans {
    ids: Vec<u32>,
    type_ids: Vec<u32>,
    offsets: Vec<Option<(usize, usize)>>,
    targets: Vec<(usize, usize)>,
}

#[derive(Deserialize)]
struct Tags {
    words: Vec<String>,
    ids: Vec<u32>,
    word_ids: Vec<Option<usize>>,
}

/// Each available real tokenizer with the features of transformers.
fn models() -> (Fixture, Vec<(Framer, Model)>) {
    let fixture: Fixture = serde_json::from_str(include_str!("fixtures/features.json")).unwrap();
    let model = |name: &str| {
        let model = serde_json::from_value(fixture.models[name].clone()).unwrap();
        Some((real(name)?, model))
    };
    let models = ["minilm-l6", "roberta-base-tokenizer"].into_iter().filter_map(model).collect();
    (fixture, models)
}

#[test]
fn classification_is_as_in_transformers() {
    let (fixture, models) = models();
    for (framer, model) in models {
        let texts: Vec<_> = model.classify.iter().map(|row| (row.text.as_str(), row.pair.as_deref())).collect();
        let rows = classify_features(&framer, &texts, fixture.max_length).unwrap();
        for (row, expected) in rows.iter().zip(&model.classify) {
            assert_eq!((&row.ids, &row.type_ids), (&expected.ids, &expected.type_ids), "{}", expected.text);
        }
    }
}

#[test]
fn windows_are_as_in_transformers() {
    let (fixture, models) = models();
    let config = SpanConfig { max_length: fixture.window, doc_stride: fixture.stride, ..Default::default() };
    for (framer, model) in models {
        for (number, text) in fixture.answers.iter().enumerate() {
            let start = fixture.context.find(text).map(|byte| fixture.context[..byte].chars().count()).unwrap();
            let answers = vec![Answer { text: text.clone(), start }];
            let (question, context) = (fixture.question.clone(), fixture.context.clone());
            let record = SpanRecord { id: String::new(), question, context, answers, origin: origin() };
            let windows = span_windows(&framer, &[record], &config).unwrap();
            assert_eq!(windows.len(), model.spans.len());
            for (window, expected) in windows.iter().zip(&model.spans) {
                assert_eq!((&window.ids, &window.type_ids), (&expected.ids, &expected.type_ids));
                assert_eq!(window.offsets, expected.offsets);
                // If a character has several tokens, transformers selects any of them, and here the answer has all. So
                // the characters must agree.
                let (first, last) = expected.targets[number];
                let characters = |first: usize, last: usize| (window.offsets[first], window.offsets[last]);
                assert_eq!(characters(window.start, window.end), characters(first, last), "{text}");
            }
        }
    }
}

#[test]
fn tags_are_as_in_transformers() {
    let (fixture, models) = models();
    for (framer, model) in models {
        for expected in &model.tags {
            let words = expected.words.clone();
            let record = TagRecord { tags: vec![0; words.len()], words, origin: origin() };
            let row = tag_features(&framer, &[record], fixture.max_length).unwrap().remove(0);
            assert_eq!((&row.ids, &row.words), (&expected.ids, &expected.word_ids));
        }
    }
}
