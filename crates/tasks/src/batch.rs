//! Batches of text samples, with the labels of every task's loss.

use crate::{BoxError, DeviceArrays, HeadConfig, HostArrays, TextSample};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Batch of token rows, padded to the longest.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBatch {
    /// Samples of the batch.
    pub samples: Vec<TextSample>,
    /// Token ids, `[batch, tokens]`.
    pub ids: Vec<i64>,
    /// Token types, `[batch, tokens]`.
    pub type_ids: Vec<i64>,
    /// Number of tokens per row.
    pub tokens: usize,
    /// Part of each task in the batch; empty if no loss is needed.
    pub parts: Vec<TaskPart>,
}

/// A task's part of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPart {
    /// Rows of the task; may be empty.
    pub rows: Vec<usize>,
    /// Arrays for the task's head and loss.
    pub arrays: HostArrays,
    /// Number of decisions in these rows: the divisor of the loss.
    pub count: usize,
}

/// A task's part of a batch, on a device.
#[derive(Clone, Debug)]
pub struct DevicePart {
    /// Indices of the task's rows; `None` for the whole batch.
    pub rows: Option<Tensor<1, Int>>,
    /// Arrays for the task's head and loss.
    pub arrays: DeviceArrays,
}

impl TextBatch {
    /// Pads samples to a batch; `pad` is the backbone's padding token.
    pub fn new(samples: Vec<TextSample>, pad: u32) -> Self {
        let tokens = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or_default();
        let padded = |row: fn(&TextSample) -> &[u32], with: u32| -> Vec<i64> {
            samples.iter().flat_map(|sample| pad_row(row(sample), tokens, i64::from(with))).collect()
        };
        let ids = padded(|sample| &sample.ids, pad);
        let type_ids = padded(|sample| &sample.type_ids, 0);
        Self { samples, ids, type_ids, tokens, parts: Vec::new() }
    }

    /// Adds the labels of the losses of `heads`, one for each task; `tasks` has the task of each sample.
    ///
    /// # Errors
    /// When a sample is not of its task's kind.
    pub fn labelled(mut self, heads: &[HeadConfig], tasks: &[usize]) -> Result<Self, BoxError> {
        let part = |(task, head): (usize, &HeadConfig)| {
            let rows: Vec<usize> = (0..tasks.len()).filter(|row| tasks[*row] == task).collect();
            if rows.is_empty() {
                return Ok(TaskPart::default());
            }
            let samples: Vec<&TextSample> = rows.iter().map(|row| &self.samples[*row]).collect();
            let arrays = head.inputs(&samples, self.tokens).and(head.labels(&samples, self.tokens)?);
            let count = samples.iter().map(|sample| sample.target.count()).sum();
            Ok(TaskPart { rows, arrays, count })
        };
        self.parts = heads.iter().enumerate().map(part).collect::<Result<_, BoxError>>()?;
        Ok(self)
    }

    /// Copies every task's part to `device`; `None` for a task without rows.
    pub fn upload_parts(&self, device: &Device) -> Vec<Option<DevicePart>> {
        let part = |part: &TaskPart| {
            let whole = part.rows.len() == self.samples.len();
            let ids = || part.rows.iter().map(|row| *row as i64).collect::<Vec<_>>();
            let rows = (!whole).then(|| Tensor::from_ints(TensorData::from(ids().as_slice()), device));
            DevicePart { rows, arrays: part.arrays.upload(device) }
        };
        self.parts.iter().map(|of| (!of.rows.is_empty()).then(|| part(of))).collect()
    }

    /// Number of decoding steps for the longest written target: its tokens after the first; 0 without one.
    pub fn longest_written(&self) -> usize {
        self.samples.iter().map(|sample| sample.target.written().saturating_sub(1)).max().unwrap_or_default()
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        // Ids twice, and once more for the samples' own copies.
        3 * 8 * self.ids.len() + self.parts.iter().map(|part| part.arrays.bytes()).sum::<usize>()
    }
}

/// Pads a row of numbers to a length, or truncates it.
pub fn pad_row<T: Copy + Into<i64>>(row: &[T], length: usize, with: i64) -> impl Iterator<Item = i64> {
    row.iter().map(|x| (*x).into()).chain(std::iter::repeat(with)).take(length)
}
