//! Metrics of question answering.

use super::best::{WindowLogits, best_span};
use super::config::SpanConfig;
use super::windows::SpanWindow;
use crate::{Answer, BoxError, ScoredText, TaskScore, TextError, TextSample};
use std::sync::Arc;
use undertone_data::records::SpanRecord;
use undertone_metrics::{AnswerScore, SampleScores, squad_v1, squad_v2};

/// Target of one window of a question's context; a question has as many samples as windows.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTarget {
    /// Window.
    pub window: SpanWindow,
    /// Question, context and answers, shared by the question's windows.
    pub record: Arc<SpanRecord>,
}

/// Answer: logits of the first and the last token over all tokens of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanAnswer {
    /// Logits of the first token.
    pub start: Vec<f32>,
    /// Logits of the last token.
    pub end: Vec<f32>,
}

/// Scores of questions; a question is scored once all of its windows have been added.
#[derive(Clone, Debug)]
pub(super) struct SpanScore {
    config: SpanConfig,
    questions: SampleScores<AnswerScore>,
    open: Option<Question>,
}

/// A question of which some windows have been added.
#[derive(Clone, Debug)]
struct Question {
    record: Arc<SpanRecord>,
    windows: Vec<(SpanTarget, SpanAnswer)>,
    /// Answer of a baseline or another head that returns text instead of spans.
    text: Option<String>,
    /// Whether no window was routed to the task's own head.
    lost: bool,
}

impl SpanScore {
    pub fn new(config: SpanConfig) -> Self {
        Self { config, questions: SampleScores::default(), open: None }
    }

    fn close(&mut self) -> Result<Option<ScoredText>, TextError> {
        let Some(Question { record, windows, text, lost }) = self.open.take() else { return Ok(None) };
        let logits = windows.iter().map(|(target, answer)| WindowLogits {
            window: &target.window,
            start: &answer.start,
            end: &answer.end,
        });
        let logits: Vec<WindowLogits> = logits.collect();
        let found = match text {
            Some(text) if windows.is_empty() => text,
            _ => best_span(&logits, &record.context, &self.config)?.to_owned(),
        };
        let golds: Vec<&str> = record.answers.iter().map(|answer| answer.text.as_str()).collect();
        let score = match self.config.null_score_diff_threshold {
            // An empty answer is right if the question has none; being routed to another head never is.
            _ if lost => AnswerScore { questions: 1, ..Default::default() },
            None => squad_v1(&golds, &found),
            Some(_) => squad_v2(&golds, &found),
        };
        self.questions.add(score);
        let reference = golds.first().map_or(String::new(), |gold| (*gold).to_owned());
        Ok(Some(ScoredText { name: record.origin.to_string(), reference, hypothesis: found }))
    }
}

impl TaskScore for SpanScore {
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let target = sample.target.get::<SpanTarget>()?;
        let same = self.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.record, &target.record));
        let said = if same { None } else { self.close()? };
        let question = Question { record: target.record.clone(), windows: Vec::new(), text: None, lost: true };
        let open = self.open.get_or_insert(question);
        open.lost &= answer.is_none();
        match answer.and_then(Answer::get::<SpanAnswer>) {
            Some(logits) => open.windows.push((target.clone(), logits.clone())),
            None => open.text = answer.map(|answer| answer.as_str().to_owned()),
        }
        Ok(said)
    }

    fn finish(&mut self) -> Result<Option<ScoredText>, BoxError> {
        Ok(self.close()?)
    }

    fn metric(&self, name: &str) -> Option<f64> {
        figure(name)(self.questions.sum())
    }

    fn samples(&self) -> usize {
        self.questions.len()
    }

    fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        figure(name)(&self.questions.sum_of(samples))
    }
}

fn figure(name: &str) -> fn(&AnswerScore) -> Option<f64> {
    if name == "f1" { AnswerScore::f1 } else { AnswerScore::exact_match }
}

