//! Arrays of a batch on a device.

use super::batch::{BatchInput, TaskBatch};
use crate::WhisperBatch;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use undertone_model::backbone::BackboneInput;

/// Each row 1 at its index; the only column is everybody's.
pub(super) fn one_hot(indices: &[usize], width: usize, device: &Device) -> Tensor<2> {
    let at = |index: usize| index.min(width - 1);
    let rows: Vec<f32> = indices.iter().flat_map(|i| (0..width).map(move |k| f32::from(k == at(*i)))).collect();
    Tensor::from_data(TensorData::new(rows, [indices.len(), width]), device)
}

/// Row numbers on `device`.
pub(super) fn row_ids(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    ints(&rows.iter().map(|row| *row as i64).collect::<Vec<_>>(), device)
}

/// Numbers on `device`.
pub(super) fn ints(values: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(TensorData::from(values), device)
}

/// What the backbone reads of a batch, and where its samples have ended, on `device`; log-mel features leave the batch.
/// Speech begins at the encoder position `start`.
pub(super) fn input(batch: &mut TaskBatch, start: usize, device: &Device) -> (BackboneInput, Tensor<2, Bool>) {
    let (rows, positions) = (batch.tasks.len(), batch.positions());
    let ended: Vec<bool> = batch.lengths.iter().flat_map(|n| (0..positions).map(move |i| i >= *n)).collect();
    let padding = Tensor::from_data(TensorData::new(ended, [rows, positions]), device);
    let input = match &mut batch.input {
        BatchInput::Speech(speech) => BackboneInput::Mel(mel(speech, device), start),
        BatchInput::Text(text) => {
            let ids = |values: &[i64]| Tensor::from_data(TensorData::new(values.to_vec(), [rows, text.tokens]), device);
            BackboneInput::Tokens(ids(&text.ids), ids(&text.type_ids))
        }
    };
    (input, padding)
}

/// `[batch, bins, frames]` on `device`, moved out of the batch: 30 MB of 32 windows need not be copied on the way.
fn mel(batch: &mut WhisperBatch, device: &Device) -> Tensor<3> {
    let shape = [batch.names.len(), batch.bins, batch.frames];
    Tensor::from_data(TensorData::new(std::mem::take(&mut batch.mel), shape), device)
}
