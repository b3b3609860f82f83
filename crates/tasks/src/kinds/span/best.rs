use serde::{Deserialize, Serialize};

use super::SpanWindow;
use crate::TextError;

/// Limits on answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerConfig {
    /// Number of answers that are kept and share the probability.
    pub n_best: usize,
    /// Maximum number of tokens of an answer.
    pub max_answer_length: usize,
    /// Threshold by which the score of no answer must exceed that of the best answer. Without it, every question has an
    /// answer.
    pub null_score_diff_threshold: Option<f32>,
}

impl Default for AnswerConfig {
    /// Customary values for SQuAD 1.1.
    fn default() -> Self {
        Self { n_best: 20, max_answer_length: 30, null_score_diff_threshold: None }
    }
}

/// Maximum number of answers that are kept: each is compared with all others.
const MOST_ANSWERS: usize = 1000;

impl AnswerConfig {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), TextError> {
        let fail = |reason: &str| Err(TextError::Config { reason: reason.into() });
        match self {
            Self { n_best: 0, .. } => fail("`n_best` is 0: keep at least 1 answer"),
            Self { n_best, .. } if *n_best > MOST_ANSWERS => {
                fail(&format!("`n_best` is {n_best}: keep at most {MOST_ANSWERS} answers"))
            }
            Self { max_answer_length: 0, .. } => fail("`max_answer_length` is 0: an answer has at least 1 token"),
            Self { null_score_diff_threshold: Some(threshold), .. } if threshold.is_nan() => {
                fail("`null_score_diff_threshold` is not a number: give 0 or a margin")
            }
            _ => Ok(()),
        }
    }
}

/// A window and the model's logits for each of its tokens; logits beyond the tokens belong to padding.
#[derive(Clone, Copy, Debug)]
pub struct WindowLogits<'w> {
    /// Window.
    pub window: &'w SpanWindow,
    /// Logit of each token that the answer starts with it.
    pub start: &'w [f32],
    /// Logit of each token that the answer ends with it.
    pub end: &'w [f32],
}

/// A span of a context with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredSpan {
    /// Text of the span, as in the context.
    pub text: String,
    /// Start in characters.
    pub start: usize,
    /// End in characters.
    pub end: usize,
    /// Score: the sum of its logits.
    pub score: f32,
    /// Softmax of the score over the spans that are kept and, if a question may have no answer, over that option.
    pub probability: f32,
}

/// A model's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanPrediction {
    /// Best spans, the best first; empty if the context has no tokens.
    pub spans: Vec<ScoredSpan>,
    /// Score of no answer: the minimum over the windows, because a window that contains the answer has a low one.
    pub null_score: f32,
    /// Whether the model predicts that there is no answer.
    pub no_answer: bool,
}

impl SpanPrediction {
    /// Text of the answer; empty if there is none.
    pub fn text(&self) -> &str {
        if self.no_answer { "" } else { self.spans.first().map_or("", |span| &span.text) }
    }
}

/// Returns the answer to a record's question from all of its windows.
///
/// All pairs of a start and an end in the context that are not too long are candidates, scored by the sum of their
/// logits. A span that is in two windows gets the higher of both scores. NaN logits count as minus infinity.
///
/// # Errors
/// If the configuration is out of bounds, or a window has fewer logits than tokens.
pub fn best_spans(windows: &[WindowLogits], context: &str, config: &AnswerConfig) -> Result<SpanPrediction, TextError> {
    config.validate()?;
    let bytes: Vec<usize> = context.char_indices().map(|(byte, _)| byte).chain([context.len()]).collect();
    let mut spans = Vec::new();
    let mut null_score = f32::INFINITY;
    for WindowLogits { window, start, end } in windows {
        let expected = window.ids.len();
        if let Some(found) = [start.len(), end.len()].into_iter().find(|found| *found < expected) {
            return Err(TextError::Count { what: "logits", found, of: "tokens", expected });
        }
        if let (Some(start), Some(end)) = (start.first(), end.first()) {
            null_score = null_score.min(number(start + end));
        }
        spans.extend(candidates(window, start, end, context, &bytes, config));
    }
    let mut spans = best(spans, config.n_best);
    let no_answer = match (config.null_score_diff_threshold, spans.first()) {
        (_, None) => true,
        (None, _) => false,
        (Some(threshold), Some(best)) => null_score - best.score > threshold,
    };
    share_probability(&mut spans, config.null_score_diff_threshold.map(|_| null_score));
    Ok(SpanPrediction { spans, null_score, no_answer })
}

