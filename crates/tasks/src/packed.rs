//! Serialisation of an answer's numbers as text, to send them to another process.

use std::fmt::Display;
use std::str::FromStr;

/// Returns the numbers, separated by spaces.
pub(crate) fn packed_numbers<T: Display>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// Parses such a text; `None` if it is invalid.
pub(crate) fn unpacked_numbers<T: FromStr>(packed: &str) -> Option<Vec<T>> {
    packed.split_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use crate::kinds::classify::{ClassifyConfig, Label};
    use crate::kinds::seq2seq::Seq2seqConfig;
    use crate::kinds::span::{SpanAnswer, SpanConfig};
    use crate::kinds::tag::{TagConfig, TokenTags};
    use crate::{Answer, TaskKind};

    #[test]
    fn what_the_built_in_kinds_answer_arrives_as_it_was() {
        let labels = vec!["a".to_owned(), "b".to_owned()];
        let classify = ClassifyConfig { labels, ..Default::default() };
        let packed = classify.pack(&Answer::value(Label(1))).expect("packed");
        assert_eq!(classify.unpack(&packed).expect("unpacked").get(), Some(&Label(1)));
        assert!(classify.unpack("2").is_none() && classify.unpack("a").is_none());

        let tag = TagConfig::default();
        for tags in [vec![], vec![3, 0, 12]] {
            let packed = tag.pack(&Answer::value(TokenTags(tags.clone()))).expect("packed");
            assert_eq!(tag.unpack(&packed).expect("unpacked").get(), Some(&TokenTags(tags)));
        }

        let span = SpanConfig::default();
        let (start, end) = (vec![0.1, f32::NEG_INFINITY, -0.0], vec![f32::MIN_POSITIVE, 3.0, f32::NAN]);
        let packed = span.pack(&Answer::value(SpanAnswer { start: start.clone(), end: end.clone() })).expect("packed");
        let found = span.unpack(&packed).expect("unpacked");
        let found = found.get::<SpanAnswer>().expect("a span");
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        assert_eq!((bits(&found.start), bits(&found.end)), (bits(&start), bits(&end)));

        let seq2seq = Seq2seqConfig::default();
        let packed = seq2seq.pack(&Answer::text("two words")).expect("packed");
        assert_eq!(seq2seq.unpack(&packed).expect("unpacked").as_str(), "two words");
        assert!(seq2seq.pack(&Answer::value(3)).is_none(), "a value of somebody else");
    }
}
