//! Samples of several tasks, and batches of them.

use crate::batch::POSITION;
use crate::{SpeechDataset, SpeechSample, WhisperBatch, WhisperCollate};
use undertone_data::loader::{Collate, Dataset, SampleError};

/// A sample and its task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSample {
    /// The task's index.
    pub task: usize,
    /// What is heard and written.
    pub speech: SpeechSample,
}

/// The samples of all tasks, one task after the other.
pub struct TaskDataset {
    tasks: Vec<SpeechDataset>,
}

impl TaskDataset {
    /// The datasets of tasks, in the tasks' order.
    pub fn new(tasks: Vec<SpeechDataset>) -> Self {
        Self { tasks }
    }

    /// How many samples each task has.
    pub fn lengths(&self) -> Vec<usize> {
        self.tasks.iter().map(SpeechDataset::len).collect()
    }

    fn locate(&self, mut index: usize) -> (usize, &SpeechDataset, usize) {
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
        self.tasks.iter().map(SpeechDataset::len).sum()
    }

    fn get(&self, index: usize, epoch: u64) -> Result<TaskSample, SampleError> {
        let (task, samples, index) = self.locate(index);
        Ok(TaskSample { task, speech: samples.get(index, epoch)? })
    }

    fn name(&self, index: usize) -> String {
        let (_, samples, index) = self.locate(index);
        samples.name(index)
    }
}

/// A batch of several tasks, in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskBatch {
    /// What Whisper reads and should write.
    pub speech: WhisperBatch,
    /// Each sample's task.
    pub tasks: Vec<usize>,
    /// Encoder positions that each sample's audio fills.
    pub lengths: Vec<usize>,
    /// The optimizer step it belongs to, counted from 0.
    pub step: u64,
}

/// Makes batches of several tasks.
pub struct TaskCollate(pub WhisperCollate);

impl Collate<TaskSample> for TaskCollate {
    type Batch = TaskBatch;

    fn collate(&self, items: Vec<TaskSample>) -> Result<TaskBatch, SampleError> {
        let tasks = items.iter().map(|item| item.task).collect();
        let audio: Vec<usize> = items.iter().map(|item| item.speech.audio.len()).collect();
        let speech = self.0.collate(items.into_iter().map(|item| item.speech).collect())?;
        let positions = speech.frames.div_ceil(2);
        let lengths = audio.into_iter().map(|samples| samples.div_ceil(POSITION).clamp(1, positions)).collect();
        Ok(TaskBatch { speech, tasks, lengths, step: 0 })
    }

    fn bytes(batch: &TaskBatch) -> usize {
        WhisperCollate::bytes(&batch.speech)
    }
}
