//! What each phase minimises, as the Learner asks for it.

use super::batch::{TaskBatch, TaskCollate, TaskDataset};
use super::config::{GumbelConfig, RoutingWeights};
use super::evaluate::{Judge, RouterKind, mel, one_hot, padding};
use super::folder::{self, Description};
use super::losses::{routing_terms, term_names};
use super::model::Dynamo;
use super::order::TaskOrder;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::path::Path;
use undertone_data::loader::Loader;
use undertone_model::lora::Gates;
use undertone_model::router::GateKind;
use undertone_ops::linear_cross_entropy;
use undertone_train::{Batches, BoxError, Evaluation, LossTerm, Objective};

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

    /// Each task's cross-entropy over the rows that are its own.
    fn task_terms(
        &self,
        model: &Dynamo,
        states: Tensor<3>,
        gates: Option<Gates>,
        batch: &TaskBatch,
        device: &Device,
    ) -> Vec<LossTerm> {
        let rows = batch.tasks.len();
        let cache = model.cache(states, gates, one_hot(&batch.tasks, model.heads.len(), device));
        let hidden = model.decode(ints(&batch.speech.inputs, device).reshape([rows, batch.speech.tokens]), cache);
        let d_model = hidden.dims()[2];
        let embedding = model.whisper.decoder.embed_tokens.weight.val();
        let term = |(task, config): (usize, &super::TaskConfig)| {
            let own: Vec<i64> = (0..rows).filter(|row| batch.tasks[*row] == task).map(|row| row as i64).collect();
            let sum = if own.is_empty() {
                Tensor::zeros([1], device)
            } else {
                let labels: Vec<i64> = own.iter().flat_map(|row| batch.labels(*row as usize)).copied().collect();
                let hidden =
                    if own.len() == rows { hidden.clone() } else { hidden.clone().select(0, ints(&own, device)) };
                let hidden = hidden.reshape([own.len() * batch.speech.tokens, d_model]);
                linear_cross_entropy(hidden, embedding.clone(), None, ints(&labels, device), Default::default()).sum
            };
            LossTerm { name: config.name.clone().into(), weight: self.task_weight() * config.weight, sum }
        };
        self.judge.tasks.iter().enumerate().map(term).collect()
    }
}

impl TaskBatch {
    fn labels(&self, row: usize) -> &[i64] {
        &self.speech.labels[row * self.speech.tokens..][..self.speech.tokens]
    }
}

impl Objective for DynamoObjective {
    type Model = Dynamo;
    type Batch = TaskBatch;

    fn samples(&self, batch: &TaskBatch) -> usize {
        batch.tasks.len()
    }

    fn counts(&self, batch: &TaskBatch) -> Vec<f64> {
        let mut counts = Vec::new();
        if self.task_weight() > 0.0 {
            counts.resize(self.judge.tasks.len(), 0.0);
            for (row, task) in batch.tasks.iter().enumerate() {
                counts[*task] += batch.labels(row).iter().filter(|label| **label >= 0).count() as f64;
            }
        }
        if let Scheme::Router { weights, .. } = &self.scheme {
            counts.extend(term_names(weights).iter().map(|_| batch.tasks.len() as f64));
        }
        counts
    }

    fn losses(&self, model: &Dynamo, batch: &TaskBatch, device: &Device) -> Result<Vec<LossTerm>, BoxError> {
        let tapped = model.tap(mel(batch, device), &padding(batch, device));
        let Scheme::Router { gates, gumbel, weights } = &self.scheme else {
            let gates = model.oracle(&batch.tasks, device);
            return Ok(self.task_terms(model, tapped.states, gates, batch, device));
        };
        let router = model.router.as_ref().ok_or("the model has no router")?;
        let routing = router.forward(tapped.pooled.clone());
        let mut terms = Vec::new();
        if weights.task > 0.0 {
            let gates = routing.training_gates(*gates, self.judge.router.top_k, gumbel.at(batch.step));
            terms = self.task_terms(model, tapped.states, Some(Gates::Each(gates)), batch, device);
        }
        terms.extend(routing_terms(weights, &routing, tapped.pooled, router.temperature(), &batch.tasks, device));
        Ok(terms)
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
}

impl Batches for TaskEpochs {
    type Batch = TaskBatch;

    fn per_epoch(&self) -> usize {
        self.loader.batches_per_epoch()
    }

    fn epoch(&self, epoch: u64, start: usize) -> Box<dyn Iterator<Item = Result<TaskBatch, BoxError>> + '_> {
        let stamped = self.loader.epoch(epoch, start).enumerate().map(move |(index, batch)| {
            let mut batch = batch?;
            batch.step = self.order.step(epoch, start + index);
            Ok(batch)
        });
        Box::new(stamped)
    }
}

fn ints(values: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(TensorData::from(values), device)
}
