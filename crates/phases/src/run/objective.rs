//! The objective of each stage, for the Learner.

use super::arrays::{input, ints};
use super::batch::{HeadInputs, TaskBatch, TaskLoader};
use super::evaluator::{Evaluator, RouterKind};
use super::folder::{self, Description};
use super::losses::{routing_terms, term_names};
use super::modality::EncodedBatch;
use super::model::{Encoded, Tapped, TaskModel};
use crate::config::{GumbelConfig, RoutingWeights};
use crate::skipped::SkipRecord;
use crate::work::trainable_share;
use crate::{AlignmentConfig, LossConfig};
use burn::module::Param;
use burn::tensor::{Bool, Device, Tensor};
use std::cell::RefCell;
use std::path::Path;
use undertone_data::loader::BatchShare;
use undertone_fit::{Workload, note_workload};
use undertone_model::backbone::BackboneInput;
use undertone_model::lora::Gates;
use undertone_model::router::GateKind;
use undertone_ops::linear_cross_entropy;
use undertone_report::GUMBEL_TEMPERATURE;
use undertone_train::{BatchStats, BatchStream, Batches, BoxError, Evaluation, LossTerm, Objective, Share};

/// Gates and loss terms of a stage.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoutingPolicy {
    /// Each sample uses the adapter of its own task, if there is one. The loss terms are the tasks' losses.
    Oracle,
    /// The router computes the gates.
    Router { gates: GateKind, gumbel: GumbelConfig, weights: RoutingWeights },
}

/// Objective of a stage.
pub struct TaskObjective {
    pub(super) policy: RoutingPolicy,
    pub(super) loss: LossConfig,
    pub(super) evaluator: Evaluator,
    pub(super) valid: TaskLoader,
    /// Description of the exported folder; `None` in fine-tuning, which exports a folder like the one it started from.
    pub(super) description: Option<Description>,
}

impl TaskObjective {
    /// Returns a remark on its error rates, if there is one.
    pub fn remark(&self) -> Option<String> {
        self.evaluator.remark()
    }

    fn task_weight(&self) -> f64 {
        match self.policy {
            RoutingPolicy::Oracle => 1.0,
            RoutingPolicy::Router { weights, .. } => weights.task,
        }
    }

    /// Returns the start of a batch of speech in the window, in encoder positions.
    fn position(&self, batch: &TaskBatch) -> usize {
        if self.loss.random_position { self.evaluator.pretrained.random_start(batch) } else { 0 }
    }

    /// Computes each task's loss over its own rows, and the alignment terms of synthesised samples.
    fn task_terms(
        &self,
        model: &TaskModel,
        tapped: &Tapped,
        gates: Option<Gates>,
        batch: &TaskBatch,
        heads: Option<&HeadInputs>,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let encoded = model.encode(tapped, gates.as_ref());
        let (tasks, states, padding) = (&*self.evaluator.tasks, encoded.states.clone(), &tapped.padding);
        let of_batch = EncodedBatch { model, tasks, batch, states, padding, gates };
        let sums = self.evaluator.pretrained.losses(of_batch, heads, self.loss.label_smoothing)?;
        let terms = self.evaluator.tasks.iter().zip(sums).map(|(task, sum)| {
            let name = if task.is_whole() { "text".into() } else { task.name.clone().into() };
            LossTerm { name, weight: self.task_weight() * task.weight, sum }
        });
        Ok(terms.chain(self.alignment_terms(model, encoded, batch, device)).collect())
    }

