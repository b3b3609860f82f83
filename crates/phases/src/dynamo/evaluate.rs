//! Judging a model on the tasks' data, with one router or another.

use super::batch::{TaskBatch, TaskCollate, TaskDataset};
use super::config::TaskConfig;
use super::model::{Dynamo, Tapped};
use super::score::TextScore;
use crate::analysis::RoutedSample;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use undertone_data::loader::Loader;
use undertone_model::lora::Gates;
use undertone_model::router::{RouterConfig, Routing};
use undertone_model::whisper::{DecoderCache, PretrainedWhisper};
use undertone_train::{BoxError, Evaluation, Example};

/// Who decides which adapters an input goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKind {
    /// The trained router.
    Learned,
    /// Somebody who knows the task.
    Oracle,
    /// Nobody: all adapters count alike. The head is the task's own.
    Uniform,
    /// Chance: one adapter and its head.
    Random,
}

/// What a model did on an evaluation set.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Task → metric → value.
    pub tasks: BTreeMap<String, BTreeMap<String, f64>>,
    /// The mean over the tasks of the first metric's error.
    pub error: f64,
    /// The router's probabilities for each sample; without a router, nothing.
    pub routed: Vec<RoutedSample>,
    /// One sample of each task.
    pub examples: Vec<Example>,
}

/// What judging needs besides a model and data.
pub(super) struct Judge {
    pub tasks: Vec<TaskConfig>,
    pub whisper: PretrainedWhisper,
    pub router: RouterConfig,
    pub device: Device,
}

impl Judged {
    /// The share of samples that the router sent to their own task.
    pub fn routing_accuracy(&self) -> Option<f64> {
        let right = self.routed.iter().filter(|s| choice(&s.gates) == s.task).count();
        (!self.routed.is_empty()).then(|| right as f64 / self.routed.len() as f64)
    }
}

impl Judge {
    /// Lets the model write every sample and compares.
    pub fn judge(
        &self,
        model: &Dynamo,
        data: &Loader<TaskDataset, TaskCollate>,
        kind: RouterKind,
    ) -> Result<Judged, BoxError> {
        let mut scores = vec![TextScore::default(); self.tasks.len()];
        let mut judged = Judged::default();
        let mut shown = vec![false; self.tasks.len()];
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for batch in data.epoch(0, 0) {
            let batch = batch?;
            let tapped = self.tap(model, &batch);
            let (gates, chosen) = self.decide(model, &tapped, &batch, kind, &mut rng, &mut judged.routed);
            let cache = model.cache(tapped.states, gates, one_hot(&chosen, model.heads.len(), &self.device));
            let outputs = write(model, &self.whisper, &self.tasks, &cache, &batch.speech.prompts, &chosen);
            for (row, output) in outputs.into_iter().enumerate() {
                let (task, reference) = (batch.tasks[row], &batch.speech.texts[row]);
                let hypothesis = self.whisper.tokenizer.decode(&output).trim().to_owned();
                scores[task].add(reference, &hypothesis);
                if !std::mem::replace(&mut shown[task], true) {
                    let name = format!("{} {}", self.tasks[task].name, batch.speech.names[row]);
                    judged.examples.push(Example { name, reference: reference.clone(), hypothesis });
                }
            }
        }
        for (task, score) in self.tasks.iter().zip(&scores) {
            let metrics = task.metrics.iter().map(|metric| (metric.clone(), score.metric(metric))).collect();
            judged.tasks.insert(task.name.clone(), metrics);
        }
        let errors: f64 = self.tasks.iter().zip(&scores).map(|(task, score)| score.error(&task.metrics[0])).sum();
        judged.error = errors / self.tasks.len() as f64;
        Ok(judged)
    }

    /// Where the router sends every sample, without letting the model write.
    pub fn route(&self, model: &Dynamo, data: &Loader<TaskDataset, TaskCollate>) -> Result<Judged, BoxError> {
        let mut judged = Judged::default();
        for batch in data.epoch(0, 0) {
            let batch = batch?;
            if let Some(routing) = routing(model, &self.tap(model, &batch)) {
                judged.routed.extend(routed(&routing, &batch.tasks));
            }
        }
        Ok(judged)
    }

    fn tap(&self, model: &Dynamo, batch: &TaskBatch) -> Tapped {
        model.tap(mel(batch, &self.device), &padding(batch, &self.device))
    }

    /// How much each adapter counts, and the task whose head answers.
    fn decide(
        &self,
        model: &Dynamo,
        tapped: &Tapped,
        batch: &TaskBatch,
        kind: RouterKind,
        rng: &mut ChaCha8Rng,
        samples: &mut Vec<RoutedSample>,
    ) -> (Option<Gates>, Vec<usize>) {
        let adapters = model.adapters();
        let own = |tasks: Vec<usize>| (model.oracle(&tasks, &self.device), tasks);
        match kind {
            RouterKind::Oracle => own(batch.tasks.clone()),
            RouterKind::Random => own(batch.tasks.iter().map(|_| rng.next_u64() as usize % adapters).collect()),
            RouterKind::Uniform => {
                let even = Tensor::<2>::ones([batch.tasks.len(), adapters], &self.device).div_scalar(adapters as f64);
                (Some(Gates::Each(even)), batch.tasks.clone())
            }
            RouterKind::Learned => {
                let Some(routing) = routing(model, tapped) else { return own(batch.tasks.clone()) };
                samples.extend(routed(&routing, &batch.tasks));
                (Some(Gates::Each(routing.inference_gates(&self.router))), routing.choices())
            }
        }
    }
}

