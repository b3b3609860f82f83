//! A run: a list of stages over tasks, each trained by a [`Learner`](undertone_train::Learner) in a directory of its
//! own.
//!
//! Without `tasks` a run has one stage with one unnamed task: it fine-tunes a speech backbone in the run's own
//! directory. With `tasks` it is a DYNAMO run: an adapter and a head for each task on one frozen backbone, and a router over them.
//! Phase 1 trains adapters and heads, phase 2 the router, phase 3 router, adapters and heads together. Each stage
//! begins with the best model of the one before. It exports adapters in PEFT's layout, heads, router and `dynamo.json`.
//!
//! A stage is a value: [`stages`] describes those of a phase or baseline, and everything else reads their fields.

mod adapter_teacher;
mod analyze;
mod arrays;
mod average;
mod batch;
mod blend;
mod card;
mod checksum;
mod choice;
mod comparison;
mod eval;
mod evaluated;
mod evaluation_result;
mod evaluator;
mod folder;
mod groups;
mod known;
mod losses;
mod merged;
mod modality;
mod model;
mod newest;
mod objective;
mod offer;
mod order;
mod others;
mod package;
mod phase;
mod predict;
mod prepare;
mod pretrained;
mod probe;
mod reporting;
mod scored;
mod scoring;
mod setup;
mod spec;
mod speech;
mod stage;
mod stages;
mod states;
mod teacher;
mod text;
mod text_data;
mod together;
#[cfg(test)]
mod toys;
mod trivial;
mod words;
mod worst;

pub use analyze::{Report, analyze, evaluate_run};
pub use batch::{
    BatchInput, HeadInputs, References, SampleInput, TaskBatch, TaskCollate, TaskDataset, TaskLoader, TaskSample,
    TaskSamples,
};
pub use blend::Blend;
pub use card::{card, card_of_text};
pub use choice::Choice;
pub use eval::{BlendResult, Evaluated, Subject};
pub use evaluation_result::EvaluationResult;
pub use evaluator::{Evaluator, RouterKind};
pub use losses::{routing_sums, routing_terms};
pub use merged::{has_tasks, load_whisper, merged, merged_text};
pub use modality::{EncodedBatch, Modality, Opening};
pub use model::{AlignmentHeads, Encoded, PromptHead, Tapped, TaskModel, TrainedParts, task_vectors};
pub use objective::{StageBatches, TaskObjective};
pub use offer::Offer;
pub use order::TaskOrder;
pub use others::{Others, Rejected, tell_others};
pub use package::package;
pub use phase::{Baseline, Phase};
pub use predict::{Prediction, Predictor, Routed};
pub use prepare::Run;
pub use pretrained::Pretrained;
pub(crate) use pretrained::load_speech;
pub(crate) use probe::{probe, probed_stage};
pub use reporting::{stage_plan, write_reports};
pub use scored::{ScoredSample, ScoredTask, TaskMetric};
pub use setup::Setup;
pub use spec::{Layout, StageKind, StageSpec, stages};
#[cfg(test)]
pub(crate) use speech::collate;
pub use stages::{StageOutcome, train, train_baseline, train_phases};
pub use teacher::{Lesson, Teacher, WhisperTeacher};
pub(crate) use text_data::read_texts;