#[cfg(test)]
mod tests {
    use super::super::SpanConfig;
    use super::*;
    use crate::testing::{assert_costs_what_samples_cost, origin};
    use crate::{HeadConfig, Score, Target};
    use undertone_data::records::Answer as Gold;

    fn sample(target: SpanTarget) -> TextSample {
        crate::testing::sample(3, Target::new(target, 1))
    }

    fn span(length: usize, start: usize, end: usize) -> Target {
        let offsets = (0..length).map(|i| (i > 1 && i + 1 < length).then_some((i, i + 1))).collect();
        let window = SpanWindow { record: 0, ids: vec![5; length], type_ids: vec![0; length], offsets, start, end };
        let (question, context) = ("q".into(), "c".into());
        let record = SpanRecord { id: String::new(), question, context, answers: Vec::new(), origin: origin() };
        Target::new(SpanTarget { window, record: Arc::new(record) }, 1)
    }

    #[test]
    fn a_batch_costs_what_its_samples_cost_by_themselves() {
        assert_costs_what_samples_cost(&HeadConfig::new(SpanConfig::default()), [span(6, 2, 4), span(4, 0, 0)]);
    }

    /// Two windows of a context of four tokens, after a start token: the answer is the third, in the second window.
    fn question(answer: Option<&str>) -> [SpanTarget; 2] {
        let context = "w x y z".to_owned();
        let answers = answer.map(|text| Gold { text: text.into(), start: context.find(text).expect("there") });
        let record = SpanRecord {
            id: "1".into(),
            question: "q".into(),
            context,
            answers: answers.into_iter().collect(),
            origin: origin(),
        };
        let record = Arc::new(record);
        [0, 2].map(|first: usize| {
            let offset = |i: usize| Some((2 * (first + i), 2 * (first + i) + 1));
            let offsets = vec![None, offset(0), offset(1)];
            let window = SpanWindow { record: 0, ids: vec![0; 3], type_ids: vec![0; 3], offsets, start: 0, end: 0 };
            SpanTarget { window, record: record.clone() }
        })
    }

    /// Logits that favour one token of a window by `score`.
    fn logits(token: usize, score: f32) -> Answer {
        let row: Vec<f32> = (0..3).map(|i| if i == token { score } else { 0.0 }).collect();
        Answer::value(SpanAnswer { start: row.clone(), end: row })
    }

    #[test]
    fn a_question_is_scored_once_over_all_of_its_windows() {
        let head = HeadConfig::new(SpanConfig::default());
        let windows = question(Some("y")).map(sample);
        let mut score = Score::new(&head, &[]);
        assert_eq!(score.add(&windows[0], Some(&logits(1, 2.0))).expect("scored"), None);
        assert_eq!(score.add(&windows[1], Some(&logits(1, 5.0))).expect("scored"), None);
        let said = score.finish().expect("scored").expect("said");
        assert_eq!(
            (said.name.as_str(), said.reference.as_str(), said.hypothesis.as_str()),
            ("test.jsonl line 1", "y", "y")
        );
        assert_eq!((score.metric("f1"), score.metric("exact_match")), (1.0, 1.0));
        // A window routed to another head is missed; the question is scored by its other window alone.
        let mut partly = Score::new(&head, &[]);
        partly.add(&windows[0], Some(&logits(1, 2.0))).expect("scored");
        partly.add(&windows[1], None).expect("scored");
        partly.finish().expect("scored");
        assert_eq!(partly.metric("f1"), 0.0);
    }

    #[test]
    fn a_question_without_an_answer_is_right_where_the_head_says_so_and_nowhere_else() {
        let head = HeadConfig::new(SpanConfig { null_score_diff_threshold: Some(0.0), ..Default::default() });
        let [window, _] = question(None).map(sample);
        for (answer, expected) in [(Some(logits(0, 3.0)), 1.0), (Some(logits(1, 3.0)), 0.0), (None, 0.0)] {
            let mut score = Score::new(&head, &[]);
            score.add(&window, answer.as_ref()).expect("scored");
            score.finish().expect("scored");
            assert_eq!(score.metric("f1"), expected);
        }
    }
}
