//! A task's metrics over an evaluation set.

use super::answer::Answer;
use super::config::TaskConfig;
use super::head_config::{HeadConfig, OUTSIDE, direction};
use super::text_data::{Target, TextSample};
use crate::analysis::Direction;
use crate::text::{AnswerConfig, SpanWindow, TextError, WindowLogits, best_spans};
use std::sync::Arc;
use undertone_data::records::SpanRecord;
use undertone_train::BoxError;
use undertone_train::metrics::{
    AnswerScore, Bleu, ConfusionMatrix, EntityScore, ErrorRate, Rouge, bleu, cer, entities, rouge, squad_v1, squad_v2,
    wer,
};

/// What a task's answers have scored so far. An answer of another task's head counts as wrong.
#[derive(Clone, Debug)]
pub(super) enum TaskScore {
    Written(WrittenScore),
    Labels { names: Vec<String>, found: ConfusionMatrix<String> },
    Spans(SpanScore),
    Tags { names: Vec<String>, found: EntityScore },
}

/// What should have been said and what was.
pub(super) type Said = (String, String);

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
    pub fn add_written(&mut self, reference: &str, answer: &Answer) -> Option<Said> {
        let Self::Written(score) = self else { return None };
        let hypothesis = answer.text();
        score.add(reference, &hypothesis);
        Some((reference.to_owned(), hypothesis))
    }

    /// Counts the answer to a sample of text. What was said is known at once, or for a question at its last window.
    pub fn add(&mut self, sample: &TextSample, answer: &Answer) -> Result<Option<Said>, BoxError> {
        match (self, &sample.target) {
            (score @ Self::Written(_), Target::Text { text, .. }) => Ok(score.add_written(text, answer)),
            (Self::Labels { names, found }, Target::Label(label)) => {
                let said = (names[*label].clone(), answer.text());
                found.add(said.0.clone(), said.1.clone());
                Ok(Some(said))
            }
            (Self::Spans(score), Target::Span { window, record }) => score.add(window, record, answer),
            (Self::Tags { names, found }, Target::Tags { features, tags }) => {
                let outside = names.iter().position(|name| name == OUTSIDE).unwrap_or_default();
                let read = match answer {
                    Answer::Tags(tokens) if tokens.iter().all(|tag| *tag < names.len()) => {
                        features.word_tags(tokens, outside)?
                    }
                    _ => vec![outside; tags.len()],
                };
                let named = |tags: &[usize]| tags.iter().map(|tag| names[*tag].as_str()).collect::<Vec<_>>();
                let (expected, found_tags) = (named(tags), named(&read));
                *found += entities(&expected, &found_tags)?;
                Ok(Some((expected.join(" "), found_tags.join(" "))))
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
            Self::Labels { found, .. } => found.macro_f1(),
            Self::Spans(SpanScore { score, .. }) if name == "f1" => score.f1(),
            Self::Spans(SpanScore { score, .. }) => score.exact_match(),
            Self::Tags { found, .. } => found.micro().map(|score| score.f1),
        };
        value.unwrap_or(f64::NAN)
    }

    /// The metric as an error: lower is better.
    pub fn error(&self, name: &str) -> f64 {
        match direction(name) {
            Direction::Lower => self.metric(name),
            Direction::Higher => 1.0 - self.metric(name),
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
        answer: &Answer,
    ) -> Result<Option<Said>, BoxError> {
        let same = self.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.record, record));
        let said = if same { None } else { self.close()? };
        let question = Question { record: record.clone(), windows: Vec::new(), text: None };
        let open = self.open.get_or_insert(question);
        match answer {
            Answer::Span { start, end } => open.windows.push((window.clone(), start.clone(), end.clone())),
            other => open.text = Some(other.text()),
        }
        Ok(said)
    }

    fn close(&mut self) -> Result<Option<Said>, TextError> {
        let Some(Question { record, windows, text }) = self.open.take() else { return Ok(None) };
        let logits: Vec<WindowLogits> =
            windows.iter().map(|(window, start, end)| WindowLogits { window, start, end }).collect();
        let found = match text {
            Some(text) if windows.is_empty() => text,
            _ => best_spans(&logits, &record.context, &self.config)?.text().to_owned(),
        };
        let golds: Vec<&str> = record.answers.iter().map(|answer| answer.text.as_str()).collect();
        self.score += match self.config.null_score_diff_threshold {
            None => squad_v1(&golds, &found),
            Some(_) => squad_v2(&golds, &found),
        };
        let reference = golds.first().map_or(String::new(), |gold| (*gold).to_owned());
        Ok(Some((reference, found)))
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

    fn task(yaml: serde_json::Value) -> TaskConfig {
        serde_json::from_value(yaml).expect("a task")
    }

    fn sample(target: Target) -> TextSample {
        TextSample { name: "s".into(), ids: vec![1, 2, 3], type_ids: vec![0; 3], target }
    }

    #[test]
    fn errors_are_lower_when_better() {
        let mut score = TaskScore::new(&task(serde_json::json!({"metrics": ["cer", "rouge1"]})));
        score.add_written("CQ DX", &Answer::Text("CQ DX".into()));
        score.add_written("ABCDE", &Answer::Text("ABCDX".into()));
        assert_eq!((score.metric("cer"), score.metric("wer"), score.metric("exact")), (0.1, 1.0 / 3.0, 0.5));
        assert_eq!((score.error("cer"), score.error("exact")), (0.1, 0.5));
        assert_eq!((score.metric("rouge1"), score.error("rouge1")), (0.5, 0.5));
    }

    #[test]
    fn a_label_of_another_tasks_is_wrong() {
        let head = serde_json::json!({"head": {"type": "classify", "labels": ["bad", "good"]}});
        let mut score = TaskScore::new(&task(head));
        for (label, answer) in [(1, Answer::Label("good".into())), (0, Answer::Label("good".into()))] {
            score.add(&sample(Target::Label(label)), &answer).expect("scored");
        }
        score.add(&sample(Target::Label(1)), &Answer::Tags(vec![0, 1, 0])).expect("scored");
        score.add(&sample(Target::Label(1)), &Answer::Label("good".into())).expect("scored");
        assert_eq!(score.metric("accuracy"), 0.5);
        assert_eq!(score.error("accuracy"), 0.5);
    }
}
