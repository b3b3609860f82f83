//! Token rows of a text or a pair.

use tokenizers::{TruncationParams, truncate_encodings};

use crate::framer::encode_error;
use crate::{Framer, TextError};

/// Token features of a text or a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifyFeatures {
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// Token type of each token: which of the two texts it belongs to, according to the tokenizer.
    pub type_ids: Vec<u32>,
    /// Number of tokens that did not fit.
    pub cut: usize,
}

/// Tokenizes texts or pairs into rows of at most `max_length` tokens. The longer text of a pair is truncated first.
///
/// # Errors
/// If `max_length` leaves no room for text, or the tokenizer rejects a text.
pub fn classify_features(
    framer: &Framer,
    texts: &[(&str, Option<&str>)],
    max_length: usize,
) -> Result<Vec<ClassifyFeatures>, TextError> {
    let firsts = framer.encode(texts.iter().map(|(text, _)| *text))?;
    let mut seconds = framer.encode(texts.iter().filter_map(|(_, pair)| *pair))?.into_iter();
    let seconds = texts.iter().map(|(_, pair)| pair.and_then(|_| seconds.next())).collect::<Vec<_>>();
    let rows = firsts.into_iter().zip(seconds).map(|(text, pair)| {
        let params = TruncationParams { max_length: framer.room(max_length, pair.is_some())?, ..Default::default() };
        let tokens = text.len() + pair.as_ref().map_or(0, |pair| pair.len());
        let cut = tokens.saturating_sub(params.max_length);
        let (mut text, mut pair) = truncate_encodings(text, pair, &params).map_err(encode_error)?;
        text.take_overflowing();
        if let Some(pair) = &mut pair {
            pair.take_overflowing();
        }
        let row = framer.row(text, pair)?;
        Ok(ClassifyFeatures { ids: row.get_ids().to_vec(), type_ids: row.get_type_ids().to_vec(), cut })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, words};
    use proptest::prelude::*;

    fn row(text: &str, pair: Option<&str>, max_length: usize) -> ClassifyFeatures {
        classify_features(&words(), &[(text, pair)], max_length).unwrap().remove(0)
    }

    #[test]
    fn texts_and_pairs_have_the_tokenizers_special_tokens_and_types() {
        assert_eq!(
            row("A lions?", None, 16),
            ClassifyFeatures { ids: vec![2, 6, 10, 8, 3], type_ids: vec![0; 5], cut: 0 }
        );
        let pair = row("what", Some("is a"), 16);
        assert_eq!((pair.ids, pair.type_ids), (vec![2, 4, 3, 5, 6, 3], vec![0, 0, 0, 1, 1, 1]));
        let roberta = classify_features(&bytes(), &[("a", Some(" be"))], 16).unwrap().remove(0);
        assert_eq!((roberta.ids.len(), roberta.ids[4]), (6, 4 + 256 + 1), "<s> a </s> </s> Ġbe </s>");
        assert_eq!(roberta.type_ids, [0; 6]);
    }

    #[test]
    fn the_longer_text_is_cut_first() {
        let cut = row("what is a lion ?", Some("the roar"), 8);
        assert_eq!((cut.ids, cut.cut), (vec![2, 4, 5, 6, 3, 9, 12, 3], 2));
        let cut = row("the roar", Some("what is a lion ?"), 8);
        assert_eq!((cut.ids, cut.cut), (vec![2, 9, 12, 3, 4, 5, 6, 3], 2));
        let cut = row("what is a lion ?", None, 4);
        assert_eq!((cut.ids, cut.cut), (vec![2, 4, 5, 3], 3));
    }

    #[test]
    fn batches_keep_their_order_with_and_without_pairs() {
        let rows = classify_features(&words(), &[("a", None), ("is", Some("a")), ("", Some("")), ("a", Some("is"))], 9)
            .unwrap();
        let ids: Vec<_> = rows.into_iter().map(|row| row.ids).collect();
        assert_eq!(ids, [vec![2, 6, 3], vec![2, 5, 3, 6, 3], vec![2, 3, 3], vec![2, 6, 3, 5, 3]]);
        assert_eq!(classify_features(&words(), &[], 9).unwrap(), []);
    }

    #[test]
    fn odd_texts_are_rows_too() {
        for text in [
            "", " ", "\u{200b}\u{0}\u{fffd}", "🦁🏳️‍🌈", "שלום, עולם", "e\u{301}\u{301}", "a\u{2028}b", "[SEP][CLS]",
            "\u{202e}x",
        ] {
            for (framer, enclosing) in [(words(), (2, 3)), (bytes(), (0, 2))] {
                let row = classify_features(&framer, &[(text, Some(text))], 12).unwrap().remove(0);
                assert_eq!((row.ids[0], row.ids[row.ids.len() - 1]), enclosing, "{text:?}");
                assert!(row.ids.len() <= 12 && row.type_ids.len() == row.ids.len());
            }
        }
        assert_eq!(row("שלום, עולם", None, 9).ids, [2, 14, 16, 15, 3], "right to left stays in reading order");
    }

    #[test]
    fn a_length_without_room_is_an_error() {
        let fails = |length, pair| classify_features(&words(), &[("a", pair)], length).unwrap_err().to_string();
        let expected = "a length of 2 tokens leaves no room for text: the special tokens are 2; give more";
        assert_eq!(fails(2, None), expected);
        assert!(fails(3, Some("a")).contains("the special tokens are 3"));
        assert!(fails(0, None).contains("a length of 0"));
    }

    proptest! {
        #[test]
        fn no_text_panics_or_exceeds_the_length(text in "\\PC{0,40}", pair in prop::option::of("\\PC{0,40}"), length in 5usize..30) {
            for framer in [words(), bytes()] {
                let whole = classify_features(&framer, &[(&text, pair.as_deref())], usize::MAX).unwrap().remove(0);
                let row = classify_features(&framer, &[(&text, pair.as_deref())], length).unwrap().remove(0);
                prop_assert_eq!(row.ids.len(), whole.ids.len().min(length));
                prop_assert_eq!(row.cut, whole.ids.len() - row.ids.len());
            }
        }
    }
}
