//! Tasks: configuration, features, labels, loss, answers and score of each kind of task, in one file or folder per
//! kind.
//!
//! A [`TaskKind`] is the configuration in a task's `head: {type: …}`; a [`TaskHead`] is its network over a backbone's
//! states. Four kinds are built in ([`kinds`]). You can add another one in any crate: a struct that implements the
//! first trait and a head that implements the second, sixty lines for a simple one. YAML can name it once it is
//! [registered](register). All other
//! code asks the kind how records become samples, which labels a batch has, how the loss is computed, and how answers
//! are scored and printed.
//!
//! This crate trains nothing and knows no experiment: the caller assigns samples to tasks and uses the losses. A speech
//! backbone writes with its own decoder, so its networks are not here either.
//!
//! ```
//! use undertone_tasks::HeadConfig;
//! use undertone_tasks::kinds::classify::ClassifyConfig;
//!
//! let head: HeadConfig = serde_json::from_str(r#"{"type": "classify", "labels": ["bad", "good"]}"#)?;
//! assert_eq!((head.name(), head.metrics()[0].name), ("classify", "accuracy"));
//! assert_eq!(head.downcast_ref::<ClassifyConfig>().map(|kind| kind.max_length), Some(128));
//! assert!(head.validate(true).is_ok());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod answer;
mod arrays;
mod batch;
mod error;
mod framer;
mod generation;
mod head;
mod kind;
pub mod kinds;
mod mean_score;
mod packed;
#[cfg(test)]
mod parity;
mod registry;
mod row;
mod sample;
mod score;
#[cfg(test)]
mod testing;
mod typed;

pub use answer::{Answer, ScoredText, TaskScore};
pub use arrays::{DeviceArrays, HostArrays};
pub use batch::{DevicePart, TaskPart, TextBatch, pad_row};
pub use error::TextError;
pub use framer::Framer;
pub use generation::GenerationSettings;
pub use head::{AnswerContext, BoxedHead, HeadInput, TaskHead, TaskHeads, argmax};
pub use kind::{HeadConfig, KindConfig, KindMetric, TaskKind};
pub use mean_score::MeanScore;
pub use registry::{names, register};
pub use sample::{Columns, Cut, ForeignSample, ReadError, Target, TaskRecord, TextDataset, TextSample};
pub use score::Score;
pub use typed::{BaselineAnswer, ContextUse, TrivialBaseline, UserInput, UserInputError, UserSamples, first_sentence};
pub use undertone_registry::NameTaken;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The label of a decision that is not scored.
pub const IGNORED: i64 = -100;
