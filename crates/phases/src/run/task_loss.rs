//! The tasks' own losses on a batch.

use super::arrays::{ints, one_hot, row_ids};
use super::batch::{BatchInput, TaskBatch};
use super::model::{TaskModel, prompted};
use crate::WhisperBatch;
use crate::config::TaskConfig;
use burn::tensor::{Bool, Device, Int, Tensor};
use undertone_model::adapters::Gates;
use undertone_model::backbone::BackboneInput;
use undertone_model::whisper::WhisperDecoder;
use undertone_ops::{CrossEntropyOptions, linear_cross_entropy};
use undertone_tasks::{DevicePart, HeadInput};
use undertone_train::BoxError;

/// Losses of the tasks of a batch.
pub(super) struct TaskLosses<'a> {
    pub tasks: &'a [TaskConfig],
    /// Label smoothing of text from a speech backbone: share of each target's mass that is spread over all tokens.
    pub label_smoothing: f64,
}

impl TaskLosses<'_> {
    /// Computes each task's loss, summed over its own rows, `[1]` each. `states` are the backbone's last states,
    /// `[batch, time, d_model]`.
    ///
    /// # Errors
    /// When the batch is not for this model.
    #[allow(clippy::too_many_arguments)] // all of a batch, at each stage of its way through the model
    pub fn sums(
        &self,
        model: &TaskModel,
        states: Tensor<3>,
        padding: &Tensor<2, Bool>,
        gates: Option<Gates>,
        batch: &TaskBatch,
        texts: Option<&TextInput>,
        device: &Device,
    ) -> Result<Vec<Tensor<1>>, BoxError> {
        let rows = batch.tasks.len();
        let decoder = model.backbone.decoder();
        let hidden = match (decoder, &batch.input) {
            // All tasks share one decoder, so it runs once for all of them.
            (Some(decoder), BatchInput::Speech(speech)) => {
                let heads = one_hot(&batch.tasks, model.heads.len().max(1), device);
                let cache = prompted(decoder, &model.heads, states, gates, heads);
                let ids = ints(&speech.inputs, device).reshape([rows, speech.tokens]);
                decoder.forward_all(ids, cache)
            }
            _ => states,
        };
        let sum = |task: usize| {
            let own: Vec<usize> = (0..rows).filter(|row| batch.tasks[*row] == task).collect();
            match (decoder, &batch.input, texts) {
                _ if own.is_empty() => Ok(Tensor::zeros([1], device)),
                (Some(decoder), BatchInput::Speech(speech), _) => {
                    let pick = (own.len() < rows).then(|| row_ids(&own, device));
                    let hidden = pick.map_or(hidden.clone(), |rows| hidden.clone().select(0, rows));
                    Ok(self.written(decoder, hidden, speech, &own, device))
                }
                (_, _, Some(texts)) => model.heads[task].loss(texts.of(task, hidden.clone(), padding.clone())?),
                _ => Err("a batch of text came to a backbone of speech, or the other way".into()),
            }
        };
        (0..self.tasks.len()).map(sum).collect()
    }

    /// Computes the cross-entropy of a speech backbone's text. `hidden` are its decoder's states for `rows` of the
    /// batch, `[rows, tokens, d_model]`.
    fn written(
        &self,
        decoder: &WhisperDecoder,
        hidden: Tensor<3>,
        speech: &WhisperBatch,
        rows: &[usize],
        device: &Device,
    ) -> Tensor<1> {
        let [own, tokens, d_model] = hidden.dims();
        let labels: Vec<i64> = rows.iter().flat_map(|row| speech.row_labels(*row)).copied().collect();
        let embedding = decoder.embed_tokens.weight.val();
        let hidden = hidden.reshape([own * tokens, d_model]);
        let options = CrossEntropyOptions { label_smoothing: self.label_smoothing, ..Default::default() };
        linear_cross_entropy(hidden, embedding, None, ints(&labels, device), options).sum
    }
}

/// Inputs of the heads of text tasks besides the states, on the device.
pub struct TextInput {
    ids: Tensor<2, Int>,
    /// Rows and labels of each task that has rows in the batch.
    parts: Vec<Option<DevicePart>>,
}

impl TextInput {
    /// Uploads those of a batch of text; `None` for speech.
    pub(super) fn new(batch: &TaskBatch, input: &BackboneInput, device: &Device) -> Option<Self> {
        match (&batch.input, input) {
            (BatchInput::Text(text), BackboneInput::Tokens(ids, _)) => {
                Some(Self { ids: ids.clone(), parts: text.upload_parts(device) })
            }
            _ => None,
        }
    }

    /// Returns the input of a task's head for its rows.
    fn of(&self, task: usize, states: Tensor<3>, padding: Tensor<2, Bool>) -> Result<HeadInput, BoxError> {
        let part = self.parts.get(task).and_then(Option::as_ref);
        let DevicePart { rows, arrays } =
            part.ok_or("a batch for training has no labels: its collate knows no tasks")?;
        let (ids, arrays) = (self.ids.clone(), arrays.clone());
        Ok(match rows.clone() {
            None => HeadInput { states, padding, ids, arrays },
            Some(rows) => HeadInput {
                states: states.select(0, rows.clone()),
                padding: padding.select(0, rows.clone()),
                ids: ids.select(0, rows),
                arrays,
            },
        })
    }
}