    fn alignment_terms(
        &self,
        model: &TaskModel,
        encoded: Encoded,
        batch: &TaskBatch,
        device: &Device,
    ) -> Vec<LossTerm> {
        let Some((characters, elements)) = batch.input.alignment() else { return Vec::new() };
        let (heads, weights) = (&model.alignment, &self.loss.alignment);
        let all = [
            ("characters", weights.characters, &heads.character_head, Some(encoded.states), characters),
            ("elements", weights.elements, &heads.element_head, encoded.elements, elements),
        ];
        let terms = all.into_iter().filter_map(|(name, weight, head, states, targets)| {
            let (head, states) = (head.as_ref()?, states?);
            let [rows, positions, d_model] = states.dims();
            let (states, bias) = (states.reshape([rows * positions, d_model]), head.bias.as_ref().map(Param::val));
            let targets = ints(targets, device);
            let sum = linear_cross_entropy(states, head.weight.val(), bias, targets, Default::default()).sum;
            Some(LossTerm { name: name.into(), weight: self.task_weight() * weight, sum })
        });
        terms.collect()
    }
}

/// Returns the divisors of the alignment terms of a batch, in their order.
fn alignment_counts(weights: &AlignmentConfig, batch: &TaskBatch) -> Vec<f64> {
    let Some((characters, elements)) = batch.input.alignment() else { return Vec::new() };
    let counted = |labels: &[i64]| labels.iter().filter(|label| **label >= 0).count() as f64;
    let all = [(weights.characters, characters), (weights.elements, elements)];
    all.into_iter().filter(|(weight, _)| *weight > 0.0).map(|(_, labels)| counted(labels)).collect()
}

impl Objective for TaskObjective {
    type Model = TaskModel;
    type Batch = TaskBatch;
    /// Input of the backbone, padding mask, and additional inputs of heads.
    type Input = (BackboneInput, Tensor<2, Bool>, Option<HeadInputs>);

    fn samples(&self, batch: &TaskBatch) -> usize {
        batch.tasks.len()
    }

    fn names(&self, batch: &TaskBatch) -> Vec<String> {
        batch.input.names()
    }

    fn work(&self, model: &TaskModel, batch: &TaskBatch) -> BatchStats {
        let work = batch.input.work(&model.backbone, trainable_share(model));
        // A router that is trained alone reads the first blocks, and the others do not run.
        if self.task_weight() == 0.0 { BatchStats { flops: None, ..work } } else { work }
    }

    fn upload(&self, batch: &mut TaskBatch, device: &Device) -> Result<Self::Input, BoxError> {
        note_workload(Workload::TrainingStep(batch.input.size()));
        let (input, padding) = input(batch, self.position(batch), device);
        let heads = batch.input.upload_heads(&input, device);
        Ok((input, padding, heads))
    }

    fn counts(&self, batch: &TaskBatch) -> Vec<f64> {
        let mut counts = Vec::new();
        if self.task_weight() > 0.0 {
            counts.resize(self.evaluator.tasks.len(), 0.0);
            for (row, task) in batch.tasks.iter().enumerate() {
                counts[*task] += batch.input.decisions(row) as f64;
            }
            counts.extend(alignment_counts(&self.loss.alignment, batch));
        }
        if let RoutingPolicy::Router { weights, .. } = &self.policy {
            counts.extend(term_names(weights).iter().map(|_| batch.tasks.len() as f64));
        }
        counts
    }

    fn losses(
        &self,
        model: &TaskModel,
        batch: &TaskBatch,
        (input, padding, heads): Self::Input,
        device: &Device,
    ) -> Result<Vec<LossTerm>, BoxError> {
        let tapped = model.tap(input, padding)?;
        let RoutingPolicy::Router { gates, gumbel, weights } = &self.policy else {
            let gates = model.oracle(&batch.tasks, device);
            return self.task_terms(model, &tapped, gates, batch, heads.as_ref(), device);
        };
        let router = model.router.as_ref().ok_or("the model has no router")?;
        let pooled = tapped.pooled();
        let routing = router.forward(pooled.clone());
        let mut terms = Vec::new();
        if weights.task > 0.0 {
            let gates = routing.training_gates(*gates, self.evaluator.router.top_k, gumbel.at(batch.step));
            terms = self.task_terms(model, &tapped, Some(Gates::Each(gates)), batch, heads.as_ref(), device)?;
        }
        terms.extend(routing_terms(weights, &routing, pooled, router.temperature(), &batch.tasks, device));
        Ok(terms)
    }

