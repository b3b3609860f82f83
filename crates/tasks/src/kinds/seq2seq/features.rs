use undertone_model::text::TextTokenizer;

use crate::framer::cut;
use crate::{Framer, TextError};

/// Token features of a source text and its target text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seq2SeqFeatures {
    /// Encoder input: the source, special tokens included.
    pub source: Vec<u32>,
    /// Token type of each source token.
    pub source_type_ids: Vec<u32>,
    /// Target between the start and the end token. The decoder reads all tokens but the last and predicts all but the
    /// first.
    pub target: Vec<u32>,
    /// Number of source tokens that did not fit.
    pub source_cut: usize,
    /// Number of target tokens that did not fit; the target still ends with the end token.
    pub target_cut: usize,
}

/// Tokenizes sources and targets into rows of at most `max_source` and `max_target` tokens, special ones included.
///
/// # Errors
/// If a length leaves no room for text, or the tokenizer rejects a text.
pub fn seq2seq_features(
    framer: &Framer,
    pairs: &[(&str, &str)],
    max_source: usize,
    max_target: usize,
) -> Result<Vec<Seq2SeqFeatures>, TextError> {
    let (source_room, target_room) = (framer.room(max_source, false)?, framer.room(max_target, false)?);
    let sources = framer.encode(pairs.iter().map(|(source, _)| *source))?;
    let targets = framer.encode(pairs.iter().map(|(_, target)| *target))?;
    let rows = sources.into_iter().zip(targets).map(|(mut source, mut target)| {
        let (source_cut, target_cut) = (cut(&mut source, source_room), cut(&mut target, target_room));
        let (source, target) = (framer.row(source, None)?, framer.row(target, None)?.get_ids().to_vec());
        let (source, source_type_ids) = (source.get_ids().to_vec(), source.get_type_ids().to_vec());
        Ok(Seq2SeqFeatures { source, source_type_ids, target, source_cut, target_cut })
    });
    rows.collect()
}

/// Returns the text of a decoder's output without special tokens. It ends at the first end token, because later tokens
/// are meaningless; unknown ids are skipped.
pub fn seq2seq_text(tokenizer: &TextTokenizer, ids: &[u32]) -> String {
    let end = ids.iter().position(|id| *id == tokenizer.sep());
    tokenizer.decode(&ids[..end.unwrap_or(ids.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, bytes_json, framer, real_tokenizer, tokenizer, words};
    use proptest::prelude::*;
    use undertone_data::records::{PairRecord, RecordsConfig};
    use undertone_testing::shared;

    #[test]
    fn a_target_is_between_the_start_and_the_end() {
        let row = seq2seq_features(&words(), &[("what", "a lion")], 8, 8).unwrap().remove(0);
        assert_eq!((row.source, row.source_type_ids), (vec![2, 4, 3], vec![0; 3]));
        assert_eq!(row.target, [2, 6, 7, 3]);
        let row = seq2seq_features(&words(), &[("", "")], 8, 8).unwrap().remove(0);
        assert_eq!((row.source, row.target), (vec![2, 3], vec![2, 3]));
    }

    #[test]
    fn both_sides_are_cut_and_counted() {
        let row = seq2seq_features(&words(), &[("what is a lion", "the lions roar .")], 4, 5).unwrap().remove(0);
        assert_eq!((row.source, row.source_cut), (vec![2, 4, 5, 3], 2));
        assert_eq!((row.target, row.target_cut), (vec![2, 9, 10, 12, 3], 1));
        for (source, target) in [(2, 8), (8, 2)] {
            let error = seq2seq_features(&words(), &[], source, target).unwrap_err().to_string();
            assert!(error.starts_with("a length of 2 tokens leaves no room"), "{error}");
        }
    }

    #[test]
    fn real_targets_come_back_as_text() {
        let Some(path) = shared("data/codegen/conala-train.json") else { return };
        let columns =
            [("source", "intent"), ("target", "snippet")].map(|(field, column)| (field.into(), column.into()));
        let config = RecordsConfig { path: path.into(), columns: columns.into(), ..Default::default() };
        let pairs = PairRecord::read(&config).unwrap();
        let pairs: Vec<_> = pairs.iter().map(|pair| (pair.source.as_str(), pair.target.as_str())).collect();
        let Some(tokenizer) = real_tokenizer("roberta-base-tokenizer") else { return };
        for (row, (_, target)) in seq2seq_features(&framer(&tokenizer), &pairs, 512, 512).unwrap().iter().zip(&pairs) {
            assert_eq!((seq2seq_text(&tokenizer, &row.target).as_str(), row.target_cut), (*target, 0));
        }
    }

    #[test]
    fn decoding_ends_at_the_end_and_leaves_unknown_ids_out() {
        let ids = bytes().encode(["to be 🦁"]).unwrap()[0].get_ids().to_vec();
        let said = [&[0], &ids[..], &[2], &ids[..], &[9999]].concat();
        let tokenizer = tokenizer(&bytes_json());
        assert_eq!(seq2seq_text(&tokenizer, &said), "to be 🦁");
        assert_eq!(seq2seq_text(&tokenizer, &[9999, 0, 1]), "");
    }

    #[test]
    fn a_special_token_written_out_is_that_token() {
        let tokenizer = tokenizer(&bytes_json());
        let row = seq2seq_features(&framer(&tokenizer), &[("a<s>b", "a<s>b")], 512, 512).unwrap().remove(0);
        assert_eq!(seq2seq_text(&tokenizer, &row.target), "ab");
    }

    proptest! {
        #[test]
        fn byte_level_targets_come_back_as_text(text in "\\PC{0,40}") {
            // A special token spelled out in a text is that token.
            prop_assume!(!["<s>", "</s>", "<pad>", "<unk>", "<mask>"].iter().any(|token| text.contains(token)));
            let tokenizer = tokenizer(&bytes_json());
            let row = seq2seq_features(&framer(&tokenizer), &[(&text, &text)], 512, 512).unwrap().remove(0);
            prop_assert_eq!(&row.source, &row.target, "both are whole and between the same tokens");
            prop_assert_eq!(seq2seq_text(&tokenizer, &row.target), text);
        }
    }
}
