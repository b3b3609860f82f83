use tokenizers::InputSequence;
use undertone_data::records::TagRecord;

use crate::framer::cut;
use crate::{Framer, IGNORED, TextError};

/// Token features of a sentence, with tags on the first token of each word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFeatures {
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// Token type of each token.
    pub type_ids: Vec<u32>,
    /// Label of each token: a word's tag on its first token, -100 elsewhere.
    pub labels: Vec<i64>,
    /// Index of the word of each token; `None` for special tokens.
    pub words: Vec<Option<usize>>,
    /// Number of words of the sentence.
    pub word_count: usize,
    /// Number of words without a token: those that did not fit, and those for which the tokenizer returns none.
    pub lost: usize,
    /// Number of tokens that did not fit.
    pub cut: usize,
}

/// Tokenizes sentences into rows of at most `max_length` tokens, word by word, each as after a space.
///
/// # Errors
/// If `max_length` leaves no room for text, if a sentence has not as many tags as words, or if the tokenizer rejects a
/// word.
pub fn tag_features(framer: &Framer, records: &[TagRecord], max_length: usize) -> Result<Vec<TagFeatures>, TextError> {
    let room = framer.room(max_length, false)?;
    if let Some(record) = records.iter().find(|record| record.words.len() != record.tags.len()) {
        let (found, expected) = (record.tags.len(), record.words.len());
        return Err(TextError::Count { what: "tags", found, of: "words", expected });
    }
    // Byte-level tokenizers mark words by the space before them; others ignore it.
    let spaced = |record: &TagRecord| record.words.iter().map(|word| format!(" {}", word.trim())).collect::<Vec<_>>();
    let sentences = framer.encode(records.iter().map(|record| InputSequence::from(spaced(record))))?;
    let rows = records.iter().zip(sentences).map(|(record, mut sentence)| {
        let cut = cut(&mut sentence, room);
        let row = framer.row(sentence, None)?;
        let words: Vec<_> = row.get_word_ids().iter().map(|word| word.map(|word| word as usize)).collect();
        let labels: Vec<_> = firsts(&words).map(|word| word.map_or(IGNORED, |word| record.tags[word] as i64)).collect();
        let word_count = record.words.len();
        let lost = word_count - firsts(&words).flatten().count();
        let (ids, type_ids) = (row.get_ids().to_vec(), row.get_type_ids().to_vec());
        Ok(TagFeatures { ids, type_ids, labels, words, word_count, lost, cut })
    });
    rows.collect()
}

impl TagFeatures {
    /// Returns the tag of each word, given a tag for each token: the tag of its first token, or `outside` for words
    /// without one.
    ///
    /// # Errors
    /// If there are fewer tags than tokens; additional tags of padding are allowed.
    pub fn word_tags(&self, tokens: &[usize], outside: usize) -> Result<Vec<usize>, TextError> {
        let (found, expected) = (tokens.len(), self.ids.len());
        if found < expected {
            return Err(TextError::Count { what: "tags", found, of: "tokens", expected });
        }
        let mut tags = vec![outside; self.word_count];
        for (word, tag) in firsts(&self.words).zip(tokens) {
            if let Some(word) = word {
                tags[word] = *tag;
            }
        }
        Ok(tags)
    }
}