/// Best spans of a window, without their probability.
fn candidates(
    window: &SpanWindow,
    start: &[f32],
    end: &[f32],
    context: &str,
    bytes: &[usize],
    config: &AnswerConfig,
) -> Vec<ScoredSpan> {
    let inside: Vec<_> = (window.offsets.iter().enumerate())
        .filter_map(|(token, offset)| offset.filter(|(from, to)| from <= to && *to < bytes.len()).map(|o| (token, o)))
        .collect();
    let spans = inside.iter().enumerate().flat_map(|(at, &(first, (from, _)))| {
        let ends = inside[at..].iter().take_while(move |(last, _)| last - first < config.max_answer_length);
        ends.map(move |(last, (_, to))| (number(start[first] + end[*last]), from, *to))
    });
    // If a character has several tokens, two spans of tokens may cover the same characters.
    let mut spans: Vec<_> = spans.collect();
    spans.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut kept: Vec<ScoredSpan> = Vec::new();
    for (score, from, to) in spans {
        if kept.len() == config.n_best {
            break;
        }
        let Some((from, to)) = trimmed(context, bytes, from, to) else { continue };
        if !kept.iter().any(|span| (span.start, span.end) == (from, to)) {
            let text = context[bytes[from]..bytes[to]].to_owned();
            kept.push(ScoredSpan { text, start: from, end: to, score, probability: 0.0 });
        }
    }
    kept
}

/// Removes white space around a span, which byte-level tokens may contain; `None` if nothing else is left.
fn trimmed(context: &str, bytes: &[usize], from: usize, to: usize) -> Option<(usize, usize)> {
    let text = context.get(*bytes.get(from)?..*bytes.get(to)?)?;
    let before = text.chars().take_while(|c| c.is_whitespace()).count();
    let after = text.chars().rev().take_while(|c| c.is_whitespace()).count();
    (before + after < to - from).then(|| (from + before, to - after))
}

/// Best spans of all windows, without duplicates.
fn best(mut spans: Vec<ScoredSpan>, count: usize) -> Vec<ScoredSpan> {
    spans.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.start, a.end).cmp(&(b.start, b.end))));
    let mut kept: Vec<ScoredSpan> = Vec::new();
    for span in spans {
        if kept.len() < count && !kept.iter().any(|other| (other.start, other.end) == (span.start, span.end)) {
            kept.push(span);
        }
    }
    kept
}

/// Sets the probabilities to the softmax of the scores, with that of no answer if it is possible.
fn share_probability(spans: &mut [ScoredSpan], null_score: Option<f32>) {
    let highest = spans.iter().map(|span| span.score).chain(null_score).fold(f32::NEG_INFINITY, f32::max);
    // The comparison also covers an infinite maximum, whose difference from itself is NaN.
    let weight = |score: f32| if score == highest { 1.0 } else { (score - highest).exp() };
    let sum: f32 = spans.iter().map(|span| span.score).chain(null_score).map(weight).sum();
    for span in spans {
        span.probability = weight(span.score) / sum;
    }
}

/// Returns a score that can be compared: NaN becomes minus infinity.
fn number(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score }
}

#[cfg(test)]
mod tests {
    use super::super::{WindowConfig, span_windows};
    use super::*;
    use crate::Framer;
    use crate::testing::{bytes, origin, real, words};
    use proptest::prelude::*;
    use undertone_data::records::{Answer, RecordsConfig, SpanRecord};
    use undertone_testing::shared;

    const CONTEXT: &str = "a is a the lions a is a";

    /// Two windows of [`CONTEXT`]: [CLS] what [SEP], tokens 0..5 and 3..8 of it, and [SEP].
    fn two() -> Vec<SpanWindow> {
        let answers = Vec::new();
        let record =
            SpanRecord { id: "1".into(), question: "what".into(), context: CONTEXT.into(), answers, origin: origin() };
        let found = span_windows(&words(), &[record], &WindowConfig { max_length: 9, doc_stride: 2 }).unwrap();
        assert_eq!(found.iter().map(|window| window.ids.len()).collect::<Vec<_>>(), [9, 9]);
        found
    }

    /// Logits that are 0 except for the given ones.
    fn logits<const N: usize>(values: [(usize, f32); N]) -> Vec<f32> {
        let mut logits = vec![0.0; 12];
        values.into_iter().for_each(|(at, value)| logits[at] = value);
        logits
    }

