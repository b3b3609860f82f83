//! A task's metrics over an evaluation set.

use super::answer::Answer;
use super::config::TaskConfig;
use super::head_config::HeadConfig;
use super::text_data::{Target, TextSample};
use crate::text::{AnswerConfig, SpanWindow, TextError, WindowLogits, best_spans};
use std::sync::Arc;
use undertone_data::records::{OUTSIDE, SpanRecord};
use undertone_metrics::{
    AnswerScore, Bleu, ConfusionMatrix, Direction, EntityScore, ErrorRate, Rouge, bleu, cer, direction_of, entities,
    rouge, squad_v1, squad_v2, wer,
};
use undertone_train::BoxError;

/// What a task's answers have scored so far.
#[derive(Clone, Debug)]
pub(super) enum TaskScore {
    Written(WrittenScore),
    Labels { names: Vec<String>, found: ConfusionMatrix<String> },
    Spans(SpanScore),
    Tags { names: Vec<String>, found: EntityScore },
}

/// What should have been said and what was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// What a person would call the sample.
    pub name: String,
    pub reference: String,
    pub hypothesis: String,
}

/// Counts for the metrics of text.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenScore {
    characters: ErrorRate,
    words: ErrorRate,
    exact: usize,
    samples: usize,
    /// Summaries and translations, where they are asked for.
    overlap: Option<(Rouge, Bleu)>,
}

/// Scores of questions; a question is scored once all of its windows have been seen.
#[derive(Clone, Debug)]
pub(super) struct SpanScore {
    config: AnswerConfig,
    score: AnswerScore,
    open: Option<Question>,
}

/// A question some windows of which have been seen.
#[derive(Clone, Debug)]
struct Question {
    record: Arc<SpanRecord>,
    windows: Vec<(Arc<SpanWindow>, Vec<f32>, Vec<f32>)>,
    /// What was said by something that finds no spans.
    text: Option<String>,
    /// Whether none of it came to the task's own head.
    lost: bool,
}

impl TaskScore {
    pub fn new(task: &TaskConfig) -> Self {
        match &task.head {
            HeadConfig::Seq2seq(_) => {
                let overlap = task.metrics().iter().any(|metric| metric.starts_with("rouge") || metric == "bleu");
                Self::Written(WrittenScore { overlap: overlap.then(Default::default), ..Default::default() })
            }
            HeadConfig::Classify(head) => Self::Labels { names: head.labels.clone(), found: Default::default() },
            HeadConfig::Span(head) => {
                Self::Spans(SpanScore { config: head.answer(), score: Default::default(), open: None })
            }
            HeadConfig::Tag(head) => Self::Tags { names: head.labels.clone(), found: Default::default() },
        }
    }

    /// Counts a text that was written.
    pub fn add_written(&mut self, reference: &str, hypothesis: &str) {
        if let Self::Written(score) = self {
            score.add(reference, hypothesis);
        }
    }

    /// Counts the answer to a sample of text; none, where the router sent it to another task's head, is wrong. What was
    /// said is known at once, or for a question when all of its windows have been seen.
    pub fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<Said>, BoxError> {
        let nothing = Answer::Text(String::new());
        let said =
            |reference: String, hypothesis: String| Ok(Some(Said { name: sample.name.clone(), reference, hypothesis }));
        match (self, &sample.target) {
            (Self::Written(score), Target::Text { text, .. }) => {
                let hypothesis = answer.unwrap_or(&nothing).text();
                score.add(text, &hypothesis);
                said(text.clone(), hypothesis)
            }
            (Self::Labels { names, found }, Target::Label(label)) => {
                let (reference, hypothesis) = (names[*label].clone(), answer.unwrap_or(&nothing).text());
                found.add(reference.clone(), hypothesis.clone());
                said(reference, hypothesis)
            }
            (Self::Spans(score), Target::Span { window, record }) => score.add(window, record, answer),
            (Self::Tags { names, found }, Target::Tags { features, tags }) => {
                let outside = names.iter().position(|name| name == OUTSIDE).unwrap_or_default();
                let read = match answer {
                    Some(Answer::Tags(tokens)) => features.word_tags(tokens, outside)?,
                    _ => vec![outside; tags.len()],
                };
                let named = |tags: &[usize]| tags.iter().map(|tag| names[*tag].as_str()).collect::<Vec<_>>();
                let (expected, found_tags) = (named(tags), named(&read));
                *found += entities(&expected, &found_tags)?;
                said(expected.join(" "), found_tags.join(" "))
            }
            _ => Err("a sample of one task was scored as another's".into()),
        }
    }

