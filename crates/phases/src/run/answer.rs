//! Answers of a model.

use super::arrays::{one_hot, row_ids};
use super::batch::{BatchInput, TaskBatch};
use super::model::{TaskModel, prompted};
use super::pretrained::Pretrained;
use crate::backbone::TextBackbone;
use crate::config::TaskConfig;
use burn::tensor::{Bool, Tensor, TensorData};
use undertone_model::adapters::Gates;
use undertone_model::whisper::{PretrainedWhisper, WhisperDecoder};
use undertone_tasks::{Answer, AnswerContext, BoxedHead, HeadInput, TextBatch, TextSample};
use undertone_train::BoxError;

impl TaskModel {
    /// Computes the answer to each row with the head of its task in `chosen`. `states` are the backbone's last states,
    /// `[batch, time, d_model]`; `padding` is the padding mask, true after the end of an input.
    #[allow(clippy::too_many_arguments)] // all of a batch, at each stage of its way through the model
    pub(super) fn answer(
        &self,
        pretrained: &Pretrained,
        tasks: &[TaskConfig],
        states: Tensor<3>,
        padding: &Tensor<2, Bool>,
        gates: Option<Gates>,
        batch: &TaskBatch,
        chosen: &[usize],
    ) -> Result<Vec<Answer>, BoxError> {
        match (self.backbone.decoder(), pretrained, &batch.input) {
            (Some(decoder), Pretrained::Whisper(whisper), BatchInput::Speech(speech)) => {
                let writer = Writer { decoder, whisper, tasks, heads: &self.heads };
                Ok(writer.write(states, gates, &speech.prompts, chosen))
            }
            (None, Pretrained::Text(text), BatchInput::Text(batch)) => {
                let mut answers: Vec<Option<Answer>> = vec![None; chosen.len()];
                for (task, config) in tasks.iter().enumerate() {
                    let rows: Vec<usize> = (0..chosen.len()).filter(|row| chosen[*row] == task).collect();
                    if rows.is_empty() {
                        continue;
                    }
                    let found = read(&self.heads[task], config, text, states.clone(), padding, batch, &rows)?;
                    rows.into_iter().zip(found).for_each(|(row, answer)| answers[row] = Some(answer));
                }
                Ok(answers.into_iter().map(|answer| answer.unwrap_or(Answer::text(""))).collect())
            }
            _ => Err("a batch of text came to a backbone of speech, or the other way".into()),
        }
    }
}

/// Text generation by a speech backbone.
struct Writer<'a> {
    decoder: &'a WhisperDecoder,
    whisper: &'a PretrainedWhisper,
    tasks: &'a [TaskConfig],
    heads: &'a [BoxedHead],
}

impl Writer<'_> {
    /// Decodes each row with the generation settings of its task in `chosen`.
    fn write(&self, states: Tensor<3>, gates: Option<Gates>, prompts: &[Vec<u32>], chosen: &[usize]) -> Vec<Answer> {
        let device = states.device();
        let heads = one_hot(chosen, self.heads.len().max(1), &device);
        let cache = prompted(self.decoder, self.heads, states, gates, heads);
        let mut answers = vec![Answer::text(""); chosen.len()];
        for (index, task) in self.tasks.iter().enumerate() {
            let rows: Vec<usize> = (0..chosen.len()).filter(|row| chosen[*row] == index).collect();
            if rows.is_empty() {
                continue;
            }
            let cache =
                if rows.len() < chosen.len() { cache.clone().select(row_ids(&rows, &device)) } else { cache.clone() };
            let prompts: Vec<Vec<u32>> = rows.iter().map(|row| prompts[*row].clone()).collect();
            let (positions, prompt) = (self.whisper.config.max_target_positions, prompts[0].len());
            let options = self.whisper.generate_options();
            // A fine-tuned model decodes with the generation settings of its own folder.
            let options = match task.label() {
                None => options,
                Some(_) => task.generation.applied(options, positions, prompt),
            };
            for (row, tokens) in rows.into_iter().zip(self.decoder.generate(cache, &prompts, &options)) {
                answers[row] = Answer::text(self.whisper.tokenizer.decode(&tokens).trim());
            }
        }
        answers
    }
}

/// Computes the answers of a head on a text backbone to some rows of a batch.
fn read(
    head: &BoxedHead,
    task: &TaskConfig,
    text: &TextBackbone,
    states: Tensor<3>,
    padding: &Tensor<2, Bool>,
    batch: &TextBatch,
    rows: &[usize],
) -> Result<Vec<Answer>, BoxError> {
    let (device, tokens) = (states.device(), batch.tokens);
    let picked = row_ids(rows, &device);
    let samples: Vec<&TextSample> = rows.iter().map(|row| &batch.samples[*row]).collect();
    let ids: Vec<i64> = rows.iter().flat_map(|row| &batch.ids[row * tokens..][..tokens]).copied().collect();
    let input = HeadInput {
        states: states.select(0, picked.clone()),
        padding: padding.clone().select(0, picked),
        ids: Tensor::from_data(TensorData::new(ids, [rows.len(), tokens]), &device),
        arrays: task.head.inputs(&samples, tokens).upload(&device),
    };
    let context = AnswerContext { samples: &samples, tokenizer: &text.tokenizer, generation: &task.generation };
    head.answer(input, &context)
}
