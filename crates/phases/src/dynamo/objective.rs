//! What each phase minimises, as the Learner asks for it.

use super::batch::{BatchInput, TaskBatch, TaskCollate, TaskDataset};
use super::config::{GumbelConfig, RoutingWeights, TaskConfig};
use super::evaluate::{Judge, RouterKind, input, ints, one_hot, row_ids};
use super::folder::{self, Description};
use super::losses::{routing_terms, term_names};
use super::model::{BackboneNetwork, Dynamo, Input, Tapped, prompted};
use super::order::TaskOrder;
use crate::WhisperBatch;
use crate::advice::{Moment, begins};
use crate::skipped::SkipRecord;
use crate::work::{text_work, trainable_share, whisper_work};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::path::Path;
use undertone_data::loader::Loader;
use undertone_model::lora::Gates;
use undertone_model::router::GateKind;
use undertone_model::whisper::Whisper;
use undertone_ops::linear_cross_entropy;
use undertone_tasks::{DevicePart, HeadInput};
use undertone_train::{BatchStream, Batches, BoxError, Evaluation, LossTerm, Objective, Work};

/// The name of the Gumbel-softmax's temperature in `metrics.jsonl`.
pub(crate) const GUMBEL_TEMPERATURE: &str = "gumbel_temperature";

/// How a phase makes gates, and what it minimises.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scheme {
    /// Each sample goes through its own task's adapter; the tasks' losses.
    Oracle,
    /// The router decides.
    Router { gates: GateKind, gumbel: GumbelConfig, weights: RoutingWeights },
}

/// A phase's objective.
pub(super) struct DynamoObjective {
    pub scheme: Scheme,
    pub judge: Judge,
    pub valid: Loader<TaskDataset, TaskCollate>,
    pub description: Description,
}

impl DynamoObjective {
    fn task_weight(&self) -> f64 {
        match self.scheme {
            Scheme::Oracle => 1.0,
            Scheme::Router { weights, .. } => weights.task,
        }
    }

    /// Each task's loss over the rows that are its own.
    fn task_terms(
        &self,
        model: &Dynamo,
        tapped: &Tapped,
        gates: Option<Gates>,
        batch: &TaskBatch,
        texts: Option<&TextInput>,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let states = model.encode(tapped, gates.as_ref());
        let (rows, tasks) = (batch.tasks.len(), self.judge.tasks.iter().enumerate());
        let hidden = match (&model.backbone, &batch.input) {
            // One decoder writes for all tasks, so it writes for all at once.
            (BackboneNetwork::Whisper(whisper), BatchInput::Speech(speech)) => {
                let heads = one_hot(&batch.tasks, model.heads.len(), device);
                let cache = prompted(whisper, &model.heads, states, gates, heads);
                let ids = ints(&speech.inputs, device).reshape([rows, speech.tokens]);
                whisper.decoder.forward_all(ids, cache)
            }
            _ => states,
        };
        let term = |(task, config): (usize, &TaskConfig)| {
            let own: Vec<usize> = (0..rows).filter(|row| batch.tasks[*row] == task).collect();
            let sum = match (&model.backbone, &batch.input, texts) {
                _ if own.is_empty() => Tensor::zeros([1], device),
                (BackboneNetwork::Whisper(whisper), BatchInput::Speech(speech), _) => {
                    let pick = (own.len() < rows).then(|| row_ids(&own, device));
                    let hidden = pick.map_or(hidden.clone(), |rows| hidden.clone().select(0, rows));
                    written_loss(whisper, hidden, speech, &own, device)
                }
                (_, _, Some(texts)) => {
                    model.heads[task].loss(texts.of(task, hidden.clone(), tapped.padding.clone())?)?
                }
                _ => return Err("a batch of text came to a backbone of speech, or the other way".into()),
            };
            Ok(LossTerm { name: config.name.clone().into(), weight: self.task_weight() * config.weight, sum })
        };
        tasks.map(term).collect()
    }
}

/// What the heads of text tasks are given besides states, on the device.
pub(super) struct TextInput {
    ids: Tensor<2, Int>,
    /// For every task, if it has rows.
    parts: Vec<Option<DevicePart>>,
}

impl TextInput {
    /// What is there of a batch of text.
    fn new(batch: &TaskBatch, input: &Input, device: &Device) -> Option<Self> {
        match (&batch.input, input) {
            (BatchInput::Text(text), Input::Tokens(ids, _)) => {
                Some(Self { ids: ids.clone(), parts: text.upload_parts(device) })
            }
            _ => None,
        }
    }

    /// A task's rows of what its head reads.
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

/// The cross-entropy of what a speech backbone writes: `hidden` is its decoder's states for `rows` of the batch.
fn written_loss(
    whisper: &Whisper,
    hidden: Tensor<3>,
    speech: &WhisperBatch,
    rows: &[usize],
    device: &Device,
) -> Tensor<1> {
    let [own, tokens, d_model] = hidden.dims();
    let labels: Vec<i64> = rows.iter().flat_map(|row| labels(speech, *row)).copied().collect();
    let embedding = whisper.decoder.embed_tokens.weight.val();
    let hidden = hidden.reshape([own * tokens, d_model]);
    linear_cross_entropy(hidden, embedding, None, ints(&labels, device), Default::default()).sum
}

fn labels(speech: &WhisperBatch, row: usize) -> &[i64] {
    &speech.labels[row * speech.tokens..][..speech.tokens]
}

impl TaskBatch {
    /// How many decisions a row asks for.
    fn decisions(&self, row: usize) -> usize {
        match &self.input {
            BatchInput::Speech(speech) => labels(speech, row).iter().filter(|label| **label >= 0).count(),
            BatchInput::Text(text) => text.samples[row].target.count(),
        }
    }
}

impl Objective for DynamoObjective {
    type Model = Dynamo;
    type Batch = TaskBatch;
    /// What the backbone reads, where its samples have ended, and what heads of text are given besides.
    type Input = (Input, Tensor<2, Bool>, Option<TextInput>);

