//! Arrays of a batch on a device.

use super::batch::TaskBatch;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use undertone_model::backbone::BackboneInput;

/// Returns a matrix `[rows, width]` with a 1 at each row's index. Larger indices count as the last column.
pub(super) fn one_hot(indices: &[usize], width: usize, device: &Device) -> Tensor<2> {
    let at = |index: usize| index.min(width - 1);
    let rows: Vec<f32> = indices.iter().flat_map(|i| (0..width).map(move |k| f32::from(k == at(*i)))).collect();
    Tensor::from_data(TensorData::new(rows, [indices.len(), width]), device)
}

/// Returns integers on `device`.
pub(super) fn ints(values: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(TensorData::from(values), device)
}

/// Returns the backbone's [input](crate::run::batch::BatchInput::upload) and the padding mask of a batch,
/// `[batch, positions]`, on `device`. Log-mel features are moved out of the batch. Speech begins at the encoder position
/// `start`.
pub(super) fn input(batch: &mut TaskBatch, start: usize, device: &Device) -> (Option<BackboneInput>, Tensor<2, Bool>) {
    let (rows, positions) = (batch.tasks.len(), batch.input.positions());
    let ended: Vec<bool> = batch.lengths.iter().flat_map(|n| (0..positions).map(move |i| i >= *n)).collect();
    let padding = Tensor::from_data(TensorData::new(ended, [rows, positions]), device);
    (batch.input.upload(start, device), padding)
}
