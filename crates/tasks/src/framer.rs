use tokenizers::{Encoding, InputSequence, PostProcessor, PostProcessorWrapper, Token, Tokenizer};
use undertone_model::text::TextTokenizer;

use crate::TextError;

/// Stages of a model's tokenizer: text becomes tokens, a task truncates them, and the post-processor adds special
/// tokens.
#[derive(Clone)]
pub struct Framer {
    /// Tokenizer without the post-processor: offsets that were trimmed once must not be trimmed again.
    tokenizer: Tokenizer,
    post: PostProcessorWrapper,
}

/// Placeholder token outside of every vocabulary, to find where a post-processor puts a text.
const WORD: u32 = u32::MAX;

impl Framer {
    /// Splits a copy of a tokenizer into its stages.
    ///
    /// # Errors
    /// If it has no post-processor that puts a text between its start and its end token.
    pub fn new(tokenizer: &TextTokenizer) -> Result<Self, TextError> {
        let (cls, sep) = (tokenizer.cls(), tokenizer.sep());
        let mut tokenizer = tokenizer.inner().clone();
        let post = tokenizer.get_post_processor().cloned().ok_or(TextError::NoFrame { cls, sep })?;
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        let framer = Self { tokenizer, post };
        let word = Encoding::from_tokens(vec![Token::new(WORD, "a".into(), (0, 1))], 0);
        match *framer.row(word, None)?.get_ids() {
            [first, WORD, last] if (first, last) == (cls, sep) => Ok(framer),
            _ => Err(TextError::NoFrame { cls, sep }),
        }
    }

    /// Number of special tokens in a row of one text or two.
    pub(crate) fn special(&self, pair: bool) -> usize {
        self.post.added_tokens(pair)
    }

    /// Number of text tokens that fit in a row of `length` tokens.
    pub(crate) fn room(&self, length: usize, pair: bool) -> Result<usize, TextError> {
        let special = self.special(pair);
        length.checked_sub(special).filter(|room| *room > 0).ok_or(TextError::Length { length, special })
    }

    /// Tokenizes whole texts without special tokens, with offsets in characters.
    pub(crate) fn encode<'t>(
        &self,
        texts: impl IntoIterator<Item = impl Into<InputSequence<'t>>>,
    ) -> Result<Vec<Encoding>, TextError> {
        let texts: Vec<InputSequence> = texts.into_iter().map(Into::into).collect();
        self.tokenizer.encode_batch_char_offsets(texts, false).map_err(encode_error)
    }

    /// Makes a row of one text or two, with the post-processor's special tokens and types.
    pub(crate) fn row(&self, text: Encoding, pair: Option<Encoding>) -> Result<Encoding, TextError> {
        self.post.process(text, pair, true).map_err(encode_error)
    }
}

/// Truncates to at most `length` tokens; returns the number of removed tokens.
pub(crate) fn cut(encoding: &mut Encoding, length: usize) -> usize {
    let lost = encoding.len().saturating_sub(length);
    encoding.truncate(length, 0, tokenizers::TruncationDirection::Right);
    encoding.take_overflowing();
    lost
}

pub(crate) fn encode_error(error: tokenizers::Error) -> TextError {
    TextError::Encode { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, framer, real_tokenizer, tokenizer, words, words_json};
    use serde_json::{Value, json};

    #[test]
    fn the_post_processor_tells_how_many_special_tokens_there_are() {
        let framer = words();
        assert_eq!((framer.special(false), framer.special(true)), (2, 3));
        let framer = bytes();
        assert_eq!((framer.special(false), framer.special(true)), (2, 4));
    }

    #[test]
    fn real_tokenizers_frame_as_their_special_tokens_say() {
        for (name, special, vocabulary) in
            [("minilm-l6", [101, 102, 0], 30_522), ("roberta-base-tokenizer", [0, 2, 1], 50_265)]
        {
            let Some(tokenizer) = real_tokenizer(name) else { continue };
            assert_eq!([tokenizer.cls(), tokenizer.sep(), tokenizer.pad()], special);
            assert_eq!(tokenizer.vocab_size(), vocabulary);
            assert_eq!(framer(&tokenizer).row(Encoding::default(), None).unwrap().get_ids(), &special[..2]);
        }
    }

    #[test]
    fn tokenizers_that_frame_a_text_otherwise_are_refused() {
        let refused = |post_processor: Value| {
            let mut json = words_json();
            json["post_processor"] = post_processor;
            Framer::new(&tokenizer(&json)).err().unwrap().to_string()
        };
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let others = json!({"type": "BertProcessing", "cls": ["[SEP]", 3], "sep": ["[CLS]", 2]});
        let template = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                               "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
        });
        for post_processor in [Value::Null, byte_level, others, template] {
            let error = refused(post_processor);
            assert!(error.contains("no post-processor that encloses a text in its tokens 2 and 3"), "{error}");
        }
    }
}
