use undertone_data::records::Origin;

/// Why text could not become features, or a model's output an answer.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A tokenizer that does not frame a text, or not as the model's special tokens say.
    #[error(
        "the tokenizer has no post-processor that encloses a text in its tokens {cls} and {sep}; give the `tokenizer.json` \
         of a text encoder"
    )]
    NoFrame {
        /// The token that should stand before a text.
        cls: u32,
        /// The token that should stand after it.
        sep: u32,
    },
    /// The library refused a text.
    #[error("a text cannot be tokenised: {reason}")]
    Encode {
        /// What it said.
        reason: String,
    },
    /// No token of the text would fit.
    #[error("a length of {length} tokens leaves no room for text: the special tokens are {special}; give more")]
    Length {
        /// As given.
        length: usize,
        /// Special tokens of a row.
        special: usize,
    },
    /// A question that leaves no room for its context.
    #[error(
        "{origin}: the question has {tokens} tokens, so a window of {length} with {special} special tokens and an \
         overlap of {stride} has no room to move on in the context; shorten the question, raise `max_length` or lower \
         `doc_stride`"
    )]
    Question {
        /// The record.
        origin: Origin,
        /// Tokens of the question.
        tokens: usize,
        /// `max_length`.
        length: usize,
        /// Special tokens of a row.
        special: usize,
        /// `doc_stride`.
        stride: usize,
    },
    /// A key of the configuration does not fit.
    #[error("{reason}")]
    Config {
        /// Which, and what to do.
        reason: String,
    },
    /// Numbers of things that should agree.
    #[error("there are {found} {what} for {expected} {of}; give as many")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// What it belongs to.
        of: &'static str,
        /// How many there should be.
        expected: usize,
    },
}