    fn samples(&self, batch: &TaskBatch) -> usize {
        batch.tasks.len()
    }

    fn names(&self, batch: &TaskBatch) -> Vec<String> {
        match &batch.input {
            BatchInput::Speech(speech) => speech.names.clone(),
            BatchInput::Text(text) => text.samples.iter().map(|sample| sample.name.clone()).collect(),
        }
    }

    fn work(&self, model: &Dynamo, batch: &TaskBatch) -> Work {
        let trainable = trainable_share(model);
        match (&model.backbone, &batch.input) {
            (BackboneNetwork::Whisper(whisper), BatchInput::Speech(speech)) => whisper_work(whisper, speech, trainable),
            (backbone, BatchInput::Text(text)) => {
                let targets = text.samples.iter().map(|sample| sample.target.count()).sum();
                text_work(backbone, text.samples.len(), text.tokens, targets, trainable)
            }
            _ => Work::default(),
        }
    }

    fn upload(&self, batch: &mut TaskBatch, device: &Device) -> Result<Self::Input, BoxError> {
        begins(Moment::Training(batch.shape()));
        let (input, padding) = input(batch, device);
        let texts = TextInput::new(batch, &input, device);
        Ok((input, padding, texts))
    }

    fn counts(&self, batch: &TaskBatch) -> Vec<f64> {
        let mut counts = Vec::new();
        if self.task_weight() > 0.0 {
            counts.resize(self.judge.tasks.len(), 0.0);
            for (row, task) in batch.tasks.iter().enumerate() {
                counts[*task] += batch.decisions(row) as f64;
            }
        }
        if let Scheme::Router { weights, .. } = &self.scheme {
            counts.extend(term_names(weights).iter().map(|_| batch.tasks.len() as f64));
        }
        counts
    }

    fn losses(
        &self,
        model: &Dynamo,
        batch: &TaskBatch,
        (input, padding, texts): Self::Input,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let tapped = model.tap(input, padding);
        let Scheme::Router { gates, gumbel, weights } = &self.scheme else {
            let gates = model.oracle(&batch.tasks, device);
            return self.task_terms(model, &tapped, gates, batch, texts.as_ref(), device);
        };
        let router = model.router.as_ref().ok_or("the model has no router")?;
        let routing = router.forward(tapped.pooled.clone());
        let mut terms = Vec::new();
        if weights.task > 0.0 {
            let gates = routing.training_gates(*gates, self.judge.router.top_k, gumbel.at(batch.step));
            terms = self.task_terms(model, &tapped, Some(Gates::Each(gates)), batch, texts.as_ref(), device)?;
        }
        terms.extend(routing_terms(weights, &routing, tapped.pooled, router.temperature(), &batch.tasks, device));
        Ok(terms)
    }

    fn gauges(&self, batch: &TaskBatch) -> Vec<(&'static str, f64)> {
        match &self.scheme {
            Scheme::Router { gates: GateKind::Gumbel, gumbel, weights } if weights.task > 0.0 => {
                vec![(GUMBEL_TEMPERATURE, gumbel.at(batch.step))]
            }
            _ => Vec::new(),
        }
    }

    fn evaluate(&self, model: &Dynamo, _: &[String]) -> Result<Evaluation, BoxError> {
        let judged = match &self.scheme {
            Scheme::Oracle => self.judge.judge(model, &self.valid, RouterKind::Oracle)?,
            Scheme::Router { weights, .. } if weights.task == 0.0 => self.judge.route(model, &self.valid)?,
            Scheme::Router { .. } => self.judge.judge(model, &self.valid, RouterKind::Learned)?,
        };
        Ok(judged.into_evaluation())
    }

    fn export(&self, model: &Dynamo, directory: &Path) -> Result<(), BoxError> {
        Ok(folder::save(model, &self.description, directory)?)
    }
}

/// Training batches that know their step.
pub(super) struct TaskEpochs {
    pub loader: Loader<TaskDataset, TaskCollate>,
    pub order: TaskOrder,
    pub skipped: SkipRecord,
}

impl Batches for TaskEpochs {
    type Batch = TaskBatch;

    fn per_epoch(&self) -> usize {
        self.loader.batches(0)
    }

    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, TaskBatch> {
        let mut batches = self.loader.epoch(epoch, start);
        Box::new(std::iter::from_fn(move || {
            let batch = batches.next()?.map_err(|error| self.skipped.explained(error));
            let recorded = self.skipped.update(&self.loader).map_err(BoxError::from);
            Some(recorded.and(batch).map(|batch| {
                let next = batches.cursor();
                (next, TaskBatch { step: self.order.step(epoch, next - 1), ..batch })
            }))
        }))
    }
}