    /// Scores what is still open.
    pub fn finish(&mut self) -> Result<Option<Said>, BoxError> {
        match self {
            Self::Spans(score) => Ok(score.close()?),
            _ => Ok(None),
        }
    }

    /// The value of a metric: `cer` and `wer` are errors, all others shares between 0 and 1.
    pub fn metric(&self, name: &str) -> f64 {
        let value = match self {
            Self::Written(score) => score.metric(name),
            Self::Labels { found, .. } if name == "accuracy" => found.accuracy(),
            Self::Labels { names, found } => {
                // What another head said is a miss of the label that was due, and no label of its own.
                let f1: Vec<f64> =
                    found.by_label().filter(|(label, _)| names.contains(label)).map(|(_, score)| score.f1).collect();
                (!f1.is_empty()).then(|| f1.iter().sum::<f64>() / f1.len() as f64)
            }
            Self::Spans(SpanScore { score, .. }) if name == "f1" => score.f1(),
            Self::Spans(SpanScore { score, .. }) => score.exact_match(),
            Self::Tags { found, .. } => found.micro().map(|score| score.f1),
        };
        value.unwrap_or(f64::NAN)
    }

    /// The metric as an error: lower is better. Where there were no entities and none was found, none is wrong. A metric
    /// of which nobody knows which way it is better makes no error, and no model is the best by it.
    pub fn error(&self, name: &str) -> f64 {
        let value = self.metric(name);
        match (self, direction_of(name)) {
            (Self::Tags { .. }, _) if value.is_nan() => 0.0,
            (_, Some(Direction::Lower)) => value,
            (_, Some(Direction::Higher)) => 1.0 - value,
            (_, None) => f64::NAN,
        }
    }
}

impl WrittenScore {
    fn add(&mut self, reference: &str, hypothesis: &str) {
        self.characters += cer(reference, hypothesis);
        self.words += wer(reference, hypothesis);
        self.exact += usize::from(reference == hypothesis);
        self.samples += 1;
        if let Some((rouge_sum, bleu_sum)) = &mut self.overlap {
            *rouge_sum += rouge(reference, hypothesis);
            *bleu_sum += bleu(&[reference], hypothesis);
        }
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let overlap = self.overlap.as_ref();
        match name {
            "cer" => self.characters.rate(),
            "wer" => self.words.rate(),
            "rouge1" => overlap?.0.rouge1().map(|score| score.f1),
            "rouge2" => overlap?.0.rouge2().map(|score| score.f1),
            "rouge_l" => overlap?.0.rouge_l().map(|score| score.f1),
            "bleu" => overlap?.1.score(),
            _ => (self.samples > 0).then(|| self.exact as f64 / self.samples as f64),
        }
    }
}

