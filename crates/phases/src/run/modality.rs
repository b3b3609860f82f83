//! Differences between speech and text, behind one trait: data, losses, answers.

use super::batch::{HeadInputs, TaskBatch, TaskCollate, TaskSamples};
use super::model::TaskModel;
use crate::backbone::{SpeechBackbone, TextBackbone};
use crate::config::TaskConfig;
use crate::{DataConfig, Experiment, Interrupt, RunError, SourceConfig, Split};
use burn::tensor::{Bool, Tensor};
use std::sync::Arc;
use undertone_fit::Footprint;
use undertone_model::adapters::Gates;
use undertone_model::backbone::BoxedBackbone;
use undertone_tasks::Answer;
use undertone_train::BoxError;

/// Pretrained backbone of a modality, speech or text: how samples for it are opened and batched, and which losses and
/// answers follow from its states.
pub trait Modality: Send + Sync {
    /// Returns the network.
    fn network(&self) -> BoxedBackbone;

    /// Opens the samples of a task in `opening`.
    ///
    /// # Errors
    /// When they cannot be used.
    fn samples(&self, opening: &Opening) -> Result<Arc<dyn TaskSamples>, RunError>;

    /// Returns the collator of samples into batches, for training or evaluation.
    ///
    /// # Errors
    /// When Whisper has no features with the model's number of mel bins, or recordings for augmentation cannot be read.
    fn collate(&self, data: &DataConfig, training: bool) -> Result<TaskCollate, RunError>;

    /// Returns the memory footprint, for the longest inputs that the heads of these tasks allow.
    fn footprint(&self, tasks: &[TaskConfig]) -> Footprint;

    /// Computes each task's loss, summed over its own rows, `[1]` each. `heads` are the additional inputs of heads, and
    /// `label_smoothing` is for text that the backbone writes itself.
    ///
    /// # Errors
    /// When the batch is not for this backbone.
    fn losses(
        &self,
        encoded: EncodedBatch,
        heads: Option<&HeadInputs>,
        label_smoothing: f64,
    ) -> Result<Vec<Tensor<1>>, BoxError>;

    /// Computes the answer to each row with the head of its task in `chosen`.
    ///
    /// # Errors
    /// When the batch is not for this backbone.
    fn answers(&self, encoded: EncodedBatch, chosen: &[usize]) -> Result<Vec<Answer>, BoxError>;

    /// Returns the speech backbone, if it is one.
    fn speech(&self) -> Option<&SpeechBackbone> {
        None
    }

    /// Returns the text backbone, if it is one.
    fn text(&self) -> Option<&TextBackbone> {
        None
    }
}

/// Samples of a task that are to be opened.
pub struct Opening<'a> {
    /// Configuration.
    pub experiment: &'a Experiment,
    /// Task.
    pub task: &'a TaskConfig,
    /// Split.
    pub split: Split,
    /// Sources of the split, at least one.
    pub sources: &'a [SourceConfig],
    /// Seed of the split.
    pub seed: u64,
    /// Interruption, which ends the alignment of long recordings.
    pub interrupt: &'a Interrupt,
}

/// Batch with the backbone's states.
#[derive(Clone)]
pub struct EncodedBatch<'a> {
    /// Model.
    pub model: &'a TaskModel,
    /// Tasks.
    pub tasks: &'a [TaskConfig],
    /// Batch.
    pub batch: &'a TaskBatch,
    /// Last states of the backbone, `[batch, time, d_model]`.
    pub states: Tensor<3>,
    /// Padding mask, `[batch, time]`: true after the end of an input.
    pub padding: &'a Tensor<2, Bool>,
    /// Gates of the adapters.
    pub gates: Option<Gates>,
}