    fn predict(starts: [Vec<f32>; 2], ends: [Vec<f32>; 2], config: &AnswerConfig) -> SpanPrediction {
        let windows = two();
        let given = windows.iter().zip(starts.iter().zip(&ends));
        let given: Vec<_> = given.map(|(window, (start, end))| WindowLogits { window, start, end }).collect();
        best_spans(&given, CONTEXT, config).unwrap()
    }

    #[test]
    fn the_best_span_of_all_windows_is_cut_from_the_context() {
        // In the second window the lions are tokens 3 and 4. The high logits of the question and of [SEP] must be
        // ignored, as must an end before its start.
        let starts = [logits([(1, 90.0)]), logits([(3, 5.0), (6, 9.0)])];
        let ends = [logits([(8, 90.0)]), logits([(4, 4.0), (5, -50.0), (6, -50.0), (7, -50.0)])];
        let found = predict(starts, ends, &AnswerConfig::default());
        assert_eq!(
            (found.text(), found.spans[0].start, found.spans[0].end, found.spans[0].score),
            ("the lions", 7, 16, 9.0)
        );
        let sum: f32 = found.spans.iter().map(|span| span.probability).sum();
        assert!((sum - 1.0).abs() < 1e-5 && found.spans.len() == 20);
        assert!(found.spans.is_sorted_by(|a, b| a.score >= b.score && a.probability >= b.probability));
    }

    #[test]
    fn a_span_seen_twice_is_kept_once_with_its_better_score() {
        let starts = [logits([(6, 2.0)]), logits([(3, 3.0)])];
        let found =
            predict(starts.clone(), starts.clone(), &AnswerConfig { max_answer_length: 1, ..Default::default() });
        let the: Vec<_> = found.spans.iter().filter(|span| span.text == "the").map(|span| span.score).collect();
        assert_eq!((the, found.spans.len()), (vec![6.0], 8), "one for each word");
        let e = f32::exp(6.0) / (f32::exp(6.0) + 7.0);
        assert!((found.spans[0].probability - e).abs() < 1e-6);
        let two = AnswerConfig { n_best: 2, max_answer_length: 2, ..Default::default() };
        assert_eq!(
            predict(starts.clone(), starts, &two).spans.iter().map(|span| span.text.as_str()).collect::<Vec<_>>(),
            ["the", "the lions"]
        );
    }

    #[test]
    fn no_answer_needs_a_margin() {
        let at = |threshold| {
            let config = AnswerConfig { null_score_diff_threshold: threshold, n_best: 1, ..Default::default() };
            // The second window contains the answer, so the score of its start token counts.
            let starts = [logits([(0, 9.0)]), logits([(0, 3.0), (3, 2.0)])];
            predict(starts.clone(), starts, &config)
        };
        assert_eq!((at(None).text(), at(None).null_score, at(None).spans[0].probability), ("the", 6.0, 1.0));
        assert_eq!((at(Some(0.0)).text(), at(Some(2.0)).text(), at(Some(1.9)).no_answer), ("", "the", true));
        assert!((at(Some(0.0)).spans[0].probability - 1.0 / (1.0 + f32::exp(2.0))).abs() < 1e-6);
    }