    fn gauges(&self, batch: &TaskBatch) -> Vec<(&'static str, f64)> {
        match &self.policy {
            RoutingPolicy::Router { gates: GateKind::Gumbel, gumbel, weights } if weights.task > 0.0 => {
                vec![(GUMBEL_TEMPERATURE, gumbel.at(batch.step))]
            }
            _ => Vec::new(),
        }
    }

    fn evaluate(&self, model: &TaskModel, _: &[String]) -> Result<Evaluation, BoxError> {
        let result = match &self.policy {
            RoutingPolicy::Oracle => self.evaluator.evaluate(model, &self.valid, RouterKind::Oracle)?,
            RoutingPolicy::Router { weights, .. } if weights.task == 0.0 => self.evaluator.route(model, &self.valid)?,
            RoutingPolicy::Router { .. } => self.evaluator.evaluate(model, &self.valid, RouterKind::Learned)?,
        };
        Ok(result.into_evaluation())
    }

    fn export(&self, model: &TaskModel, directory: &Path) -> Result<(), BoxError> {
        if let Some(description) = &self.description {
            return Ok(folder::save(model, description, directory)?);
        }
        self.evaluator.pretrained.save(&model.backbone, directory)
    }
}

/// Training batches of a stage, each with its optimizer step.
pub struct StageBatches {
    pub(super) loader: TaskLoader,
    /// Number of batches per optimizer step for a single process.
    accumulation: usize,
    pub(super) skipped: SkipRecord,
    /// Batches per step, and the number of steps before each epoch requested so far; used if epochs differ in length.
    steps: RefCell<(usize, Vec<u64>)>,
}

impl StageBatches {
    pub(super) fn new(loader: TaskLoader, accumulation: usize, skipped: SkipRecord) -> Self {
        Self { loader, accumulation, skipped, steps: RefCell::default() }
    }

    /// Returns the number of optimizer steps of `window` batches before an epoch. The tail of each epoch is a step of
    /// its own.
    fn steps_before(&self, epoch: u64, window: usize) -> u64 {
        let steps = |epoch| self.loader.batches(epoch).div_ceil(window) as u64;
        if self.loader.config().budget.is_none() {
            return epoch.saturating_mul(steps(0));
        }
        let mut known = self.steps.borrow_mut();
        if known.0 != window {
            *known = (window, vec![0]);
        }
        let before = &mut known.1;
        while before.len() as u64 <= epoch {
            let last = before.len() - 1;
            let next = before[last] + steps(last as u64);
            before.push(next);
        }
        before[epoch as usize]
    }
}

impl Batches for StageBatches {
    type Batch = TaskBatch;

    fn per_epoch(&self) -> usize {
        self.loader.batches(0)
    }

    fn in_epoch(&self, epoch: u64) -> usize {
        self.loader.batches(epoch)
    }

    fn fingerprint(&self) -> u64 {
        self.loader.fingerprint()
    }

    fn epoch(&self, epoch: u64, start: usize) -> BatchStream<'_, TaskBatch> {
        self.share(epoch, start, Share { rank: 0, count: 1, window: self.accumulation })
    }

    fn share(&self, epoch: u64, start: usize, share: Share) -> BatchStream<'_, TaskBatch> {
        let before = self.steps_before(epoch, share.window);
        let mut batches = {
            let Share { rank, count, window } = share;
            self.loader.share(epoch, start, BatchShare { rank, count, window })
        };
        Box::new(std::iter::from_fn(move || {
            let batch = batches.next()?.map_err(|error| self.skipped.explained(error));
            // Only the first rank records the samples that it has skipped itself.
            let recorded = if share.rank == 0 { self.skipped.update(&self.loader) } else { Ok(()) };
            let recorded = recorded.map_err(BoxError::from);
            Some(recorded.and(batch).map(|batch| {
                let next = batches.cursor();
                let step = before.saturating_add(((next - 1) / share.window) as u64);
                (next, TaskBatch { step, ..batch })
            }))
        }))
    }
}
