//! Features of text tasks: records become token ids, and what a model says becomes labels, spans, tags and text.
//!
//! A [`Framer`] is made from a model's [`TextTokenizer`](undertone_model::text::TextTokenizer), as of BERT or RoBERTa;
//! special tokens and type ids are those of its own post-processor. Each task has a function that makes plain rows of
//! tokens, and most have one for the way back:
//!
//! | task | there | back |
//! |---|---|---|
//! | classification | [`classify_features`] | |
//! | spans | [`span_windows`] | [`best_spans`] |
//! | tags | [`tag_features`] | [`TagFeatures::word_tags`] |
//! | sequence to sequence | [`seq2seq_features`] | [`seq2seq_text`] |
//!
//! Text is text, except that a special token written out in it, such as `[SEP]`, is that token, as in the `tokenizers`
//! library wherever it is used.

mod answer;
mod classify;
mod error;
mod framer;
#[cfg(test)]
mod parity;
mod seq2seq;
mod span;
mod tag;
#[cfg(test)]
mod testing;

pub use answer::{AnswerConfig, ScoredSpan, SpanPrediction, WindowLogits, best_spans};
pub use classify::{ClassifyFeatures, classify_features};
pub use error::TextError;
pub use framer::Framer;
pub use seq2seq::{Seq2SeqFeatures, seq2seq_features, seq2seq_text};
pub use span::{SpanWindow, WindowConfig, span_windows};
pub use tag::{TagFeatures, tag_features};

/// The label of a token that is not scored.
pub(crate) const IGNORED: i64 = -100;
