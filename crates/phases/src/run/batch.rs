//! Samples of several tasks, and batches of them.

use crate::batch::POSITION;
use crate::{SpeechDataset, SpeechSample, WhisperBatch, WhisperCollate};
use std::sync::Arc;
use undertone_data::loader::{Collate, Dataset, Loader, SampleError};
use undertone_fit::BatchSize;
use undertone_tasks::{HeadConfig, TextBatch, TextDataset, TextSample};

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

/// Samples of a task.
#[derive(Clone)]
pub enum TaskSamples {
    /// For a speech backbone.
    Speech(Arc<SpeechDataset>),
    /// For a text backbone.
    Text(Arc<TextDataset>),
}

/// Samples of all tasks, one task after the other.
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
    /// Returns the dataset of tasks with these samples and heads, in the order of the tasks.
    pub fn new(tasks: Vec<TaskSamples>, heads: Vec<HeadConfig>) -> Self {
        Self { tasks, heads }
    }

    /// Returns the number of samples of each task.
    pub fn lengths(&self) -> Vec<usize> {
        self.tasks.iter().map(TaskSamples::len).collect()
    }

    /// Returns the samples of the tasks, in their order.
    pub fn tasks(&self) -> &[TaskSamples] {
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

    /// Returns the length in seconds of speech or tokens of text.
    fn length(&self, index: usize) -> Option<f64> {
        match self.locate(index) {
            (_, TaskSamples::Speech(samples), index) => samples.length(index),
            (_, TaskSamples::Text(samples), index) => Some(samples.samples()[index].ids.len() as f64),
        }
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
    Speech(WhisperBatch),
    /// For a text backbone.
    Text(TextBatch),
}

impl TaskBatch {
    /// Returns the number of decisions in the reference answer of a row: tokens, tags, labels.
    pub fn decisions(&self, row: usize) -> usize {
        match &self.input {
            BatchInput::Speech(speech) => speech.row_labels(row).iter().filter(|label| **label >= 0).count(),
            BatchInput::Text(text) => text.samples[row].target.count(),
        }
    }

    /// Returns the number of decisions in the reference answers of a task's samples.
    pub fn decisions_of(&self, task: usize) -> f64 {
        let own = self.tasks.iter().enumerate().filter(|(_, other)| **other == task);
        own.map(|(row, _)| self.decisions(row) as f64).sum()
    }

    /// Returns the number of positions of the backbone's states.
    pub fn positions(&self) -> usize {
        match &self.input {
            BatchInput::Speech(speech) => speech.frames.div_ceil(2),
            BatchInput::Text(text) => text.tokens,
        }
    }
}

impl TaskBatch {
    /// Returns the size of the batch.
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

/// Collates samples of several tasks into batches.
pub enum TaskCollate {
    /// For a speech backbone.
    Speech(Box<WhisperCollate>),
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