impl SpanScore {
    fn add(
        &mut self,
        window: &Arc<SpanWindow>,
        record: &Arc<SpanRecord>,
        answer: Option<&Answer>,
    ) -> Result<Option<Said>, BoxError> {
        let same = self.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.record, record));
        let said = if same { None } else { self.close()? };
        let question = Question { record: record.clone(), windows: Vec::new(), text: None, lost: true };
        let open = self.open.get_or_insert(question);
        open.lost &= answer.is_none();
        match answer {
            Some(Answer::Span { start, end }) => open.windows.push((window.clone(), start.clone(), end.clone())),
            other => open.text = other.map(Answer::text),
        }
        Ok(said)
    }

    fn close(&mut self) -> Result<Option<Said>, TextError> {
        let Some(Question { record, windows, text, lost }) = self.open.take() else { return Ok(None) };
        let logits: Vec<WindowLogits> =
            windows.iter().map(|(window, start, end)| WindowLogits { window, start, end }).collect();
        let found = match text {
            Some(text) if windows.is_empty() => text,
            _ => best_spans(&logits, &record.context, &self.config)?.text().to_owned(),
        };
        let golds: Vec<&str> = record.answers.iter().map(|answer| answer.text.as_str()).collect();
        self.score += match self.config.null_score_diff_threshold {
            // To say nothing is right where there is no answer, to be elsewhere never.
            _ if lost => AnswerScore { questions: 1, ..Default::default() },
            None => squad_v1(&golds, &found),
            Some(_) => squad_v2(&golds, &found),
        };
        let reference = golds.first().map_or(String::new(), |gold| (*gold).to_owned());
        Ok(Some(Said { name: record.origin.to_string(), reference, hypothesis: found }))
    }
}

