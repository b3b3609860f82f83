//! Samples of several tasks, and batches of them.

use crate::batch::POSITION;
use crate::{SpeechDataset, SpeechSample, WhisperBatch, WhisperCollate};
use std::sync::Arc;
use undertone_data::loader::{Collate, Dataset, Loader, SampleError};
use undertone_fit::BatchSize;
use undertone_tasks::{HeadConfig, TextBatch, TextDataset, TextSample};

/// Batches of tasks.
pub type TaskLoader = Loader<TaskDataset, TaskCollate>;

/// A sample and its task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSample {
    /// The task's index.
    pub task: usize,
    /// What is heard or read, and what should be answered.
    pub input: SampleInput,
}

/// What a sample is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleInput {
    /// Audio, and what is to be written.
    Speech(SpeechSample),
    /// Tokens, and what is to be answered.
    Text(TextSample),
}

/// The samples of a task.
#[derive(Clone)]
pub enum TaskSamples {
    /// Of a speech backbone.
    Speech(Arc<SpeechDataset>),
    /// Of a text backbone.
    Text(Arc<TextDataset>),
}

/// The samples of all tasks, one task after the other.
pub struct TaskDataset {
    tasks: Vec<TaskSamples>,
    heads: Vec<HeadConfig>,
}

impl TaskSamples {
    fn len(&self) -> usize {
        match self {
            Self::Speech(samples) => samples.len(),
            Self::Text(samples) => samples.len(),
        }
    }
}

impl TaskDataset {
    /// The datasets and heads of tasks, in the tasks' order.
    pub fn new(tasks: Vec<TaskSamples>, heads: Vec<HeadConfig>) -> Self {
        Self { tasks, heads }
    }

    /// How many samples each task has.
    pub fn lengths(&self) -> Vec<usize> {
        self.tasks.iter().map(TaskSamples::len).collect()
    }

    /// The tasks' samples, in their order.
    pub fn tasks(&self) -> &[TaskSamples] {
        &self.tasks
    }

    /// A sample as demanding as any: the one of all tasks' whose input and answer are longest together.
    ///
    /// # Errors
    /// When a sample cannot be made, or there is none.
    pub fn most_demanding(&self) -> Result<TaskSample, SampleError> {
        let mut found: Option<(usize, TaskSample)> = None;
        for (task, samples) in self.tasks.iter().enumerate() {
            let (length, input) = match samples {
                TaskSamples::Speech(samples) => {
                    let sample = samples.most_demanding()?;
                    (sample.heard.samples() / POSITION + sample.tokens.len(), SampleInput::Speech(sample))
                }
                TaskSamples::Text(samples) => {
                    let Some(sample) = samples.most_demanding() else { continue };
                    (sample.ids.len() + sample.target.count(), SampleInput::Text(sample))
                }
            };
            if found.as_ref().is_none_or(|(longest, _)| length > *longest) {
                found = Some((length, TaskSample { task, input }));
            }
        }
        Ok(found.ok_or("there are no samples to train on")?.1)
    }

    fn locate(&self, mut index: usize) -> (usize, &TaskSamples, usize) {
        let mut task = 0;
        while index >= self.tasks[task].len() {
            index -= self.tasks[task].len();
            task += 1;
        }
        (task, &self.tasks[task], index)
    }
}

impl Dataset for TaskDataset {
    type Item = TaskSample;

    fn len(&self) -> usize {
        self.tasks.iter().map(TaskSamples::len).sum()
    }

    fn get(&self, index: usize, epoch: u64) -> Result<TaskSample, SampleError> {
        let (task, samples, index) = self.locate(index);
        let input = match samples {
            TaskSamples::Speech(samples) => SampleInput::Speech(samples.get(index, epoch)?),
            TaskSamples::Text(samples) => SampleInput::Text(samples.get(index)),
        };
        Ok(TaskSample { task, input })
    }

    fn name(&self, index: usize) -> String {
        match self.locate(index) {
            (_, TaskSamples::Speech(samples), index) => samples.name(index),
            (_, TaskSamples::Text(samples), index) => samples.samples()[index].name.clone(),
        }
    }

    /// Seconds of speech, tokens of text.
    fn length(&self, index: usize) -> Option<f64> {
        match self.locate(index) {
            (_, TaskSamples::Speech(samples), index) => samples.length(index),
            (_, TaskSamples::Text(samples), index) => Some(samples.samples()[index].ids.len() as f64),
        }
    }
}