/// Lets the model write, each row as the task in `chosen` has its answers decoded.
pub(super) fn write(
    model: &Dynamo,
    whisper: &PretrainedWhisper,
    tasks: &[TaskConfig],
    cache: &DecoderCache,
    prompts: &[Vec<u32>],
    chosen: &[usize],
) -> Vec<Vec<u32>> {
    let mut outputs = vec![Vec::new(); chosen.len()];
    for (index, task) in tasks.iter().enumerate() {
        let rows: Vec<usize> = (0..chosen.len()).filter(|row| chosen[*row] == index).collect();
        if rows.is_empty() {
            continue;
        }
        let ids: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let device = model.whisper.decoder.embed_tokens.weight.device();
        let cache = cache.clone().select(Tensor::from_ints(TensorData::from(ids.as_slice()), &device));
        let prompts: Vec<Vec<u32>> = rows.iter().map(|row| prompts[*row].clone()).collect();
        let (positions, prompt) = (whisper.config.max_target_positions, prompts[0].len());
        let options = task.generation.applied(whisper.generate_options(), positions, prompt);
        for (row, output) in rows.into_iter().zip(model.whisper.decoder.generate(cache, &prompts, &options)) {
            outputs[row] = output;
        }
    }
    outputs
}

fn routing(model: &Dynamo, tapped: &Tapped) -> Option<Routing> {
    model.router.as_ref().map(|router| router.forward(tapped.pooled.clone()))
}

fn routed(routing: &Routing, tasks: &[usize]) -> Vec<RoutedSample> {
    let gates = routing.probabilities();
    let width = gates.dims()[1];
    let gates: Vec<f32> = gates.into_data().iter::<f32>().collect();
    let confidences: Vec<f32> = routing.confidences().into_data().iter::<f32>().collect();
    let rows = gates.chunks(width).zip(confidences).zip(tasks);
    rows.map(|((gates, confidence), task)| RoutedSample { task: *task, gates: gates.to_vec(), confidence }).collect()
}

fn choice(gates: &[f32]) -> usize {
    (0..gates.len()).rev().max_by(|a, b| gates[*a].total_cmp(&gates[*b])).unwrap_or_default()
}

impl Dynamo {
    /// The gates of somebody who knows the tasks; a model without adapters has none, and one with a single adapter for
    /// all tasks has it open.
    pub(super) fn oracle(&self, tasks: &[usize], device: &Device) -> Option<Gates> {
        let adapters = self.adapters();
        let first = *tasks.first()?;
        match adapters {
            0 => None,
            1 => Some(Gates::One(0)),
            _ if tasks.iter().all(|task| *task == first) => Some(Gates::One(first)),
            _ => Some(Gates::Each(one_hot(tasks, adapters, device))),
        }
    }
}

/// Each row 1 at its index; the only column is everybody's.
pub(super) fn one_hot(indices: &[usize], width: usize, device: &Device) -> Tensor<2> {
    let at = |index: usize| index.min(width - 1);
    let rows: Vec<f32> = indices.iter().flat_map(|i| (0..width).map(move |k| f32::from(k == at(*i)))).collect();
    Tensor::from_data(TensorData::new(rows, [indices.len(), width]), device)
}

/// `[batch, bins, frames]` on `device`.
pub(super) fn mel(batch: &TaskBatch, device: &Device) -> Tensor<3> {
    let speech = &batch.speech;
    Tensor::from_data(TensorData::new(speech.mel.clone(), [speech.names.len(), speech.bins, speech.frames]), device)
}

/// `[batch, positions]`, true where a sample's audio has ended.
pub(super) fn padding(batch: &TaskBatch, device: &Device) -> Tensor<2, Bool> {
    let positions = batch.speech.frames.div_ceil(2);
    let rows: Vec<bool> = batch.lengths.iter().flat_map(|n| (0..positions).map(move |i| i >= *n)).collect();
    Tensor::from_data(TensorData::new(rows, [batch.lengths.len(), positions]), device)
}

impl Judged {
    /// As the Learner records it: `task.metric`, the mean error, and the router's accuracy where there is one.
    pub fn into_evaluation(self) -> Evaluation {
        let routing = self.routing_accuracy();
        let mut metrics = BTreeMap::new();
        for (task, values) in &self.tasks {
            metrics.extend(values.iter().map(|(metric, value)| (format!("{task}.{metric}"), *value)));
        }
        if !self.tasks.is_empty() {
            metrics.insert(super::config::ERROR.to_owned(), self.error);
        }
        if let Some(accuracy) = routing {
            metrics.insert("routing_accuracy".to_owned(), accuracy);
            // Where nothing was written, the router alone decides which checkpoint is best.
            metrics.entry(super::config::ERROR.to_owned()).or_insert(1.0 - accuracy);
        }
        Evaluation { metrics, examples: self.examples }
    }
}
