//! Experiments: from a YAML configuration to trained models.
//!
//! An [`Experiment`] is a validated configuration. Its run is a list of stages over tasks. Fine-tuning a Whisper is one
//! stage with one task. With `tasks` (DYNAMO) the stages train adapters, then a router over them, then both together.
//! [`run::train`] trains all stages. [`Experiment::build`] returns the device, model, batches and objective of a stage
//! for your own training loop. [`check`] examines the data before training. [`run::Predictor`] uses trained models of tasks;
//! `undertone-transcribe` transcribes with a trained Whisper.
//!
//! This crate contains no arithmetic: networks are in `undertone-model`, kinds of tasks in `undertone-tasks`, audio in
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
mod hash;
mod kinds;
mod label;
mod label_record;
mod memory;
mod normalize;
mod probe;
mod progress;
mod reading;
pub mod run;
mod run_directory;
mod session;
mod skipped;
mod source_error;
mod speech;
mod streamed;
pub mod tune;
mod vocabulary;
mod work;

pub use alignment::Alignment;
pub use batch::{RowStates, SpeechBatch, SpeechCollate};
pub use changes::CHANGEABLE;
pub use config::{
    AlignmentConfig, ConfigError, DataConfig, DistillationConfig, Experiment, Files, HubDataset, Initializer,
    LongAudio, LossConfig, Migrated, ModelConfig, ModelSource, Normalizer, Origin, Pad, PartOfTrain, RunConfig,
    Selection, SourceConfig, Sources, Split, StageConfig, Synthesised, TokenizerConfig, Trainable, migrated,
};
pub use error::RunError;
pub use fill_cache::{Filled, fill_cache};
pub use label::{Labelled, label};
pub use label_record::LabelRecord;
pub use normalize::TextNormalizer;
pub use progress::{Progress, Unwatched};
pub use run::{stage_plan, write_reports};
pub use session::{Interrupt, Session};
pub use source_error::SourceError;
pub use speech::{Listed, SampleAudio, SampleFacts, SpeechDataset, SpeechError, SpeechSample};
pub use streamed::streamed;