/// For each token, the index of the word that begins with it, if any.
fn firsts(words: &[Option<usize>]) -> impl Iterator<Item = Option<usize>> {
    let before = std::iter::once(None).chain(words.iter().copied());
    words.iter().zip(before).map(|(word, before)| word.filter(|word| before != Some(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, origin, real, words};
    use proptest::prelude::*;
    use undertone_data::records::{RecordsConfig, tag_set};
    use undertone_testing::shared;

    fn record(words: &[&str]) -> TagRecord {
        let tags = (0..words.len()).map(|at| at % 5).collect();
        TagRecord { words: words.iter().map(|word| (*word).to_owned()).collect(), tags, origin: origin() }
    }

    fn row(words_of: &[&str], max_length: usize) -> TagFeatures {
        tag_features(&words(), &[record(words_of)], max_length).unwrap().remove(0)
    }

    #[test]
    fn tags_stand_on_the_first_token_of_each_word() {
        let row = row(&["the", "lionss", "roar."], 16);
        assert_eq!(row.ids, [2, 9, 10, 11, 12, 13, 3]);
        assert_eq!(row.labels, [-100, 0, 1, -100, 2, -100, -100]);
        assert_eq!(row.words, [None, Some(0), Some(1), Some(1), Some(2), Some(2), None]);
        assert_eq!((row.word_count, row.lost, row.cut), (3, 0, 0));
        assert_eq!(row.word_tags(&[9, 4, 3, 9, 2, 9, 9, 9, 9], 0).unwrap(), [4, 3, 2], "padding may follow");
        let error = row.word_tags(&[1; 6], 0).unwrap_err().to_string();
        assert_eq!(error, "there are 6 tags for 7 tokens; give as many");
    }

    #[test]
    fn words_that_do_not_fit_are_outside() {
        let cut = row(&["the", "lionss", "roar", "."], 4);
        assert_eq!((cut.ids.clone(), cut.labels.clone()), (vec![2, 9, 10, 3], vec![-100, 0, 1, -100]));
        assert_eq!((cut.lost, cut.cut), (2, 3), "of a word cut in two there is a token left");
        assert_eq!(cut.word_tags(&[1, 2, 3, 1], 7).unwrap(), [2, 3, 7, 7]);
    }

    #[test]
    fn words_that_tokenise_to_nothing_are_outside() {
        let odd = row(&["\u{200b}", "a", "", "\u{0}", "a", " "], 16);
        assert_eq!((odd.ids.clone(), odd.lost, odd.cut), (vec![2, 6, 6, 3], 4, 0));
        assert_eq!(odd.labels, [-100, 1, 4, -100]);
        assert_eq!(odd.word_tags(&[0, 1, 2, 0], 9).unwrap(), [9, 1, 9, 9, 2, 9]);
        let none = row(&[], 16);
        assert_eq!((none.ids.clone(), none.word_tags(&[0, 0], 9).unwrap()), (vec![2, 3], vec![]));
    }

    #[test]
    fn byte_level_words_begin_with_a_space() {
        let row = tag_features(&bytes(), &[record(&["be", "🦁", "b"])], 16).unwrap().remove(0);
        let (b, be) = (4 + 256, 4 + 256 + 1);
        assert_eq!((row.ids[1], row.ids[row.ids.len() - 2], row.lost), (be, b, 0));
        assert_eq!(row.labels.iter().filter(|label| **label != IGNORED).count(), 3);
    }

    #[test]
    fn tags_are_as_many_as_words() {
        let mut uneven = record(&["a", "b"]);
        uneven.tags.pop();
        let error = tag_features(&words(), &[uneven], 16).unwrap_err().to_string();
        assert_eq!(error, "there are 1 tags for 2 words; give as many");
        assert!(tag_features(&words(), &[], 2).unwrap_err().to_string().contains("leaves no room"));
    }

    #[test]
    fn gold_tags_of_real_tweets_come_back() {
        let Some(path) = shared("data/tweets/emerging.dev.conll") else { return };
        let config = RecordsConfig { path: path.into(), ..Default::default() };
        let records = TagRecord::read(&config, &tag_set(&config).unwrap()).unwrap();
        // Four words consist of a variation selector alone, which BERT drops.
        for (name, lost_words) in [("minilm-l6", 4), ("roberta-base-tokenizer", 0)] {
            let Some(framer) = real(name) else { continue };
            let rows = tag_features(&framer, &records, 512).unwrap();
            let mut lost = 0;
            for (record, row) in records.iter().zip(&rows) {
                let tokens: Vec<_> = row.labels.iter().map(|label| usize::try_from(*label).unwrap_or(99)).collect();
                let tags = row.word_tags(&tokens, 98).unwrap();
                lost += tags.iter().filter(|tag| **tag == 98).count();
                assert!(record.tags.iter().zip(&tags).all(|(gold, tag)| gold == tag || *tag == 98));
            }
            assert_eq!((lost, rows.iter().map(|row| row.lost).sum::<usize>()), (lost_words, lost_words), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_words_get_their_tags_back_or_are_counted(texts in prop::collection::vec("\\PC{0,6}", 0..8), length in 3usize..20) {
            let record = record(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            for framer in [words(), bytes()] {
                let row = tag_features(&framer, std::slice::from_ref(&record), length).unwrap().remove(0);
                prop_assert!(row.ids.len() <= length);
                let tokens: Vec<_> = row.labels.iter().map(|label| usize::try_from(*label).unwrap_or(99)).collect();
                let tags = row.word_tags(&tokens, 98).unwrap();
                prop_assert_eq!(tags.iter().filter(|tag| **tag == 98).count(), row.lost);
                prop_assert!(record.tags.iter().zip(&tags).all(|(gold, tag)| gold == tag || *tag == 98));
            }
        }
    }
}
