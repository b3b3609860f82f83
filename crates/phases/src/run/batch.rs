//! Samples of several tasks, and batches of them.

use crate::work::{TrainedShares, speech_work, text_work};
use crate::{DataConfig, RowStates, SampleFacts, SpeechBatch, SpeechCollate, SpeechSample};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::sync::Arc;
use undertone_data::loader::{Collate, Dataset, Loader, MixtureError, Order, SampleError};
use undertone_fit::BatchSize;
use undertone_model::backbone::{BackboneInput, BoxedBackbone};
use undertone_tasks::{Cut, DevicePart, HeadConfig, TextBatch, TextDataset, TextSample};
use undertone_train::{BatchStats, BoxError};

/// Data loader of batches of tasks.
pub type TaskLoader = Loader<TaskDataset, TaskCollate>;

/// Sample with its task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSample {
    /// Index of the task.
    pub task: usize,
    /// Input and reference answer.
    pub input: SampleInput,
}

/// Content of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleInput {
    /// Audio and its reference text.
    Speech(SpeechSample),
    /// Tokens and their reference answer.
    Text(TextSample),
}

/// Samples of one task.
pub trait TaskSamples: Send + Sync {
    /// Number of samples.
    fn count(&self) -> usize;

    /// Returns a sample of an epoch.
    ///
    /// # Errors
    /// When it cannot be made or read.
    fn sample(&self, index: usize, epoch: u64) -> Result<SampleInput, SampleError>;

    /// Returns the name of a sample in messages.
    fn name(&self, index: usize) -> String;

    /// Returns the length of a sample, in seconds of speech or tokens of text, if it is known without loading it.
    fn length(&self, index: usize) -> Option<f64>;

    /// Returns a sample as large as any, and the total length of its input and answer; `None` without samples.
    ///
    /// # Errors
    /// When a sample cannot be loaded.
    fn most_demanding(&self) -> Result<Option<(usize, SampleInput)>, SampleError>;

    /// Returns the order of their epochs in a run without `tasks`; `None` for the loader's.
    ///
    /// # Errors
    /// When their sources cannot be mixed.
    fn order(&self, data: &DataConfig, seed: u64) -> Result<Option<Box<dyn Order>>, MixtureError> {
        let _ = (data, seed);
        Ok(None)
    }

    /// Returns the counts of truncated samples.
    fn cut(&self) -> Cut {
        Cut::default()
    }

    /// Returns the samples, if they are texts in memory.
    fn texts(&self) -> Option<&TextDataset> {
        None
    }
}

/// Samples of all tasks, one task after the other.
pub struct TaskDataset {
    tasks: Vec<Arc<dyn TaskSamples>>,
    heads: Vec<HeadConfig>,
}

impl TaskDataset {
    /// Returns the dataset of tasks with these samples and heads, in the order of the tasks.
    pub fn new(tasks: Vec<Arc<dyn TaskSamples>>, heads: Vec<HeadConfig>) -> Self {
        Self { tasks, heads }
    }

    /// Returns the number of samples of each task.
    pub fn lengths(&self) -> Vec<usize> {
        self.tasks.iter().map(|samples| samples.count()).collect()
    }

    /// Returns the samples of the tasks, in their order.
    pub fn tasks(&self) -> &[Arc<dyn TaskSamples>] {
        &self.tasks
    }

    /// Returns the sample that needs the most memory: out of the longest ones of all tasks, the one with the greatest
    /// total length of input and answer.
    ///
    /// # Errors
    /// When a sample cannot be loaded, or there is none.
    pub fn most_demanding(&self) -> Result<TaskSample, SampleError> {
        let mut found: Option<(usize, TaskSample)> = None;
        for (task, samples) in self.tasks.iter().enumerate() {
            let Some((length, input)) = samples.most_demanding()? else { continue };
            if found.as_ref().is_none_or(|(longest, _)| length > *longest) {
                found = Some((length, TaskSample { task, input }));
            }
        }
        Ok(found.ok_or("there are no samples to train on")?.1)
    }

    fn locate(&self, mut index: usize) -> (usize, &dyn TaskSamples, usize) {
        let mut task = 0;
        while index >= self.tasks[task].count() {
            index -= self.tasks[task].count();
            task += 1;
        }
        (task, &*self.tasks[task], index)
    }
}

impl Dataset for TaskDataset {
    type Item = TaskSample;

    fn len(&self) -> usize {
        self.tasks.iter().map(|samples| samples.count()).sum()
    }

