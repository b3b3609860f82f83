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
mod eval;
mod evaluate;
mod folder;
mod losses;
mod model;
mod objective;
mod order;
mod overview;
mod phase;
mod predict;
mod prepare;
mod pretrained;
mod probe;
mod run;
mod setup;
mod stage;
mod task_loss;
mod text_data;
mod trivial;

pub use analyze::{Report, analyze, judge_run};
pub use batch::{BatchInput, SampleInput, TaskBatch, TaskCollate, TaskDataset, TaskSample, TaskSamples};
pub use config::{
    AdapterPhase, BaselinesConfig, CurriculumConfig, GumbelConfig, JointPhase, PartRates, PhasesConfig, RouterPhase,
    RoutingWeights, TaskConfig, TaskData,
};
pub(crate) use config::{phase_train, task_train, validate_phases, validate_tasks};
pub use eval::evaluate;
pub use evaluate::{Judge, Judged, RouterKind};
pub use folder::FolderError as AdapterFolderError;
pub use losses::routing_terms;
pub use model::{AlignmentHeads, BackboneNetwork, Dynamo, Encoded, Input, PromptHead, Tapped, prompted};
pub use objective::{DynamoObjective, StageBatches};
pub use order::TaskOrder;
pub(crate) use overview::overview;
pub use phase::{Baseline, Phase};
pub use predict::{Prediction, Predictor};
pub use prepare::Run;
pub(crate) use pretrained::speaks;
pub use pretrained::{BackboneError, Pretrained, TextBackbone};
pub(crate) use probe::{probe, probed_stage};
pub use run::{StageOutcome, train, train_baseline, train_phases};
#[cfg(test)]
pub(crate) use setup::collate;
pub use setup::{Setup, TaskLoader};
pub use stage::Stage;
pub use text_data::TextDataError;
pub(crate) use text_data::read_texts;
