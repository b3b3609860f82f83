use undertone_data::records::Origin;

/// Reason why a text could not become features, or a model's output an answer.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The tokenizer adds no special tokens to a text, or not those of the model.
    #[error(
        "the tokenizer has no post-processor that encloses a text in its tokens {cls} and {sep}; give the `tokenizer.json` \
         of a text encoder"
    )]
    NoFrame {
        /// Token that should stand before a text.
        cls: u32,
        /// Token that should stand after it.
        sep: u32,
    },
    /// The tokenizer library rejected a text.
    #[error("a text cannot be tokenised: {reason}")]
    Encode {
        /// Message of the library.
        reason: String,
    },
    /// No token of the text would fit.
    #[error("a length of {length} tokens leaves no room for text: the special tokens are {special}; give more")]
    Length {
        /// Given length.
        length: usize,
        /// Number of special tokens in a row.
        special: usize,
    },
    /// The question leaves no room for its context.
    #[error(
        "{origin}: the question has {tokens} tokens, so a window of {length} with {special} special tokens and an \
         overlap of {stride} has no room to move on in the context; shorten the question, raise `max_length` or lower \
         `doc_stride`"
    )]
    Question {
        /// Record of the question.
        origin: Origin,
        /// Number of tokens of the question.
        tokens: usize,
        /// `max_length`.
        length: usize,
        /// Number of special tokens in a row.
        special: usize,
        /// `doc_stride`.
        stride: usize,
    },
    /// A key of the configuration is invalid.
    #[error("{reason}")]
    Config {
        /// Key, and advice.
        reason: String,
    },
    /// Two counts that should agree do not.
    #[error("there are {found} {what} for {expected} {of}; give as many")]
    Count {
        /// Counted things.
        what: &'static str,
        /// Number found.
        found: usize,
        /// Things that they belong to.
        of: &'static str,
        /// Number expected.
        expected: usize,
    },
}