impl Answer {
    /// What it says, as far as it says something by itself: spans and tags do with their sample only.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Label(text) => text.clone(),
            Self::Span { .. } | Self::Tags(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TagFeatures;
    use serde_json::json;
    use std::path::Path;
    use undertone_data::records::{Answer as Gold, Origin, Place};

    fn task(yaml: serde_json::Value) -> TaskConfig {
        serde_json::from_value(yaml).expect("a task")
    }

    fn sample(target: Target) -> TextSample {
        TextSample { name: "s".into(), ids: vec![1, 2, 3], type_ids: vec![0; 3], target }
    }

    #[test]
    fn errors_are_lower_when_better() {
        let mut score = TaskScore::new(&task(json!({"metrics": ["cer", "rouge1"]})));
        score.add_written("CQ DX", "CQ DX");
        score.add_written("ABCDE", "ABCDX");
        assert_eq!((score.metric("cer"), score.metric("wer"), score.metric("exact")), (0.1, 1.0 / 3.0, 0.5));
        assert_eq!((score.error("cer"), score.error("exact")), (0.1, 0.5));
        assert_eq!((score.metric("rouge1"), score.error("rouge1")), (0.5, 0.5));
    }

    #[test]
    fn every_metric_of_a_head_has_a_direction_and_one_without_makes_no_error() {
        for head in ["seq2seq", "classify", "span", "tag"] {
            let task = task(json!({"head": {"type": head}}));
            for metric in task.head.metrics() {
                assert!(direction_of(metric).is_some(), "{metric}");
            }
        }
        let mut score = TaskScore::new(&task(json!({"metrics": ["cer"]})));
        score.add_written("CQ DX", "CQ DX");
        assert!(score.error("brier").is_nan());
    }

    #[test]
    fn a_label_that_another_head_gave_is_wrong() {
        let mut score = TaskScore::new(&task(json!({"head": {"type": "classify", "labels": ["bad", "good"]}})));
        let good = Answer::Label("good".into());
        for (label, answer) in [(1, Some(&good)), (0, Some(&good)), (1, None), (1, Some(&good))] {
            score.add(&sample(Target::Label(label)), answer).expect("scored");
        }
        assert_eq!((score.metric("accuracy"), score.error("accuracy")), (0.5, 0.5));
        // `good`: precision 2 of 3, recall 2 of 3; `bad`: 0.
        assert!((score.metric("macro_f1") - 1.0 / 3.0).abs() < 1e-12);
    }

    /// Two windows of a context of four tokens, after a start token: the answer is the third, in the second window.
    fn question(answer: Option<&str>) -> (Arc<SpanRecord>, [Arc<SpanWindow>; 2]) {
        let context = "w x y z".to_owned();
        let answers = answer.map(|text| Gold { text: text.into(), start: context.find(text).expect("there") });
        let record = SpanRecord {
            id: "1".into(),
            question: "q".into(),
            context,
            answers: answers.into_iter().collect(),
            origin: Origin { path: Path::new("f").into(), place: Place::Line(1) },
        };
        let window = |first: usize| {
            let offset = |i: usize| Some((2 * (first + i), 2 * (first + i) + 1));
            let (ids, type_ids) = (vec![0; 3], vec![0; 3]);
            Arc::new(SpanWindow {
                record: 0,
                ids,
                type_ids,
                offsets: vec![None, offset(0), offset(1)],
                start: 0,
                end: 0,
            })
        };
        (Arc::new(record), [window(0), window(2)])
    }

    /// The best token of a window, by how much it is better.
    fn logits(token: usize, score: f32) -> Answer {
        let row: Vec<f32> = (0..3).map(|i| if i == token { score } else { 0.0 }).collect();
        Answer::Span { start: row.clone(), end: row }
    }

    #[test]
    fn a_question_is_scored_once_over_all_of_its_windows() {
        let head = json!({"head": {"type": "span"}});
        let (record, windows) = question(Some("y"));
        let mut score = TaskScore::new(&task(head.clone()));
        let at = |window: &Arc<SpanWindow>| sample(Target::Span { window: window.clone(), record: record.clone() });
        assert_eq!(score.add(&at(&windows[0]), Some(&logits(1, 2.0))).expect("scored"), None);
        assert_eq!(score.add(&at(&windows[1]), Some(&logits(1, 5.0))).expect("scored"), None);
        let said = score.finish().expect("scored").expect("said");
        assert_eq!((said.name.as_str(), said.reference.as_str(), said.hypothesis.as_str()), ("f line 1", "y", "y"));
        assert_eq!((score.metric("f1"), score.metric("exact_match")), (1.0, 1.0));
        // A window that went elsewhere is missed; one that did not is enough.
        let mut partly = TaskScore::new(&task(head));
        partly.add(&at(&windows[0]), Some(&logits(1, 2.0))).expect("scored");
        partly.add(&at(&windows[1]), None).expect("scored");
        partly.finish().expect("scored");
        assert_eq!(partly.metric("f1"), 0.0);
    }

    #[test]
    fn a_question_without_an_answer_is_right_where_the_head_says_so_and_nowhere_else() {
        let head = json!({"head": {"type": "span", "null_score_diff_threshold": 0.0}});
        let (record, [window, _]) = question(None);
        for (answer, expected) in [(Some(logits(0, 3.0)), 1.0), (Some(logits(1, 3.0)), 0.0), (None, 0.0)] {
            let mut score = TaskScore::new(&task(head.clone()));
            let target = Target::Span { window: window.clone(), record: record.clone() };
            score.add(&sample(target), answer.as_ref()).expect("scored");
            score.finish().expect("scored");
            assert_eq!(score.metric("f1"), expected);
        }
    }

    #[test]
    fn tags_are_read_from_the_first_token_of_each_word() {
        let head = json!({"head": {"type": "tag", "labels": ["O", "B-x", "I-x"]}});
        let features = TagFeatures {
            ids: vec![0; 4],
            type_ids: vec![0; 4],
            labels: vec![-100, 1, -100, 0],
            words: vec![None, Some(0), Some(0), Some(1)],
            word_count: 2,
            lost: 0,
            cut: 0,
        };
        let target = Target::Tags { features: Arc::new(features), tags: vec![1, 0] };
        for (answer, f1) in [(Some(vec![2, 1, 2, 0]), 1.0), (Some(vec![0, 0, 1, 0]), 0.0), (None, 0.0)] {
            let mut score = TaskScore::new(&task(head.clone()));
            score.add(&sample(target.clone()), answer.map(Answer::Tags).as_ref()).expect("scored");
            assert_eq!(score.metric("entity_f1"), f1);
        }
        assert_eq!(TaskScore::new(&task(head)).error("entity_f1"), 0.0, "nothing was asked and nothing is wrong");
    }
}