    fn get(&self, index: usize, epoch: u64) -> Result<TaskSample, SampleError> {
        let (task, samples, index) = self.locate(index);
        Ok(TaskSample { task, input: samples.sample(index, epoch)? })
    }

    fn name(&self, index: usize) -> String {
        let (_, samples, index) = self.locate(index);
        samples.name(index)
    }

    /// Returns the length in seconds of speech or tokens of text.
    fn length(&self, index: usize) -> Option<f64> {
        let (_, samples, index) = self.locate(index);
        samples.length(index)
    }
}

/// Batch of several tasks, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskBatch {
    /// Inputs of the backbone and reference answers.
    pub input: BatchInput,
    /// Task of each sample.
    pub tasks: Vec<usize>,
    /// Number of positions of the backbone's states that each sample fills.
    pub lengths: Vec<usize>,
    /// Optimizer step of the batch, counted from 0.
    pub step: u64,
}

/// Content of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchInput {
    /// For a speech backbone.
    Speech(SpeechBatch),
    /// For a text backbone.
    Text(TextBatch),
}

/// Reference answers of a batch.
pub enum References<'a> {
    /// Names and texts of recordings.
    Speech {
        /// Names.
        names: &'a [String],
        /// Texts.
        texts: &'a [String],
        /// What else is known about them.
        facts: &'a [SampleFacts],
    },
    /// Samples of text, with their targets.
    Text(&'a [TextSample]),
}

/// Inputs of the heads of a text backbone besides the states, on the device.
pub struct HeadInputs {
    pub(super) ids: Tensor<2, Int>,
    /// Rows and labels of each task that has rows in the batch.
    pub(super) parts: Vec<Option<DevicePart>>,
}

impl SampleInput {
    /// Returns the sample of speech, if it is one.
    pub fn speech(self) -> Option<SpeechSample> {
        if let Self::Speech(sample) = self { Some(sample) } else { None }
    }

    /// Returns the sample of text, if it is one.
    pub fn text(self) -> Option<TextSample> {
        if let Self::Text(sample) = self { Some(sample) } else { None }
    }
}

impl BatchInput {
    /// Returns the batch of speech.
    ///
    /// # Errors
    /// When it is one of text.
    pub fn speech(&self) -> Result<&SpeechBatch, BoxError> {
        if let Self::Speech(batch) = self { Ok(batch) } else { Err(OTHER_KIND.into()) }
    }

    /// Returns the batch of text.
    ///
    /// # Errors
    /// When it is one of speech.
    pub fn text(&self) -> Result<&TextBatch, BoxError> {
        if let Self::Text(batch) = self { Ok(batch) } else { Err(OTHER_KIND.into()) }
    }
}

const OTHER_KIND: &str = "a batch of text came to a backbone of speech, or the other way";