    #[test]
    fn odd_logits_are_no_panic() {
        let with = |value: f32| {
            predict([vec![value; 9], vec![value; 9]], [vec![value; 9], vec![value; 9]], &AnswerConfig::default())
        };
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let found = with(value);
            assert_eq!(found.spans.len(), 20, "{value}");
            assert!(found.spans.iter().all(|span| (span.probability - 0.05).abs() < 1e-6), "{value}: {found:?}");
        }
        let windows = two();
        let short = WindowLogits { window: &windows[0], start: &[0.0; 9], end: &[0.0; 8] };
        let error = best_spans(&[short], CONTEXT, &AnswerConfig::default()).unwrap_err().to_string();
        assert_eq!(error, "there are 8 logits for 9 tokens; give as many");
        let whole = WindowLogits { window: &windows[0], start: &[0.0; 9], end: &[0.0; 9] };
        let found = best_spans(&[whole], "a", &AnswerConfig::default()).unwrap();
        assert_eq!((found.text(), found.spans.len()), ("a", 1), "offsets beyond another context are left out");
        let found = best_spans(&[], "", &AnswerConfig::default()).unwrap();
        assert_eq!((found.text(), found.no_answer), ("", true));
    }

    #[test]
    fn configurations_out_of_bounds_are_refused() {
        for (config, key) in [
            (AnswerConfig { n_best: 0, ..Default::default() }, "`n_best`"),
            (AnswerConfig { max_answer_length: 0, ..Default::default() }, "`max_answer_length`"),
            (
                AnswerConfig { null_score_diff_threshold: Some(f32::NAN), ..Default::default() },
                "`null_score_diff_threshold`",
            ),
        ] {
            assert!(best_spans(&[], "", &config).unwrap_err().to_string().starts_with(key));
        }
    }

    /// Evaluates a perfect model: returns the number of records recovered exactly, and the others.
    fn recovered(framer: &Framer, records: &[SpanRecord], config: &WindowConfig) -> (usize, Vec<[String; 2]>) {
        let windows = span_windows(framer, records, config).unwrap();
        let one = |at: usize, length: usize| {
            (0..length).map(|token| if token == at { 9.0 } else { 0.0 }).collect::<Vec<f32>>()
        };
        let logits: Vec<_> = windows
            .iter()
            .map(|window| (one(window.start, window.ids.len()), one(window.end, window.ids.len())))
            .collect();
        let answers = AnswerConfig { n_best: 1, max_answer_length: 100, null_score_diff_threshold: None };
        let mut exact = 0;
        let mut others = Vec::new();
        for (number, record) in records.iter().enumerate() {
            let own = windows.iter().zip(&logits).filter(|(window, _)| window.record == number);
            let own: Vec<_> = own.map(|(window, (start, end))| WindowLogits { window, start, end }).collect();
            let found = best_spans(&own, &record.context, &answers).unwrap();
            let gold = &record.answers[0];
            match found.spans.first() {
                Some(span) if span.text == gold.text && span.start == gold.start => exact += 1,
                span => others.push([gold.text.clone(), span.map_or(String::new(), |span| span.text.clone())]),
            }
        }
        (exact, others)
    }

    #[test]
    fn gold_answers_of_squad_come_back_through_windows_and_offsets() {
        let Some(path) = shared("data/squad/squad_36_articles.jsonl") else { return };
        let records = SpanRecord::read(&RecordsConfig { path: path.into(), ..Default::default() }).unwrap();
        // The other answers begin or end within a token: in WordPiece's words (`tempted` in `attempted`, `Japan` in
        // `Japanese`), and in RoBERTa's runs of punctuation as well (`(GTCS)` and a full stop are one token, `).`).
        for (name, expected) in [("minilm-l6", 4301), ("roberta-base-tokenizer", 4274)] {
            let Some(framer) = real(name) else { continue };
            for (max_length, doc_stride) in [(384, 128), (128, 64)] {
                let (exact, others) = recovered(&framer, &records, &WindowConfig { max_length, doc_stride });
                assert_eq!((exact, exact + others.len()), (expected, 4309), "{name} at {max_length}");
                assert!(others.iter().all(|[gold, found]| found.contains(gold.as_str())), "{name}: {others:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_answer_of_whole_tokens_comes_back(
            words_of in prop::collection::vec("(a|is|the|lions|roar|é|🦁|[.?]| )", 1..30), from in 0usize..30, count in 1usize..4,
        ) {
            let context = words_of.join(" ");
            let chosen: Vec<_> = words_of.iter().skip(from % words_of.len()).take(count).cloned().collect();
            let text = chosen.join(" ").trim().to_owned();
            prop_assume!(!text.is_empty());
            let start = context.find(&text).map(|byte| context[..byte].chars().count()).unwrap();
            // The first occurrence of the text may be inside a longer word.
            let free = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            let end = start + text.chars().count();
            prop_assume!(start == 0 || free(context.chars().nth(start - 1)));
            prop_assume!(free(context.chars().nth(end)));
            let answers = vec![Answer { text, start }];
            let record = SpanRecord { id: String::new(), question: "a".into(), context, answers, origin: origin() };
            for (framer, max_length) in [(words(), 14), (bytes(), 60)] {
                let config = WindowConfig { max_length, doc_stride: max_length / 2 + 1 };
                let (exact, others) = recovered(&framer, std::slice::from_ref(&record), &config);
                prop_assert_eq!(exact, 1, "{:?}", others);
            }
        }
    }
}
