//! DYNAMO: tasks with an adapter and a head each on one frozen backbone, a router over them, and the phases that train
//! them.
//!
//! Phase 1 trains adapters and heads, phase 2 the router over them, phase 3 router and adapters together. Every phase is
//! a [`Learner`](undertone_train::Learner) run in a directory of its own below the run's, begins with what the phase
//! before it found best, and leaves the same kind of folder: adapters in PEFT's layout, heads, router, `dynamo.json`.

mod analyze;
mod answer;
mod batch;
mod config;
mod error;
mod evaluate;
mod folder;
mod losses;
mod model;
mod objective;
mod order;
mod phase;
mod predict;
mod pretrained;
mod probe;
mod run;
mod setup;
mod stage;
mod text_data;
mod trivial;

pub(crate) use analyze::render;
pub use analyze::{Report, analyze, judge_run};
pub use batch::{BatchInput, SampleInput, TaskBatch, TaskCollate, TaskDataset, TaskSample, TaskSamples};
pub use config::{
    AdapterPhase, BaselinesConfig, CurriculumConfig, GumbelConfig, JointPhase, PartRates, PhasesConfig, RouterPhase,
    RoutingWeights, TaskConfig, TaskData,
};
pub(crate) use config::{phase_train, task_train, validate_phases, validate_tasks};
pub use error::DynamoError;
pub use evaluate::{Judged, RouterKind};
pub use folder::FolderError as AdapterFolderError;
pub use losses::routing_terms;
pub use model::{BackboneNetwork, Dynamo, Input, PromptHead, Tapped, prompted};
pub(crate) use objective::GUMBEL_TEMPERATURE;
pub use order::TaskOrder;
pub use phase::{Baseline, Phase};
pub use predict::{Prediction, Predictor};
pub use pretrained::BackboneError;
pub(crate) use probe::{probe, probed_stage};
pub use run::{StageOutcome, baseline, dynamo};
pub(crate) use setup::seed_of;
pub use stage::Stage;
pub use text_data::TextDataError;
pub(crate) use text_data::read_texts;
