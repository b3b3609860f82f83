//! The built-in kinds of tasks. Each folder holds one kind, from records to metrics:
//!
//! | kind | answers with | features | and back |
//! |---|---|---|---|
//! | [`classify`] | a label of a text | [`classify::classify_features`] | |
//! | [`span`] | a part of a context | [`span::span_windows`] | [`span::best_span`] |
//! | [`tag`] | a tag for each word | [`tag::tag_features`] | [`tag::TagFeatures::word_tags`] |
//! | [`seq2seq`] | text | [`seq2seq::seq2seq_features`] | [`seq2seq::seq2seq_text`] |
//!
//! Features are made with a [`Framer`](crate::Framer) of a model's tokenizer; special tokens and type ids are those of
//! its post-processor. A special token spelled out in a text, such as `[SEP]`, becomes that token, as always in the
//! `tokenizers` library.

pub mod classify;
pub mod seq2seq;
pub mod span;
pub mod tag;
