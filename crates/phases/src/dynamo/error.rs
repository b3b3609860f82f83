//! What stops a DYNAMO run.

use super::folder::FolderError;
use super::pretrained::BackboneError;
use super::text_data::TextDataError;
use crate::analysis::AnalysisError;
use crate::{ConfigError, RunError, SpeechError, TranscribeError};
use std::path::PathBuf;
use undertone_model::lora::AdaptError;
use undertone_store::StoreError;
use undertone_tasks::TextError;
use undertone_train::BoxError;

/// Why a DYNAMO run did not come about, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DynamoError {
    /// The device, backbone or data cannot be had, or training stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A key of the configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is nothing to be done in phases.
    #[error("the configuration has no `tasks`: phases and baselines are for those; train without --phase")]
    NoTasks,
    /// The backbone cannot be had.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// A task's records cannot be used.
    #[error("task `{task}`: {source}")]
    Data {
        /// The task.
        task: String,
        /// Why not.
        source: Box<TextDataError>,
    },
    /// A task's recordings cannot be used.
    #[error("task `{task}`: {source}")]
    Speech {
        /// The task.
        task: String,
        /// Why not.
        source: Box<SpeechError>,
    },
    /// A head does not fit the backbone.
    #[error("task `{task}`: `head`: {reason}")]
    Head {
        /// The task.
        task: String,
        /// Why not.
        reason: String,
    },
    /// Adapters do not fit the backbone.
    #[error("{task}: {source}")]
    Adapt {
        /// The task, or the stage.
        task: String,
        /// Why not.
        source: AdaptError,
    },
    /// The router listens above the last block.
    #[error("`router.tap` is {tap}: the encoder has {blocks} blocks, and adapters need at least one above the tap")]
    Tap {
        /// The tap.
        tap: usize,
        /// Encoder blocks.
        blocks: usize,
    },
    /// A router over one task decides nothing.
    #[error("phase {0} needs at least two `tasks`: a router over one has nothing to decide")]
    OneTask(usize),
    /// What a phase begins with is not there.
    #[error("phase {phase} begins with what phase {needs} found, and `{}` has not finished: run `cargo xtask train --phase {needs}` first (with --resume if it was interrupted)", directory.display())]
    Predecessor {
        /// The phase.
        phase: usize,
        /// The one before.
        needs: usize,
        /// The unfinished stage.
        directory: PathBuf,
    },
    /// An earlier phase is asked to go on that a later one was made from.
    #[error("`{}` was made from an earlier phase that is asked for more steps now: delete it, or let it be trained anew with --set run.overwrite=true", .0.display())]
    Outrun(PathBuf),
    /// What it begins with does not fit.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is nothing that could be judged.
    #[error("`{}` has no finished phase: run `cargo xtask train --phase 1` first", .0.display())]
    NothingTrained(PathBuf),
    /// There is no router yet.
    #[error("`{}` has no router yet, and nobody says which task an input belongs to: run `cargo xtask train --phase 2`", .0.display())]
    NoRouter(PathBuf),
    /// The backbone takes something else.
    #[error("the run's backbone takes {0}")]
    Modality(&'static str),
    /// A question has nowhere to find its answer.
    #[error("the router took it for `{0}`, which finds answers in a context: give one with --context")]
    NoContext(String),
    /// A text cannot become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Audio cannot be read, or a prompt not be made.
    #[error(transparent)]
    Input(#[from] TranscribeError),
    /// A model could not be judged.
    #[error("the model cannot be judged: {0}")]
    Judge(BoxError),
    /// The numbers make no picture.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
}

impl DynamoError {
    /// Whether the cause is something the user gave.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Folder(FolderError::Store(error)) => {
                matches!(error, StoreError::Missing { .. } | StoreError::Shape { .. })
            }
            _ => true,
        }
    }
}
