//! What an experiment is: its configuration, its model, its data and its loss, composed for the Learner.
//!
//! An [`Experiment`] is what a YAML file says, checked; [`finetune`] runs it, or [`dynamo::dynamo`] if it has tasks;
//! [`Transcriber`] and [`dynamo::Predictor`] use what came out. The arithmetic lives elsewhere: networks in `undertone-model`, audio in `undertone-data`, the loop in `undertone-train`.
//!
//! ```
//! use undertone_phases::Experiment;
//!
//! let experiment = Experiment::load(None, &["train.max_steps=500".into(), "data.train.samples=100".into()])?;
//! assert_eq!(experiment.train.max_steps, Some(500));
//! # Ok::<(), undertone_phases::ConfigError>(())
//! ```

mod alignment;
mod batch;
mod changes;
pub mod check;
mod data_config;
pub mod dynamo;
mod error;
mod experiment;
#[cfg(test)]
mod extremes;
mod fill_cache;
mod memory;
mod normalize;
mod preset;
mod probe;
mod progress;
mod reporting;
mod run_directory;
mod samples;
mod session;
mod skipped;
mod source;
mod speech;
mod splits;
mod streamed;
mod transcribe;
pub mod tune;
mod work;

pub use alignment::{Alignment, AlignmentConfig, ELEMENTS};
pub use batch::{WhisperBatch, WhisperCollate};
pub use changes::CHANGEABLE;
pub use data_config::{DataConfig, LongAudio, Normalizer, Pad};
pub use error::RunError;
pub use experiment::{ConfigError, Experiment, LossConfig, RunConfig};
pub use fill_cache::{FillError, Filled, fill_cache};
pub use normalize::TextNormalizer;
pub use progress::{Progress, Unwatched};
pub use reporting::{stage_plan, write_reports};
pub use samples::{SourceConfig, Sources, StageConfig, Synth};
pub use session::Session;
pub use source::{Backbone, Initializer, ModelConfig, ModelSource, SourceError, Trainable};
pub use speech::{Heard, Listed, SpeechDataset, SpeechError, SpeechSample};
pub use splits::Split;
pub use streamed::streamed;
pub use transcribe::{TranscribeError, Transcriber};
