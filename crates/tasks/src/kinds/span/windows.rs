use tokenizers::{Encoding, TruncationDirection};
use undertone_data::records::{Answer, SpanRecord};

use super::config::SpanConfig;
use crate::{Framer, TextError};

/// A question and a part of its context, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanWindow {
    /// Index of its record among the given ones.
    pub record: usize,
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// Token type of each token.
    pub type_ids: Vec<u32>,
    /// Start and end of each token in the context, in characters; `None` for tokens outside of the context.
    pub offsets: Vec<Option<(usize, usize)>>,
    /// First token of the first answer; 0, the start token, if the answer is not wholly in the window.
    pub start: usize,
    /// Last token of the first answer, or 0.
    pub end: usize,
}

/// Makes overlapping windows over the contexts of records, in their order; at least one per record.
///
/// A window shares `doc_stride` tokens of the context with the one before it, as in transformers (in BERT's own code it
/// is the distance between windows). An answer of at most one token more is whole in some window.
///
/// # Errors
/// If a question leaves too little room for its context, naming the record, or if the tokenizer rejects a text.
pub fn span_windows(
    framer: &Framer,
    records: &[SpanRecord],
    config: &SpanConfig,
) -> Result<Vec<SpanWindow>, TextError> {
    config.check_windows()?;
    let questions = framer.encode(records.iter().map(|record| record.question.as_str()))?;
    let contexts = framer.encode(records.iter().map(|record| record.context.as_str()))?;
    let mut windows = Vec::new();
    for (at, ((record, question), context)) in records.iter().zip(questions).zip(contexts).enumerate() {
        let (length, stride, special) = (config.max_length, config.doc_stride, framer.special(true));
        let room = length.saturating_sub(special + question.len());
        // A window holds the tokens that it shares with the one before it, and at least one more.
        if room <= stride {
            let (origin, tokens) = (record.origin.clone(), question.len());
            return Err(TextError::Question { origin, tokens, length, special, stride });
        }
        let target = record.answers.first().and_then(|answer| answer_tokens(&context, answer));
        for (first, part) in parts(context, room, stride) {
            let range = first..first + part.len();
            let target = target.filter(|(start, end)| range.contains(start) && range.contains(end));
            let row = framer.row(question.clone(), Some(part))?;
            windows.push(window(at, &row, target.map(|(start, end)| (start - first, end - first))));
        }
    }
    Ok(windows)
}

/// Makes a window from its row of tokens and the answer's first and last token among those of the context.
fn window(record: usize, row: &Encoding, target: Option<(usize, usize)>) -> SpanWindow {
    let sequences = row.get_sequence_ids().into_iter();
    let offsets: Vec<_> =
        sequences.zip(row.get_offsets()).map(|(sequence, offset)| (sequence == Some(1)).then_some(*offset)).collect();
    let before = offsets.iter().take_while(|offset| offset.is_none()).count();
    let (start, end) = target.map_or((0, 0), |(start, end)| (before + start, before + end));
    SpanWindow { record, ids: row.get_ids().to_vec(), type_ids: row.get_type_ids().to_vec(), offsets, start, end }
}

/// First and last token that contain characters of an answer; `None` if no token does.
fn answer_tokens(context: &Encoding, answer: &Answer) -> Option<(usize, usize)> {
    let (start, end) = (answer.start, answer.start.saturating_add(answer.text.chars().count()));
    let holds = |(from, to): &(usize, usize)| *from < end && start < *to;
    let offsets = context.get_offsets();
    Some((offsets.iter().position(holds)?, offsets.iter().rposition(holds)?))
}

