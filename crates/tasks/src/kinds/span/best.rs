use super::config::SpanConfig;
use super::windows::SpanWindow;
use crate::TextError;
use std::cmp::Ordering;

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

/// Returns the answer to a record's question from all of its windows, as it stands in the context; empty if there is
/// none.
///
/// All pairs of a start and an end in the context that are not too long are candidates, scored by the sum of their
/// logits. The best is the answer, and of equally good ones the first. NaN logits count as minus infinity. The score of
/// no answer is the minimum over the windows, because a window that contains the answer has a low one.
///
/// # Errors
/// If the configuration is out of bounds, or a window has fewer logits than tokens.
pub fn best_span<'c>(windows: &[WindowLogits], context: &'c str, config: &SpanConfig) -> Result<&'c str, TextError> {
    config.check_answers()?;
    let bytes: Vec<usize> = context.char_indices().map(|(byte, _)| byte).chain([context.len()]).collect();
    let mut best: Option<Candidate> = None;
    let mut null_score = f32::INFINITY;
    for logits in windows {
        let WindowLogits { window, start, end } = logits;
        let expected = window.ids.len();
        if let Some(found) = [start.len(), end.len()].into_iter().find(|found| *found < expected) {
            return Err(TextError::Count { what: "logits", found, of: "tokens", expected });
        }
        if let (Some(start), Some(end)) = (start.first(), end.first()) {
            null_score = null_score.min(number(start + end));
        }
        let candidates = candidates(logits, context, &bytes, config.max_answer_length);
        best = candidates.into_iter().chain(best).max_by(Candidate::compare);
    }
    let Some(Candidate { score, start, end }) = best else { return Ok("") };
    let no_answer = config.null_score_diff_threshold.is_some_and(|threshold| null_score - score > threshold);
    Ok(if no_answer { "" } else { &context[bytes[start]..bytes[end]] })
}

/// A span that may be the answer.
struct Candidate {
    score: f32,
    /// Start in characters.
    start: usize,
    /// End in characters.
    end: usize,
}

impl Candidate {
    /// Compares by the score; of equally good ones, the first in the context is greater.
    fn compare(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then((other.start, other.end).cmp(&(self.start, self.end)))
    }
}

/// Spans of a window of at most `longest` tokens. `bytes` are where the context's characters begin.
fn candidates(
    WindowLogits { window, start, end }: &WindowLogits,
    context: &str,
    bytes: &[usize],
    longest: usize,
) -> Vec<Candidate> {
    let inside: Vec<(usize, (usize, usize))> = (window.offsets.iter().enumerate())
        .filter_map(|(token, offset)| offset.filter(|(from, to)| from <= to && *to < bytes.len()).map(|o| (token, o)))
        .collect();
    let spans = inside.iter().enumerate().flat_map(|(at, &(first, (from, _)))| {
        let ends = inside[at..].iter().take_while(move |(last, _)| last - first < longest);
        ends.map(move |&(last, (_, to))| (number(start[first] + end[last]), from, to))
    });
    let spans = spans.filter_map(|(score, from, to)| {
        let (start, end) = trimmed(context, bytes, from, to)?;
        Some(Candidate { score, start, end })
    });
    spans.collect()
}

/// Removes white space around a span, which byte-level tokens may contain; `None` if nothing else is left.
fn trimmed(context: &str, bytes: &[usize], from: usize, to: usize) -> Option<(usize, usize)> {
    let text = context.get(*bytes.get(from)?..*bytes.get(to)?)?;
    let before = text.chars().take_while(|c| c.is_whitespace()).count();
    let after = text.chars().rev().take_while(|c| c.is_whitespace()).count();
    (before + after < to - from).then(|| (from + before, to - after))
}

/// Returns a score that can be compared: NaN becomes minus infinity.
fn number(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score }
}

