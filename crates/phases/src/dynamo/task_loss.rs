//! The tasks' own losses on a batch.

use super::batch::{BatchInput, TaskBatch};
use super::config::TaskConfig;
use super::evaluate::{ints, one_hot, row_ids};
use super::model::{BackboneNetwork, Dynamo, prompted};
use super::text_data::TextSample;
use super::text_loss::text_loss;
use crate::WhisperBatch;
use burn::tensor::{Bool, Device, Tensor};
use undertone_model::lora::Gates;
use undertone_model::whisper::Whisper;
use undertone_ops::{CrossEntropyOptions, linear_cross_entropy};

/// How the tasks of a batch are compared with what should be answered.
pub(super) struct TaskLosses<'a> {
    pub tasks: &'a [TaskConfig],
    /// Share of each target's mass spread over all tokens, where text is written by a speech backbone.
    pub label_smoothing: f64,
}

impl TaskLosses<'_> {
    /// Each task's loss summed over the rows that are its own, `[1]` each. `states` are the backbone's last,
    /// `[batch, time, d_model]`.
    pub fn sums(
        &self,
        model: &Dynamo,
        states: Tensor<3>,
        padding: &Tensor<2, Bool>,
        gates: Option<Gates>,
        batch: &TaskBatch,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let rows = batch.tasks.len();
        let hidden = match (&model.backbone, &batch.input) {
            // One decoder writes for all tasks, so it writes for all at once.
            (BackboneNetwork::Whisper(whisper), BatchInput::Speech(speech)) => {
                let heads = one_hot(&batch.tasks, model.heads.len().max(1), device);
                let cache = prompted(whisper, &model.heads, states, gates, heads);
                let ids = ints(&speech.inputs, device).reshape([rows, speech.tokens]);
                whisper.decoder.forward_all(ids, cache)
            }
            _ => states,
        };
        let sum = |task: usize| {
            let own: Vec<usize> = (0..rows).filter(|row| batch.tasks[*row] == task).collect();
            let pick = (own.len() < rows).then(|| row_ids(&own, device));
            let picked = |x: &Tensor<3>| pick.clone().map_or(x.clone(), |rows| x.clone().select(0, rows));
            match (&model.backbone, &batch.input) {
                _ if own.is_empty() => Tensor::zeros([1], device),
                (BackboneNetwork::Whisper(whisper), BatchInput::Speech(speech)) => {
                    self.written(whisper, picked(&hidden), speech, &own, device)
                }
                (BackboneNetwork::Text(_), BatchInput::Text(text)) => {
                    let samples: Vec<&TextSample> = own.iter().map(|row| &text.samples[*row]).collect();
                    let padding = pick.clone().map_or(padding.clone(), |rows| padding.clone().select(0, rows));
                    text_loss(&model.heads[task], picked(&hidden), padding, &samples, device)
                }
                _ => unreachable!("backbone and batches are made from one configuration"),
            }
        };
        (0..self.tasks.len()).map(sum).collect()
    }

    /// The cross-entropy of what a speech backbone writes: `hidden` is its decoder's states for `rows` of the batch.
    fn written(
        &self,
        whisper: &Whisper,
        hidden: Tensor<3>,
        speech: &WhisperBatch,
        rows: &[usize],
        device: &Device,
    ) -> Tensor<1> {
        let [own, tokens, d_model] = hidden.dims();
        let labels: Vec<i64> = rows.iter().flat_map(|row| speech.row_labels(*row)).copied().collect();
        let embedding = whisper.decoder.embed_tokens.weight.val();
        let hidden = hidden.reshape([own * tokens, d_model]);
        let options = CrossEntropyOptions { label_smoothing: self.label_smoothing, ..Default::default() };
        linear_cross_entropy(hidden, embedding, None, ints(&labels, device), options).sum
    }
}