/// Splits a context into parts of at most `room` tokens, each starting `room - stride` after the one before. Yields the
/// index of each part's first token with it; the last part is the first to reach the end.
fn parts(mut context: Encoding, room: usize, stride: usize) -> impl Iterator<Item = (usize, Encoding)> {
    context.truncate(room, stride, TruncationDirection::Right);
    let rest = context.take_overflowing();
    std::iter::once(context).chain(rest).enumerate().map(move |(number, part)| (number * (room - stride), part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, origin, words};

    fn record(question: &str, context: &str, answer: Option<(&str, usize)>) -> SpanRecord {
        let answers = answer.map(|(text, start)| Answer { text: text.into(), start }).into_iter().collect();
        SpanRecord { id: "1".into(), question: question.into(), context: context.into(), answers, origin: origin() }
    }

    fn windows(record: SpanRecord, max_length: usize, doc_stride: usize) -> Result<Vec<SpanWindow>, String> {
        let config = SpanConfig { max_length, doc_stride, ..Default::default() };
        span_windows(&words(), &[record], &config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_short_context_is_one_window() {
        let found = windows(record("what?", "A löion. roar", Some(("roar", 9))), 16, 4).unwrap();
        let [window] = &found[..] else { panic!("{found:?}") };
        assert_eq!(window.ids[..4], [2, 4, 8, 3]);
        assert_eq!(window.type_ids, [&[0; 4][..], &vec![1; window.ids.len() - 4]].concat());
        assert_eq!(window.offsets[..5], [None, None, None, None, Some((0, 1))]);
        assert_eq!((window.offsets[window.start], window.offsets[window.end]), (Some((9, 13)), Some((9, 13))));
        assert_eq!(window.offsets.last(), Some(&None));
    }

    #[test]
    fn windows_overlap_and_hold_an_answer_wholly_or_not() {
        // [CLS] what [SEP] leaves 4 tokens of context: 0..4, 2..6, 4..8, of which 3 and 4 are the answer.
        let found = windows(record("what", "a is a the lions a is a", Some(("the lions", 7))), 8, 2).unwrap();
        let context: Vec<_> = found
            .iter()
            .map(|window| window.offsets.iter().flatten().map(|offset| offset.0).collect::<Vec<_>>())
            .collect();
        assert_eq!(context, [vec![0, 2, 5, 7], vec![5, 7, 11, 17], vec![11, 17, 19, 22]]);
        assert_eq!(found.iter().map(|window| (window.start, window.end)).collect::<Vec<_>>(), [(0, 0), (4, 5), (0, 0)]);
        assert!(found.iter().all(|window| window.ids.len() == 8 && window.record == 0));
    }

    #[test]
    fn records_without_an_answer_or_a_context_point_at_the_start() {
        for (context, answer) in
            [("a lion", None), ("", None), ("\u{200b}", None), ("a \u{200b} lion", Some(("\u{200b}", 2)))]
        {
            let found = windows(record("what", context, answer), 16, 4).unwrap();
            assert_eq!((found.len(), found[0].start, found[0].end), (1, 0, 0), "{context:?}");
            assert_eq!((found[0].ids[..3].to_vec(), found[0].ids.last()), (vec![2, 4, 3], Some(&3)));
        }
    }

    #[test]
    fn a_question_without_room_is_an_error_that_names_the_record() {
        assert_eq!(
            windows(record("what is a lion", "a", None), 8, 1).unwrap_err(),
            "test.jsonl line 1: the question has 4 tokens, so a window of 8 with 3 special tokens and an overlap of 1 has \
             no room to move on in the context; shorten the question, raise `max_length` or lower `doc_stride`"
        );
        assert_eq!(windows(record("what is a lion", "a is a", None), 8, 0).unwrap().len(), 3);
        assert!(windows(record("what", "a", None), 2, 0).unwrap_err().contains("has 1 tokens"));
        assert!(windows(record("", "a", None), 8, 8).unwrap_err().starts_with("`doc_stride` is 8"));
    }

    #[test]
    fn byte_level_offsets_leave_spaces_out_and_count_characters() {
        let record = record("be?", " be 🦁 be", Some(("🦁", 4)));
        let window = span_windows(&bytes(), &[record], &SpanConfig::default()).unwrap().remove(0);
        let offsets: Vec<_> = window.offsets.iter().flatten().copied().collect();
        assert_eq!((offsets.first(), offsets.last()), (Some(&(1, 3)), Some(&(6, 8))));
        assert_eq!(window.end - window.start, 3, "the four bytes of a lion, without its space");
        assert_eq!(window.offsets[window.end], Some((4, 5)));
    }
}
