//! Batches of text samples, with what every task's loss compares with.

use crate::{BoxError, DeviceArrays, HeadConfig, HostArrays, TextSample};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Rows of tokens, padded to the longest.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBatch {
    /// What it is made of.
    pub samples: Vec<TextSample>,
    /// `[batch, tokens]`.
    pub ids: Vec<i64>,
    /// `[batch, tokens]`.
    pub type_ids: Vec<i64>,
    /// Tokens per row.
    pub tokens: usize,
    /// For every task its part of the batch; nothing where no loss is asked for.
    pub parts: Vec<TaskPart>,
}

/// A task's part of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPart {
    /// Its rows; there may be none.
    pub rows: Vec<usize>,
    /// What its head and its loss are given of them.
    pub arrays: HostArrays,
    /// How many decisions they ask for: what its loss is divided by.
    pub count: usize,
}

/// A task's part of a batch, on a device.
#[derive(Clone, Debug)]
pub struct DevicePart {
    /// Its rows' numbers, where they are not the whole batch.
    pub rows: Option<Tensor<1, Int>>,
    /// What its head and its loss are given of them.
    pub arrays: DeviceArrays,
}

impl TextBatch {
    /// Pads samples to a batch for a backbone that pads with the token `pad`.
    pub fn new(samples: Vec<TextSample>, pad: u32) -> Self {
        let tokens = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or_default();
        let padded = |row: fn(&TextSample) -> &[u32], with: u32| -> Vec<i64> {
            samples.iter().flat_map(|sample| pad_row(row(sample), tokens, i64::from(with))).collect()
        };
        let ids = padded(|sample| &sample.ids, pad);
        let type_ids = padded(|sample| &sample.type_ids, 0);
        Self { samples, ids, type_ids, tokens, parts: Vec::new() }
    }

    /// With what the losses of `heads`, one for each task, compare with; `tasks` is each sample's own.
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

    /// Every task's part on `device`; nothing for a task without rows.
    pub fn upload_parts(&self, device: &Device) -> Vec<Option<DevicePart>> {
        let part = |part: &TaskPart| {
            let whole = part.rows.len() == self.samples.len();
            let ids = || part.rows.iter().map(|row| *row as i64).collect::<Vec<_>>();
            let rows = (!whole).then(|| Tensor::from_ints(TensorData::from(ids().as_slice()), device));
            DevicePart { rows, arrays: part.arrays.upload(device) }
        };
        self.parts.iter().map(|of| (!of.rows.is_empty()).then(|| part(of))).collect()
    }

    /// Tokens that the longest text to be written asks for, after its first; 0 where none is.
    pub fn longest_written(&self) -> usize {
        self.samples.iter().map(|sample| sample.target.written().saturating_sub(1)).max().unwrap_or_default()
    }

    /// About how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        // Ids twice, and once more what each sample holds of its own.
        3 * 8 * self.ids.len() + self.parts.iter().map(|part| part.arrays.bytes()).sum::<usize>()
    }
}

/// A row of numbers, filled up to a length, or cut to it.
pub fn pad_row<T: Copy + Into<i64>>(row: &[T], length: usize, with: i64) -> impl Iterator<Item = i64> {
    row.iter().map(|x| (*x).into()).chain(std::iter::repeat(with)).take(length)
}
