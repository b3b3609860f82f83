use std::path::Path;

use tokenizers::{Encoding, InputSequence, PostProcessor, PostProcessorWrapper, Tokenizer};

use super::TextError;

/// A tokenizer of whole texts and pairs of them, without padding, and with truncation only where a task says so.
#[derive(Clone)]
pub struct TextTokenizer {
    /// Without truncation, padding and post-processor: `max_length` is a task's business, a batch is padded when it is
    /// made, and special tokens come after truncation.
    tokenizer: Tokenizer,
    post: PostProcessorWrapper,
    start: u32,
    end: u32,
    pad: u32,
}

impl TextTokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// Names the file, or what the tokenizer lacks.
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let tokenizer = Tokenizer::from_file(path)
            .map_err(|error| TextError::File { path: path.into(), reason: error.to_string() })?;
        Self::new(tokenizer)
    }

    /// Takes over a tokenizer; truncation and padding that its file asks for are left out.
    ///
    /// # Errors
    /// Says what it lacks: a post-processor that puts one token before a text and one after it, or a token for padding.
    pub fn new(mut tokenizer: Tokenizer) -> Result<Self, TextError> {
        let lacks = |reason: &str| TextError::Tokenizer { reason: reason.into() };
        let pad = match tokenizer.get_padding() {
            Some(padding) => Some(padding.pad_id),
            None => ["[PAD]", "<pad>"].iter().find_map(|name| tokenizer.token_to_id(name)),
        };
        let pad = pad.ok_or_else(|| lacks("has no token for padding: neither [PAD] nor <pad>"))?;
        let ends = "has no post-processor that encloses a text in two special tokens, such as [CLS] and [SEP]";
        let post = tokenizer.get_post_processor().cloned().ok_or_else(|| lacks(ends))?;
        tokenizer.with_padding(None).with_post_processor(None::<PostProcessorWrapper>);
        tokenizer.with_truncation(None).map_err(encode_error)?;
        let nothing = post.process(Encoding::default(), None, true).map_err(encode_error)?;
        match *nothing.get_ids() {
            [start, end] => Ok(Self { tokenizer, post, start, end, pad }),
            _ => Err(lacks(ends)),
        }
    }

    /// The token before a text: `[CLS]` or `<s>`.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// The token after a text: `[SEP]` or `</s>`.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The token that fills rows.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// Rows that an embedding needs: one more than the largest id.
    pub fn vocabulary(&self) -> usize {
        let ids = self.tokenizer.get_vocab(true).into_values();
        ids.max().map_or(0, |largest| largest as usize + 1)
    }

    /// The text of ids, without special tokens. It ends at the first end token, for what a model says after that
    /// means nothing.
    ///
    /// # Errors
    /// If the tokenizer's decoder refuses the tokens; ids that it does not know are left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        let ids = &ids[..ids.iter().position(|id| *id == self.end).unwrap_or(ids.len())];
        self.tokenizer.decode(ids, true).map_err(|error| TextError::Decode { reason: error.to_string() })
    }

    /// Special tokens of a row of one text or two.
    pub(super) fn special(&self, pair: bool) -> usize {
        self.post.added_tokens(pair)
    }

    /// The room for text in a row of `length` tokens.
    pub(super) fn room(&self, length: usize, pair: bool) -> Result<usize, TextError> {
        let special = self.special(pair);
        length.checked_sub(special).filter(|room| *room > 0).ok_or(TextError::Length { length, special })
    }

    /// Texts without special tokens, whole, with offsets in characters.
    pub(super) fn encode<'t>(
        &self,
        texts: impl IntoIterator<Item = impl Into<InputSequence<'t>>>,
    ) -> Result<Vec<Encoding>, TextError> {
        let texts: Vec<InputSequence> = texts.into_iter().map(Into::into).collect();
        self.tokenizer.encode_batch_char_offsets(texts, false).map_err(encode_error)
    }

    /// A row of one text or two, with special tokens.
    pub(super) fn row(&self, text: Encoding, pair: Option<Encoding>) -> Result<Encoding, TextError> {
        self.post.process(text, pair, true).map_err(encode_error)
    }
}

/// Cuts to at most `length` tokens; says how many were lost.
pub(super) fn cut(encoding: &mut Encoding, length: usize) -> usize {
    let lost = encoding.len().saturating_sub(length);
    encoding.truncate(length, 0, tokenizers::TruncationDirection::Right);
    encoding.take_overflowing();
    lost
}

pub(super) fn encode_error(error: tokenizers::Error) -> TextError {
    TextError::Encode { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bytes, real, words};
    use super::*;

    #[test]
    fn the_post_processor_tells_the_special_tokens() {
        let tokenizer = words();
        assert_eq!((tokenizer.pad(), tokenizer.start(), tokenizer.end()), (0, 2, 3));
        assert_eq!((tokenizer.special(false), tokenizer.special(true)), (2, 3));
        let tokenizer = bytes();
        assert_eq!((tokenizer.start(), tokenizer.pad(), tokenizer.end()), (0, 1, 2));
        assert_eq!((tokenizer.special(false), tokenizer.special(true)), (2, 4));
    }

    #[test]
    fn real_tokenizers_have_theirs() {
        for (name, special, vocabulary) in
            [("minilm-l6", [101, 102, 0], 30_522), ("roberta-base-tokenizer", [0, 2, 1], 50_265)]
        {
            let Some(tokenizer) = real(name) else { continue };
            assert_eq!([tokenizer.start(), tokenizer.end(), tokenizer.pad()], special);
            assert_eq!(tokenizer.vocabulary(), vocabulary);
        }
    }

    #[test]
    fn tokenizers_that_lack_something_are_refused() {
        let json = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut json = super::super::testing::words_json();
            change(&mut json);
            let error = Tokenizer::from_bytes(json.to_string()).map(TextTokenizer::new).unwrap().err();
            error.unwrap().to_string()
        };
        assert!(
            json(&|json| json["post_processor"] = serde_json::Value::Null).contains("no post-processor that encloses")
        );
        let byte_level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        assert!(json(&|json| json["post_processor"] = byte_level.clone()).contains("no post-processor that encloses"));
        assert!(
            json(&|json| drop(json["model"]["vocab"].as_object_mut().unwrap().remove("[PAD]")))
                .contains("no token for padding")
        );
        let missing = TextTokenizer::from_file(Path::new("no/tokenizer.json")).err().unwrap().to_string();
        assert!(missing.starts_with("the tokenizer no/tokenizer.json cannot be read"), "{missing}");
    }

    #[test]
    fn decoding_ends_at_the_end_and_leaves_unknown_ids_out() {
        let tokenizer = bytes();
        let ids = tokenizer.encode(["to be 🦁"]).unwrap()[0].get_ids().to_vec();
        let said = [&[0], &ids[..], &[2], &ids[..], &[9999]].concat();
        assert_eq!(tokenizer.decode(&said).unwrap(), "to be 🦁");
        assert_eq!(tokenizer.decode(&[9999, 0, 1]).unwrap(), "");
    }
}