impl BatchInput {
    /// Returns the names of the samples in messages.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Speech(batch) => batch.names.clone(),
            Self::Text(batch) => batch.samples.iter().map(|sample| sample.name.clone()).collect(),
        }
    }

    /// Returns the number of decisions in the reference answer of a row: tokens, tags, labels.
    pub fn decisions(&self, row: usize) -> usize {
        match self {
            Self::Speech(batch) => batch.targets().row(row).iter().filter(|label| **label >= 0).count(),
            Self::Text(batch) => batch.samples[row].target.count(),
        }
    }

    /// Returns the number of positions of the backbone's states.
    pub fn positions(&self) -> usize {
        match self {
            Self::Speech(batch) => batch.positions,
            Self::Text(batch) => batch.tokens,
        }
    }

    /// Returns the size of the batch.
    pub fn size(&self) -> BatchSize {
        let (samples, length, labels) = match self {
            Self::Speech(batch) => (batch.names.len(), batch.frames, batch.tokens),
            Self::Text(batch) => (batch.samples.len(), batch.tokens, batch.longest_written()),
        };
        BatchSize { samples, length, speech: matches!(self, Self::Speech(_)), labels }
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Speech(batch) => SpeechCollate::bytes(batch),
            Self::Text(batch) => batch.bytes(),
        }
    }

    /// Returns the work of a training step.
    pub(crate) fn work(&self, backbone: &BoxedBackbone, trained: TrainedShares) -> BatchStats {
        match self {
            Self::Speech(batch) => speech_work(backbone, batch, trained),
            Self::Text(batch) => text_work(backbone, batch, trained),
        }
    }

    /// Returns the reference answers.
    pub fn references(&self) -> References<'_> {
        match self {
            Self::Speech(batch) => References::Speech { names: &batch.names, texts: &batch.texts, facts: &batch.facts },
            Self::Text(batch) => References::Text(&batch.samples),
        }
    }

    /// Copies the backbone's input to `device`; `None` if the states of all rows are known. Log-mel features begin at the
    /// backbone's position `start`. They are moved out of the batch, which saves a copy of 30 MB for 32 windows.
    pub fn upload(&mut self, start: usize, device: &Device) -> Option<BackboneInput> {
        Some(match self {
            Self::Speech(batch) => {
                let shape = [batch.mel_rows(), batch.bins, batch.frames];
                if shape[0] == 0 {
                    return None;
                }
                let mel = TensorData::new(std::mem::take(&mut batch.mel), shape);
                BackboneInput::Mel(Tensor::from_data(mel, device), start)
            }
            Self::Text(batch) => {
                let shape = [batch.samples.len(), batch.tokens];
                let ids = |values: &[i64]| Tensor::from_data(TensorData::new(values.to_vec(), shape), device);
                BackboneInput::Tokens(ids(&batch.ids), ids(&batch.type_ids))
            }
        })
    }

    /// Returns the states of the rows, if those of a frozen encoder are kept.
    pub fn states(&self) -> Option<&[RowStates]> {
        self.speech().ok()?.states.as_deref()
    }

    /// Copies what heads read besides the backbone's states to `device`; `None` if they read nothing else.
    pub fn upload_heads(&self, input: Option<&BackboneInput>, device: &Device) -> Option<HeadInputs> {
        let (ids, _) = input?.clone().tokens().ok()?;
        Some(HeadInputs { ids, parts: self.text().ok()?.upload_parts(device) })
    }

    /// Returns the alignment targets, `[batch, positions]` each: of characters, and of the elements that they consist of.
    pub fn alignment(&self) -> Option<&(Vec<i64>, Vec<i64>)> {
        self.speech().ok()?.alignment.as_ref()
    }
}

impl TaskBatch {
    /// Returns the number of decisions in the reference answers of a task's samples.
    pub fn decisions_of(&self, task: usize) -> f64 {
        rows_of(&self.tasks, task).into_iter().map(|row| self.input.decisions(row) as f64).sum()
    }
}

/// Returns the rows of a task, given the task of each row.
pub(super) fn rows_of(tasks: &[usize], task: usize) -> Vec<usize> {
    (0..tasks.len()).filter(|row| tasks[*row] == task).collect()
}

/// Collates samples of several tasks into batches.
pub enum TaskCollate {
    /// For a speech backbone.
    Speech(Box<SpeechCollate>),
    /// For a text backbone.
    Text {
        /// Id of the padding token.
        pad: u32,
        /// Heads of the tasks, if the batches need labels for their losses.
        heads: Vec<HeadConfig>,
    },
}

impl TaskCollate {
    /// Adds the labels for the losses of a dataset's tasks, for training batches.
    pub(super) fn labelled(mut self, dataset: &TaskDataset) -> Self {
        if let Self::Text { heads, .. } = &mut self {
            heads.clone_from(&dataset.heads);
        }
        self
    }
}

impl Collate<TaskSample> for TaskCollate {
    type Batch = TaskBatch;

    fn collate(&self, items: Vec<TaskSample>) -> Result<TaskBatch, SampleError> {
        let tasks: Vec<usize> = items.iter().map(|item| item.task).collect();
        let inputs = items.into_iter().map(|item| item.input);
        let (input, lengths) = match self {
            Self::Speech(collate) => {
                let samples: Vec<_> = inputs.filter_map(SampleInput::speech).collect();
                let audio: Vec<usize> = samples.iter().map(|sample| sample.audio.samples()).collect();
                let batch = collate.collate(samples)?;
                let position = |samples: usize| samples.div_ceil(collate.position()).clamp(1, batch.positions);
                let lengths = audio.into_iter().map(position).collect();
                (BatchInput::Speech(batch), lengths)
            }
            Self::Text { pad, heads } => {
                let samples: Vec<_> = inputs.filter_map(SampleInput::text).collect();
                let lengths = samples.iter().map(|sample| sample.ids.len()).collect();
                (BatchInput::Text(TextBatch::new(samples, *pad).labelled(heads, &tasks)?), lengths)
            }
        };
        Ok(TaskBatch { input, tasks, lengths, step: 0 })
    }

    fn bytes(batch: &TaskBatch) -> usize {
        batch.input.bytes()
    }
}
