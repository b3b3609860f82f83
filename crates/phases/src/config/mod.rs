//! Configuration: the keys of the YAML file with their defaults, the merging of files and settings, and the validation
//! before anything slow starts.

mod adapter;
mod alignment;
mod choices;
mod data;
mod distillation;
mod error;
mod experiment;
mod keys;
mod layers;
mod migrate;
mod migrate_text;
mod model;
mod model_source;
mod phases;
mod plain;
mod preset;
mod sources;
mod splits;
mod stage_train;
mod task;
mod task_rules;
mod validate;
mod yaml_text;

pub(crate) use adapter::{adapter_of, keys_of};
pub use alignment::AlignmentConfig;
pub use data::{DataConfig, LongAudio, Normalizer, Pad};
pub use distillation::{AdapterTeacher, DistillationConfig};
pub use error::ConfigError;
pub(crate) use experiment::{BACKBONE, CONFIG};
pub use experiment::{Experiment, LossConfig, RunConfig};
pub use migrate_text::{Migrated, migrated};
pub(crate) use model::{DESCRIPTION, is_adapter};
pub use model::{ModelConfig, TokenizerConfig, Trainable};
pub use model_source::{Initializer, ModelSource};
pub use phases::{
    AdapterPhase, BaselinesConfig, CurriculumConfig, GumbelConfig, JointPhase, Parallel, PartRates, PhasesConfig,
    RouterPhase, RoutingWeights, TrainingGates,
};
pub use sources::{Files, HubDataset, Origin, PartOfTrain, Selection, SourceConfig, Sources, StageConfig, Synthesised};
pub(crate) use splits::NONE;
pub use splits::Split;
pub(crate) use stage_train::{ERROR, LOSS, phase_train};
pub use task::{TaskConfig, TaskData};
