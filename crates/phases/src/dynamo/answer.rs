//! What a model answers.

use super::batch::{BatchInput, TaskBatch};
use super::config::TaskConfig;
use super::evaluate::{one_hot, row_ids};
use super::head_config::HeadConfig;
use super::model::{BackboneNetwork, Dynamo, Head, prompted};
use super::pretrained::Pretrained;
use super::text_data::{TextBatch, TextSample};
use super::text_loss::{source_ids, span_hidden};
use crate::text::seq2seq_text;
use burn::tensor::{Bool, Tensor};
use undertone_model::heads::SpanLogits;
use undertone_model::lora::Gates;
use undertone_model::text::TextTokenizer;
use undertone_model::whisper::{DecoderCache, GenerateOptions, PretrainedWhisper, Whisper, WhisperDecoder};

/// What a head answered to a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// What it wrote.
    Text(String),
    /// A label's name.
    Label(String),
    /// Logits of an answer's first and last token, over all tokens.
    Span { start: Vec<f32>, end: Vec<f32> },
    /// A tag's number for each token.
    Tags(Vec<usize>),
}

impl Dynamo {
    /// Lets the heads of the tasks in `chosen` answer, each its rows. `states` are the backbone's last, `padding` is true where
    /// an input has ended.
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
    ) -> Vec<Answer> {
        match (&self.backbone, pretrained, &batch.input) {
            (BackboneNetwork::Whisper(network), Pretrained::Whisper(whisper), BatchInput::Speech(speech)) => {
                let writer = Writer { network, whisper, tasks, heads: &self.heads };
                writer.write(states, gates, &speech.prompts, chosen)
            }
            (BackboneNetwork::Text(_), Pretrained::Text(text), BatchInput::Text(batch)) => {
                let mut answers: Vec<Option<Answer>> = vec![None; chosen.len()];
                for (task, config) in tasks.iter().enumerate() {
                    let rows: Vec<usize> = (0..chosen.len()).filter(|row| chosen[*row] == task).collect();
                    if rows.is_empty() {
                        continue;
                    }
                    let ids = row_ids(&rows, &states.device());
                    let states = states.clone().select(0, ids.clone());
                    let padding = padding.clone().select(0, ids);
                    let found = read(&self.heads[task], config, &text.tokenizer, states, padding, batch, &rows);
                    rows.into_iter().zip(found).for_each(|(row, answer)| answers[row] = Some(answer));
                }
                answers.into_iter().map(|answer| answer.unwrap_or(Answer::Text(String::new()))).collect()
            }
            _ => unreachable!("backbone and batches are made from one configuration"),
        }
    }
}

/// A speech backbone that writes.
struct Writer<'a> {
    network: &'a Whisper,
    whisper: &'a PretrainedWhisper,
    tasks: &'a [TaskConfig],
    heads: &'a [Head],
}

impl Writer<'_> {
    /// Each row is decoded as its task in `chosen` says.
    fn write(&self, states: Tensor<3>, gates: Option<Gates>, prompts: &[Vec<u32>], chosen: &[usize]) -> Vec<Answer> {
        let device = states.device();
        let heads = one_hot(chosen, self.heads.len().max(1), &device);
        let cache = prompted(self.network, self.heads, states, gates, heads);
        let mut answers = vec![Answer::Text(String::new()); chosen.len()];
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
            // A model that is fine-tuned as a whole decodes as its own folder says.
            let options = if task.is_whole() { options } else { task.generation.applied(options, positions, prompt) };
            for (row, tokens) in rows.into_iter().zip(self.network.decoder.generate(cache, &prompts, &options)) {
                answers[row] = Answer::Text(self.whisper.tokenizer.decode(&tokens).trim().to_owned());
            }
        }
        answers
    }
}

/// What a head on a text backbone makes of the states of some rows of a batch.
fn read(
    head: &Head,
    task: &TaskConfig,
    tokenizer: &TextTokenizer,
    states: Tensor<3>,
    padding: Tensor<2, Bool>,
    batch: &TextBatch,
    rows: &[usize],
) -> Vec<Answer> {
    let samples: Vec<&TextSample> = rows.iter().map(|row| &batch.samples[*row]).collect();
    match (head, &task.head) {
        (Head::Classify(head), HeadConfig::Classify(config)) => {
            let best = argmax(head.forward(states, Some(&padding)));
            best.into_iter().map(|label| Answer::Label(config.labels[label].clone())).collect()
        }
        (Head::Span(head), _) => {
            let SpanLogits { start, end } =
                head.forward(states, &span_hidden(&samples, batch.tokens, &padding.device()));
            let [start, end] = [start, end].map(|logits| rows_of_floats(logits, batch.tokens));
            start.into_iter().zip(end).map(|(start, end)| Answer::Span { start, end }).collect()
        }
        (Head::Tag(head), _) => {
            let logits = head.forward(states);
            let [_, tokens, tags] = logits.dims();
            let best = argmax(logits.reshape([rows.len() * tokens, tags]));
            best.chunks(tokens).map(|row| Answer::Tags(row.to_vec())).collect()
        }
        (Head::Seq2seq(writer), _) => {
            let ids = source_ids(&samples, batch.tokens, &padding.device());
            generate(&writer.decoder, writer.cache(states, ids, padding), rows.len(), task, tokenizer)
        }
        _ => unreachable!("heads are made from the tasks' configuration"),
    }
}

fn generate(
    decoder: &WhisperDecoder,
    cache: DecoderCache,
    rows: usize,
    task: &TaskConfig,
    tokenizer: &TextTokenizer,
) -> Vec<Answer> {
    let positions = decoder.embed_positions.weight.dims()[0];
    let prompts = vec![vec![tokenizer.cls()]; rows];
    let options = GenerateOptions {
        suppress: vec![tokenizer.pad(), tokenizer.cls()],
        ..GenerateOptions::new(tokenizer.sep(), positions)
    };
    let options = task.generation.applied(options, positions, 1);
    let written = decoder.generate(cache, &prompts, &options);
    written.iter().map(|tokens| Answer::Text(seq2seq_text(tokenizer, tokens).trim().to_owned())).collect()
}

/// The column of each row's largest number.
fn argmax(logits: Tensor<2>) -> Vec<usize> {
    logits.argmax(1).into_data().iter::<i64>().map(|column| column as usize).collect()
}

fn rows_of_floats(x: Tensor<2>, width: usize) -> Vec<Vec<f32>> {
    let values: Vec<f32> = x.into_data().iter::<f32>().collect();
    values.chunks(width).map(<[f32]>::to_vec).collect()
}
