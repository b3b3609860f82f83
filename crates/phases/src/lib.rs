//! An experiment from its YAML to its trained models.
//!
//! An [`Experiment`] is what a YAML file says, checked. A run of it is a list of stages over tasks: one stage with one task where a
//! Whisper is fine-tuned; adapters, a router over them, and both together where there are `tasks` (DYNAMO). [`run::train`] trains
//! them all; [`Experiment::build`] gives a stage's device, model, batches and objective to a loop of one's own. [`Transcriber`] and
//! [`run::Predictor`] use what came out, and [`check`] looks at the data before.
//!
//! It deliberately has no arithmetic of its own: networks are in `undertone-model`, kinds of tasks in `undertone-tasks`, audio in
//! `undertone-data`, the training loop in `undertone-train`, pages and curves in `undertone-report`.
//!
//! ```
//! use undertone_phases::Experiment;
//!
//! let experiment = Experiment::load(None, &["train.max_steps=500".into(), "data.train.samples=100".into()])?;
//! assert_eq!(experiment.train.max_steps, Some(500));
//! # Ok::<(), undertone_phases::ConfigError>(())
//! ```

mod alignment;
pub mod backbone;
mod batch;
mod changes;
pub mod check;
pub mod config;
mod error;
#[cfg(test)]
mod extremes;
mod fill_cache;
mod live;
mod memory;
mod normalize;
mod probe;
mod progress;
mod reporting;
pub mod run;
mod run_directory;
mod session;
mod skipped;
mod speech;
mod streamed;
mod transcribe;
pub mod tune;
mod vocabulary;
mod work;

pub use alignment::{Alignment, AlignmentConfig, ELEMENTS};
pub use batch::{WhisperBatch, WhisperCollate};
pub use changes::CHANGEABLE;
pub use config::{
    ConfigError, DataConfig, Experiment, Initializer, LongAudio, LossConfig, ModelConfig, ModelSource, Normalizer, Pad,
    RunConfig, SourceConfig, SourceError, Sources, Split, StageConfig, Synth, TokenizerConfig, Trainable,
};
pub use error::RunError;
pub use fill_cache::{FillError, Filled, fill_cache};
pub use live::LiveTranscriber;
pub use normalize::TextNormalizer;
pub use progress::{Progress, Unwatched};
pub use reporting::{stage_plan, write_reports};
pub use session::{Interrupt, Session};
pub use speech::{Listed, SampleAudio, SpeechDataset, SpeechError, SpeechSample};
pub use streamed::streamed;
pub use transcribe::{Passage, TranscribeError, Transcriber};
