//! Text: the samples, batches, losses and answers of a text backbone.

use super::batch::{HeadInputs, SampleInput, TaskCollate, TaskSamples, rows_of};
use super::modality::{EncodedBatch, Modality, Opening};
use super::text_data::read_texts;
use crate::backbone::{TextBackbone, row_ids};
use crate::config::TaskConfig;
use crate::{DataConfig, RunError};
use burn::tensor::{Bool, Int, Tensor, TensorData};
use std::sync::Arc;
use undertone_data::loader::SampleError;
use undertone_fit::Footprint;
use undertone_model::backbone::BoxedBackbone;
use undertone_tasks::{Answer, AnswerContext, Cut, DevicePart, HeadInput, TextDataset, TextSample};
use undertone_train::BoxError;

impl Modality for TextBackbone {
    fn network(&self) -> BoxedBackbone {
        self.network.clone()
    }

    fn samples(&self, Opening { experiment, task, sources, .. }: &Opening) -> Result<Arc<dyn TaskSamples>, RunError> {
        // Validation has checked that there is exactly one source.
        let samples = read_texts(&experiment.data, task, &sources[0], &self.framer)
            .map_err(|source| RunError::Records { task: task.name.clone(), source })?;
        Ok(Arc::new(samples))
    }

    fn collate(&self, _: &DataConfig, _: bool) -> Result<TaskCollate, RunError> {
        Ok(TaskCollate::Text { pad: self.tokenizer.pad(), heads: Vec::new() })
    }

    fn footprint(&self, tasks: &[TaskConfig]) -> Footprint {
        let tokens = tasks.iter().map(|task| task.head.max_input()).max().unwrap_or_default();
        Footprint::text(&self.dimensions, tokens)
    }

    fn losses(&self, encoded: EncodedBatch, heads: Option<&HeadInputs>, _: f64) -> Result<Vec<Tensor<1>>, BoxError> {
        let EncodedBatch { model, tasks, batch, states, padding, .. } = encoded;
        let heads = heads.ok_or("a batch for training has no inputs of heads")?;
        let loss = |task: usize| {
            if rows_of(&batch.tasks, task).is_empty() {
                return Ok(Tensor::zeros([1], &states.device()));
            }
            model.heads[task].loss(heads.of(task, states.clone(), padding.clone())?)
        };
        (0..tasks.len()).map(loss).collect()
    }

    fn answers(&self, encoded: EncodedBatch, chosen: &[usize]) -> Result<Vec<Answer>, BoxError> {
        let mut answers = vec![Answer::text(""); chosen.len()];
        for task in 0..encoded.tasks.len() {
            let rows = rows_of(chosen, task);
            if !rows.is_empty() {
                let found = self.answers_of(task, &encoded, &rows)?;
                rows.into_iter().zip(found).for_each(|(row, answer)| answers[row] = answer);
            }
        }
        Ok(answers)
    }

    fn text(&self) -> Option<&TextBackbone> {
        Some(self)
    }
}

impl TextBackbone {
    /// Computes the answers of a task's head to some rows of a batch.
    fn answers_of(&self, task: usize, encoded: &EncodedBatch, rows: &[usize]) -> Result<Vec<Answer>, BoxError> {
        let EncodedBatch { model, tasks, batch, states, padding, .. } = encoded;
        let (batch, config) = (batch.input.text()?, &tasks[task]);
        let (device, tokens) = (states.device(), batch.tokens);
        let picked = row_ids(rows, &device);
        let samples: Vec<&TextSample> = rows.iter().map(|row| &batch.samples[*row]).collect();
        let ids: Vec<i64> = rows.iter().flat_map(|row| &batch.ids[row * tokens..][..tokens]).copied().collect();
        let input = HeadInput {
            states: states.clone().select(0, picked.clone()),
            padding: mask_rows((*padding).clone(), picked),
            ids: Tensor::from_data(TensorData::new(ids, [rows.len(), tokens]), &device),
            arrays: config.head.inputs(&samples, tokens).upload(&device),
        };
        let context = AnswerContext { samples: &samples, tokenizer: &self.tokenizer, generation: &config.generation };
        model.heads[task].answer(input, &context)
    }
}

/// Returns some rows of a mask. As integers, because Burn's CPU backend marks selected rows of a mask as bytes, which its other operations
/// refuse in builds with debug assertions.
fn mask_rows(mask: Tensor<2, Bool>, rows: Tensor<1, Int>) -> Tensor<2, Bool> {
    mask.int().select(0, rows).bool()
}

impl HeadInputs {
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
                padding: mask_rows(padding, rows.clone()),
                ids: ids.select(0, rows),
                arrays,
            },
        })
    }
}

impl TaskSamples for TextDataset {
    fn count(&self) -> usize {
        self.len()
    }

    fn sample(&self, index: usize, _: u64) -> Result<SampleInput, SampleError> {
        Ok(SampleInput::Text(self.get(index)))
    }

    fn name(&self, index: usize) -> String {
        self.samples()[index].name.clone()
    }

    fn length(&self, index: usize) -> Option<f64> {
        Some(self.samples()[index].ids.len() as f64)
    }

    fn most_demanding(&self) -> Result<Option<(usize, SampleInput)>, SampleError> {
        let sample = TextDataset::most_demanding(self);
        Ok(sample.map(|sample| (sample.ids.len() + sample.target.count(), SampleInput::Text(sample))))
    }

    fn cut(&self) -> Cut {
        TextDataset::cut(self)
    }

    fn texts(&self) -> Option<&TextDataset> {
        Some(self)
    }
}