#[cfg(test)]
mod tests {
    use super::super::span_windows;
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
        let found =
            span_windows(&words(), &[record], &SpanConfig { max_length: 9, doc_stride: 2, ..Default::default() })
                .unwrap();
        assert_eq!(found.iter().map(|window| window.ids.len()).collect::<Vec<_>>(), [9, 9]);
        found
    }

    /// Logits that are 0 except for the given ones.
    fn logits<const N: usize>(values: [(usize, f32); N]) -> Vec<f32> {
        let mut logits = vec![0.0; 12];
        values.into_iter().for_each(|(at, value)| logits[at] = value);
        logits
    }

    fn predict(starts: [Vec<f32>; 2], ends: [Vec<f32>; 2], config: &SpanConfig) -> &'static str {
        let windows = two();
        let given = windows.iter().zip(starts.iter().zip(&ends));
        let given: Vec<_> = given.map(|(window, (start, end))| WindowLogits { window, start, end }).collect();
        best_span(&given, CONTEXT, config).unwrap()
    }

    #[test]
    fn the_best_span_of_all_windows_is_cut_from_the_context() {
        // In the second window the lions are tokens 3 and 4. The high logits of the question and of [SEP] must be
        // ignored, as must an end before its start.
        let starts = [logits([(1, 90.0)]), logits([(3, 5.0), (6, 9.0)])];
        let ends = [logits([(8, 90.0)]), logits([(4, 4.0), (5, -50.0), (6, -50.0), (7, -50.0)])];
        assert_eq!(predict(starts, ends, &SpanConfig::default()), "the lions");
    }

    #[test]
    fn a_span_seen_twice_has_its_better_score_and_the_first_of_equal_ones_wins() {
        let starts = [logits([(6, 2.0)]), logits([(3, 3.0)])];
        let at = |threshold| {
            let null_score_diff_threshold = Some(threshold);
            let config = SpanConfig { max_answer_length: 1, null_score_diff_threshold, ..Default::default() };
            predict(starts.clone(), starts.clone(), &config)
        };
        // Its score is 6 in the second window and 4 in the first; that of no answer is 0.
        assert_eq!((at(-6.0), at(-6.1)), ("the", ""));
        // `the lions` has the logits of `the` and an end that is as good.
        let ends = [logits([]), logits([])];
        assert_eq!(predict(starts.clone(), ends, &SpanConfig::default()), "the");
        let ends = [logits([(6, 2.0)]), logits([])];
        assert_eq!(predict([logits([]), logits([])], ends, &SpanConfig::default()), "a is a the");
    }

    #[test]
    fn no_answer_needs_a_margin() {
        let at = |threshold| {
            let config = SpanConfig { null_score_diff_threshold: threshold, ..Default::default() };
            // The second window contains the answer, so the score of its start token counts.
            let starts = [logits([(0, 9.0)]), logits([(0, 3.0), (3, 2.0)])];
            predict(starts.clone(), starts, &config)
        };
        assert_eq!((at(None), at(Some(0.0)), at(Some(2.0)), at(Some(1.9))), ("the", "", "the", ""));
    }

    #[test]
    fn odd_logits_are_no_panic() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let all = || [vec![value; 9], vec![value; 9]];
            assert_eq!(predict(all(), all(), &SpanConfig::default()), "a", "{value}: the first of equally good ones");
        }
        let windows = two();
        let short = WindowLogits { window: &windows[0], start: &[0.0; 9], end: &[0.0; 8] };
        let error = best_span(&[short], CONTEXT, &SpanConfig::default()).unwrap_err().to_string();
        assert_eq!(error, "there are 8 logits for 9 tokens; give as many");
        let whole = WindowLogits { window: &windows[0], start: &[0.0; 9], end: &[0.0; 9] };
        let found = best_span(&[whole], "a", &SpanConfig::default()).unwrap();
        assert_eq!(found, "a", "offsets beyond another context are left out");
        assert_eq!(best_span(&[], "", &SpanConfig::default()).unwrap(), "");
    }

    #[test]
    fn configurations_out_of_bounds_are_refused() {
        for (config, key) in [
            (SpanConfig { n_best: 0, ..Default::default() }, "`n_best`"),
            (SpanConfig { max_answer_length: 0, ..Default::default() }, "`max_answer_length`"),
            (
                SpanConfig { null_score_diff_threshold: Some(f32::NAN), ..Default::default() },
                "`null_score_diff_threshold`",
            ),
        ] {
            assert!(best_span(&[], "", &config).unwrap_err().to_string().starts_with(key));
        }
    }

    /// Start of a part of a text, in characters.
    fn start_in(text: &str, part: &str) -> usize {
        text[..part.as_ptr().addr() - text.as_ptr().addr()].chars().count()
    }

    /// Evaluates a perfect model: returns the number of records recovered exactly, and the others.
    fn recovered(framer: &Framer, records: &[SpanRecord], config: &SpanConfig) -> (usize, Vec<[String; 2]>) {
        let windows = span_windows(framer, records, config).unwrap();
        let one = |at: usize, length: usize| {
            (0..length).map(|token| if token == at { 9.0 } else { 0.0 }).collect::<Vec<f32>>()
        };
        let logits: Vec<_> = windows
            .iter()
            .map(|window| (one(window.start, window.ids.len()), one(window.end, window.ids.len())))
            .collect();
        let mut exact = 0;
        let mut others = Vec::new();
        for (number, record) in records.iter().enumerate() {
            let own = windows.iter().zip(&logits).filter(|(window, _)| window.record == number);
            let own: Vec<_> = own.map(|(window, (start, end))| WindowLogits { window, start, end }).collect();
            let found = best_span(&own, &record.context, config).unwrap();
            let gold = &record.answers[0];
            if found == gold.text && start_in(&record.context, found) == gold.start {
                exact += 1;
            } else {
                others.push([gold.text.clone(), found.to_owned()]);
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
                let config = SpanConfig { max_length, doc_stride, max_answer_length: 100, ..Default::default() };
                let (exact, others) = recovered(&framer, &records, &config);
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
                let doc_stride = max_length / 2 + 1;
                let config = SpanConfig { max_length, doc_stride, max_answer_length: 100, ..Default::default() };
                let (exact, others) = recovered(&framer, std::slice::from_ref(&record), &config);
                prop_assert_eq!(exact, 1, "{:?}", others);
            }
        }
    }
}