/// A batch of several tasks, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskBatch {
    /// What the backbone reads, and what should be answered.
    pub input: BatchInput,
    /// Each sample's task.
    pub tasks: Vec<usize>,
    /// Positions of the backbone's states that each sample fills.
    pub lengths: Vec<usize>,
    /// The optimizer step it belongs to, counted from 0.
    pub step: u64,
}

/// What a batch is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchInput {
    /// For a speech backbone.
    Speech(WhisperBatch),
    /// For a text backbone.
    Text(TextBatch),
}

impl TaskBatch {
    /// How many decisions a row asks for: tokens, tags, labels.
    pub fn decisions(&self, row: usize) -> usize {
        match &self.input {
            BatchInput::Speech(speech) => speech.row_labels(row).iter().filter(|label| **label >= 0).count(),
            BatchInput::Text(text) => text.samples[row].target.count(),
        }
    }

    /// How many decisions the samples of a task ask for.
    pub fn decisions_of(&self, task: usize) -> f64 {
        let own = self.tasks.iter().enumerate().filter(|(_, other)| **other == task);
        own.map(|(row, _)| self.decisions(row) as f64).sum()
    }

    /// Positions of the backbone's states.
    pub fn positions(&self) -> usize {
        match &self.input {
            BatchInput::Speech(speech) => speech.frames.div_ceil(2),
            BatchInput::Text(text) => text.tokens,
        }
    }
}

impl TaskBatch {
    /// How large it is.
    pub fn shape(&self) -> BatchSize {
        match &self.input {
            BatchInput::Speech(speech) => speech.shape(),
            BatchInput::Text(text) => {
                let labels = text.longest_written();
                BatchSize { samples: text.samples.len(), length: text.tokens, speech: false, labels }
            }
        }
    }
}

/// Makes batches of several tasks.
pub enum TaskCollate {
    /// For a speech backbone.
    Speech(Box<WhisperCollate>),
    /// For a text backbone.
    Text {
        /// The id of the token that it pads with.
        pad: u32,
        /// The tasks' heads, where batches are for their losses.
        heads: Vec<HeadConfig>,
    },
}

impl TaskCollate {
    /// With what the losses of a dataset's tasks compare with, for batches that are trained on.
    pub(super) fn labelled(self, dataset: &TaskDataset) -> Self {
        match self {
            Self::Text { pad, .. } => Self::Text { pad, heads: dataset.heads.clone() },
            speech => speech,
        }
    }
}

impl Collate<TaskSample> for TaskCollate {
    type Batch = TaskBatch;

    fn collate(&self, items: Vec<TaskSample>) -> Result<TaskBatch, SampleError> {
        let tasks: Vec<usize> = items.iter().map(|item| item.task).collect();
        let (mut heard, mut read) = (Vec::new(), Vec::new());
        for item in items {
            match item.input {
                SampleInput::Speech(sample) => heard.push(sample),
                SampleInput::Text(sample) => read.push(sample),
            }
        }
        let (input, lengths) = match self {
            Self::Speech(collate) => speech(collate, heard)?,
            Self::Text { pad, heads } => {
                let lengths = read.iter().map(|sample| sample.ids.len()).collect();
                (BatchInput::Text(TextBatch::new(read, *pad).labelled(heads, &tasks)?), lengths)
            }
        };
        Ok(TaskBatch { input, tasks, lengths, step: 0 })
    }

    fn bytes(batch: &TaskBatch) -> usize {
        match &batch.input {
            BatchInput::Speech(speech) => WhisperCollate::bytes(speech),
            BatchInput::Text(text) => text.bytes(),
        }
    }
}

fn speech(collate: &WhisperCollate, samples: Vec<SpeechSample>) -> Result<(BatchInput, Vec<usize>), SampleError> {
    let audio: Vec<usize> = samples.iter().map(|sample| sample.heard.samples()).collect();
    let batch = collate.collate(samples)?;
    let positions = batch.frames.div_ceil(2);
    let lengths = audio.into_iter().map(|samples| samples.div_ceil(POSITION).clamp(1, positions)).collect();
    Ok((BatchInput::Speech(batch), lengths))
}
