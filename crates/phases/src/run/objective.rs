//! The objective of each stage, for the Learner.

use super::arrays::{input, ints};
use super::batch::{HeadInputs, TaskBatch, TaskLoader};
use super::evaluator::{Evaluator, RouterKind};
use super::folder::{self, Description};
use super::losses::{routing_sums, routing_terms};
use super::modality::EncodedBatch;
use super::model::{Encoded, Tapped, TaskModel};
use super::teacher::{DISTILLATION, Lesson, Teacher};
use crate::config::{RoutingWeights, TaskConfig, TrainingGates};
use crate::skipped::SkipRecord;
use crate::work::TrainedShares;
use crate::{AlignmentConfig, LossConfig};
use burn::module::Param;
use burn::tensor::{Bool, Device, Tensor};
use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use undertone_data::loader::BatchShare;
use undertone_fit::{Workload, note_workload};
use undertone_model::adapters::Gates;
use undertone_model::backbone::BackboneInput;
use undertone_model::layers::Linear;
use undertone_ops::{Distillation, linear_cross_entropy, linear_ctc_loss};
use undertone_report::GUMBEL_TEMPERATURE;
use undertone_train::{BatchStats, BatchStream, Batches, BoxError, Evaluation, LossSum, LossTerm, Objective, Share};

/// Names of the alignment terms in logs.
const CHARACTERS: &str = "characters";
const ELEMENTS: &str = "elements";

/// Name of the CTC loss on the encoder in logs.
const CTC: &str = "ctc";

/// Gates and loss terms of a stage.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoutingPolicy {
    /// Each sample uses the adapter of its own task, if there is one. The loss terms are the tasks' losses.
    Oracle,
    /// The router computes the gates.
    Router { gates: TrainingGates, weights: RoutingWeights },
}

/// Objective of a stage.
pub struct TaskObjective {
    pub(super) policy: RoutingPolicy,
    pub(super) loss: LossConfig,
    /// Model that this one learns from, if there is one.
    pub(super) teacher: Option<Arc<dyn Teacher>>,
    pub(super) evaluator: Evaluator,
    pub(super) valid: TaskLoader,
    /// Description of the exported folder; `None` in fine-tuning, which exports a folder like the one it started from.
    pub(super) description: Option<Description>,
}

impl TaskObjective {
    fn task_weight(&self) -> f64 {
        match self.policy {
            RoutingPolicy::Oracle => 1.0,
            RoutingPolicy::Router { weights, .. } => weights.task,
        }
    }

    /// Returns the start of a batch of speech in the window, in encoder positions.
    fn position(&self, batch: &TaskBatch) -> usize {
        let moves = self.evaluator.pretrained.speech().filter(|_| self.loss.random_position);
        moves.map_or(0, |speech| speech.random_start(batch))
    }

    /// Computes each task's loss over its own rows, and the alignment losses of synthesised samples.
    fn task_sums(
        &self,
        model: &TaskModel,
        tapped: &Tapped,
        gates: Option<Gates>,
        batch: &TaskBatch,
        beside: Beside,
        device: &Device,
    ) -> Result<Vec<LossSum>, BoxError> {
        let encoded = model.encode(tapped, gates.as_ref());
        let (tasks, states, padding) = (&*self.evaluator.tasks, encoded.states.clone(), &tapped.padding);
        let of_batch = EncodedBatch { model, tasks, batch, states, padding, gates };
        let smoothing = self.loss.label_smoothing;
        let mut sums: Vec<LossSum> = match &self.teacher {
            Some(teacher) => {
                let lesson = Lesson { batch, input: beside.teacher, tapped, states: &encoded.states };
                let speech = self.evaluator.pretrained.speech().ok_or(OF_SPEECH)?;
                let losses = speech.distilled(of_batch, teacher.taught(lesson)?, smoothing)?;
                let of_task = |(task, Distillation { cross_entropy, divergence })| {
                    [(term_name(task), cross_entropy.sum), (divergence_name(task), divergence)]
                };
                tasks.iter().zip(losses).flat_map(of_task).collect()
            }
            None => {
                let sums = self.evaluator.pretrained.losses(of_batch, beside.heads, smoothing)?;
                tasks.iter().zip(sums).map(|(task, sum)| (term_name(task), sum)).collect()
            }
        };
        for Alignment { name, labels, .. } in alignments(&self.loss.alignment, batch) {
            sums.push((name.into(), alignment_sum(model, &encoded, name, labels, device)?));
        }
        if let Some(head) = &model.alignment.ctc_head {
            sums.push((CTC.into(), ctc_sum(head, encoded.states, batch)?));
        }
        Ok(sums)
    }
}

const OF_SPEECH: &str = "only a backbone that writes text by itself is trained as a whole";

/// Name of a task's loss in logs.
fn term_name(task: &TaskConfig) -> Cow<'static, str> {
    task.label().unwrap_or("text").to_owned().into()
}

/// Name of a task's divergence from the teacher in logs.
fn divergence_name(task: &TaskConfig) -> Cow<'static, str> {
    task.label().map_or(DISTILLATION.into(), |task| format!("{task}.{DISTILLATION}").into())
}

/// Inputs of a batch besides that of the backbone.
struct Beside<'a> {
    /// Those of the heads.
    heads: Option<&'a HeadInputs>,
    /// That of the teacher's encoder, if the teacher has its own.
    teacher: Option<BackboneInput>,
}

/// An alignment term of a batch.
struct Alignment<'a> {
    name: &'static str,
    weight: f64,
    /// Label of each position of each sample; negative where there is none.
    labels: &'a [i64],
}

/// Returns the alignment terms of a batch: those with a weight above 0, if its samples have alignment labels.
fn alignments<'a>(weights: &AlignmentConfig, batch: &'a TaskBatch) -> impl Iterator<Item = Alignment<'a>> {
    let labels = batch.input.alignment();
    let AlignmentConfig { characters, elements, .. } = *weights;
    let all = labels.map(|labels| {
        [
            Alignment { name: CHARACTERS, weight: characters, labels: &labels.0 },
            Alignment { name: ELEMENTS, weight: elements, labels: &labels.1 },
        ]
    });
    all.into_iter().flatten().filter(|term| term.weight > 0.0)
}

/// Computes the cross-entropy of an alignment head, summed over the positions that have a label, `[1]`.
fn alignment_sum(
    model: &TaskModel,
    encoded: &Encoded,
    name: &str,
    labels: &[i64],
    device: &Device,
) -> Result<Tensor<1>, BoxError> {
    let heads = &model.alignment;
    let (head, states) = match name {
        CHARACTERS => (&heads.character_head, Some(&encoded.states)),
        _ => (&heads.element_head, encoded.elements.as_ref()),
    };
    let (head, states) = head.as_ref().zip(states).ok_or_else(|| format!("the model has no head for `{name}`"))?;
    let [rows, positions, d_model] = states.dims();
    let (states, bias) = (states.clone().reshape([rows * positions, d_model]), head.bias.as_ref().map(Param::val));
    Ok(linear_cross_entropy(states, head.weight.val(), bias, ints(labels, device), Default::default()).sum)
}

/// Computes the CTC loss of the texts on the encoder's last states, `[batch, time, d_model]`, summed over the batch, `[1]`.
fn ctc_sum(head: &Linear, states: Tensor<3>, batch: &TaskBatch) -> Result<Tensor<1>, BoxError> {
    let targets = batch.input.speech()?.targets();
    // The classes are the tokens of text, and the blank after them.
    let blank = head.weight.dims()[0] - 1;
    let is_text = |label: &i64| (0..blank as i64).contains(label);
    let labels = |row| targets.row(row).iter().copied().filter(is_text).collect();
    let labels: Vec<Vec<i64>> = (0..batch.tasks.len()).map(labels).collect();
    let (weight, bias) = (head.weight.val(), head.bias.as_ref().map(Param::val));
    Ok(linear_ctc_loss(states, weight, bias, &labels, &batch.lengths, blank))
}

impl Objective for TaskObjective {
    type Model = TaskModel;
    type Batch = TaskBatch;
    /// Input of the backbone for the rows whose states are not known, padding mask, and additional inputs of heads.
    type Input = (Option<BackboneInput>, Tensor<2, Bool>, Option<HeadInputs>);

    fn samples(&self, batch: &TaskBatch) -> usize {
        batch.tasks.len()
    }

    fn names(&self, batch: &TaskBatch) -> Vec<String> {
        batch.input.names()
    }

    fn work(&self, model: &TaskModel, batch: &TaskBatch) -> BatchStats {
        let mut work = batch.input.work(&model.backbone, TrainedShares::of(model));
        if let Some((teacher, speech)) = self.teacher.as_ref().zip(batch.input.speech().ok()) {
            let rows = speech.names.len() as f64;
            work.flops = work.flops.map(|flops| flops + rows * teacher.flops(speech.frames, speech.tokens));
        }
        // A router that is trained alone reads the first blocks, and the others do not run; for known states none does.
        let all_run = self.task_weight() > 0.0 && batch.input.states().is_none();
        if all_run { work } else { BatchStats { flops: None, ..work } }
    }

    fn upload(&self, batch: &mut TaskBatch, device: &Device) -> Result<Self::Input, BoxError> {
        note_workload(Workload::TrainingStep(batch.input.size()));
        let (input, padding) = input(batch, self.position(batch), device);
        let heads = batch.input.upload_heads(input.as_ref(), device);
        Ok((input, padding, heads))
    }

    fn loss_terms(&self, batch: &TaskBatch) -> Vec<LossTerm> {
        let (mut terms, task_weight) = (Vec::new(), self.task_weight());
        if task_weight > 0.0 {
            terms.extend(self.evaluator.tasks.iter().enumerate().map(|(task, config)| LossTerm {
                name: term_name(config),
                weight: task_weight * config.weight,
                count: batch.decisions_of(task),
            }));
            terms.extend(self.teacher.iter().flat_map(|teacher| {
                let of_task = move |(task, config): (usize, &TaskConfig)| LossTerm {
                    name: divergence_name(config),
                    weight: task_weight * config.weight * teacher.weight(),
                    count: batch.decisions_of(task),
                };
                self.evaluator.tasks.iter().enumerate().map(of_task)
            }));
            terms.extend(alignments(&self.loss.alignment, batch).map(|Alignment { name, weight, labels }| LossTerm {
                name: name.into(),
                weight: task_weight * weight,
                count: labels.iter().filter(|label| **label >= 0).count() as f64,
            }));
        }
        if task_weight * self.loss.ctc > 0.0 {
            let tasks = 0..self.evaluator.tasks.len();
            terms.push(LossTerm {
                name: CTC.into(),
                weight: task_weight * self.loss.ctc,
                count: tasks.map(|task| batch.decisions_of(task)).sum(),
            });
        }
        if let RoutingPolicy::Router { weights, .. } = &self.policy {
            terms.extend(routing_terms(weights, batch.tasks.len()));
        }
        terms
    }

    fn losses(
        &self,
        model: &TaskModel,
        batch: &TaskBatch,
        (input, padding, heads): Self::Input,
        device: &Device,
    ) -> Result<Vec<LossSum>, BoxError> {
        let teacher = input.clone().filter(|_| self.teacher.as_ref().is_some_and(|teacher| teacher.reads_input()));
        let beside = Beside { heads: heads.as_ref(), teacher };
        let tapped = self.evaluator.tapped(model, batch, input, padding, device)?;
        let RoutingPolicy::Router { gates, weights } = &self.policy else {
            let gates = model.oracle(&batch.tasks, device);
            return self.task_sums(model, &tapped, gates, batch, beside, device);
        };
        let router = model.router.as_ref().ok_or("the model has no router")?;
        let pooled = tapped.pooled();
        let routing = router.forward(pooled.clone());
        let mut sums = Vec::new();
        if self.task_weight() > 0.0 {
            let gates = routing.training_gates(gates.kind(), gates.temperature(batch.step));
            sums = self.task_sums(model, &tapped, Some(Gates::Each(gates)), batch, beside, device)?;
        }
        sums.extend(routing_sums(weights, &routing, pooled, router.temperature(), &batch.tasks, device));
        Ok(sums)
    }

    fn gauges(&self, batch: &TaskBatch) -> Vec<(&'static str, f64)> {
        match &self.policy {
            RoutingPolicy::Router { gates: TrainingGates::Gumbel(gumbel), weights } if weights.task > 0.0 => {
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
        let speech = self.evaluator.pretrained.speech();
        let speech = speech.ok_or(OF_SPEECH)?;
        speech.save(&model.backbone, directory)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::run::toys::recordings;
    use crate::{Experiment, SourceConfig, Trainable};
    use burn::module::Module;
    use undertone_model::adapters::lora::LoraConfig;
    use undertone_model::whisper::Whisper;

    /// Returns a run on three recordings of up to three characters.
    fn run(dir: &Path, change: impl FnOnce(&mut Experiment)) -> Result<Run, String> {
        recordings(dir, "train", &["E", "ET", "EEE"]);
        let mut experiment = Experiment::default();
        experiment.data.train.0 = vec![SourceConfig::files(dir.join("train.csv"))];
        experiment.data.valid = Some(SourceConfig::files(dir.join("train.csv")));
        experiment.data.batch_size = 3;
        change(&mut experiment);
        experiment.validate().map_err(|error| error.to_string())?;
        experiment.build().map_err(|error| error.to_string())
    }

    /// Returns the loss terms of the first batch, the sum of the last, and whether it has a gradient for the encoder.
    fn last(run: &Run) -> (Vec<LossTerm>, f32, bool) {
        let device = run.device.clone().autodiff();
        let model = run.model.clone().train();
        let (_, mut batch) = run.batches.epoch(0, 0).next().expect("a batch").expect("read");
        let terms = run.objective.loss_terms(&batch);
        let input = run.objective.upload(&mut batch, &device).expect("uploaded");
        let sums = run.objective.losses(&model, &batch, input, &device).expect("losses");
        let (name, sum) = sums.last().expect("a sum").clone();
        assert_eq!(name, terms.last().expect("a term").name);
        let encoder = &model.backbone.downcast_ref::<Whisper>().expect("a Whisper").encoder;
        let learns = encoder.layer_norm.weight.val().grad(&sum.backward()).is_some();
        (terms, sum.into_scalar(), learns)
    }

    #[test]
    fn the_encoder_learns_the_tokens_of_the_text_by_ctc() {
        let dir = tempfile::tempdir().expect("a directory");
        let with = run(dir.path(), |experiment| experiment.loss.ctc = 0.3).expect("a run");
        let (terms, sum, learns) = last(&with);
        let term = |name: &'static str, weight| LossTerm { name: name.into(), weight, count: 9.0 };
        assert_eq!(terms, [term("text", 1.0), term(CTC, 0.3)]);
        assert!(sum > 1.0 && learns, "{sum}");
        let without = run(dir.path(), |_| {}).expect("a run");
        assert_eq!(last(&without).0, [term("text", 1.0)]);
    }

    #[test]
    fn a_ctc_loss_that_nothing_learns_from_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let frozen = run(dir.path(), |experiment| {
            experiment.loss.ctc = 0.3;
            experiment.model.trainable = Trainable::Decoder;
        });
        assert!(frozen.is_err_and(|error| error.contains("`loss.ctc` trains the encoder")));
        let below = run(dir.path(), |experiment| {
            experiment.loss.ctc = 0.3;
            experiment.model.trainable = Trainable::Lora;
            let target_modules = vec!["encoder_attn.q_proj".into()];
            experiment.model.lora = Some(LoraConfig { target_modules, ..Default::default() });
        });
        assert!(below.is_err_and(|error| error.contains("all targets of the adapter are in the decoder")));
        for weight in [-1.0, f64::NAN] {
            let refused = run(dir.path(), |experiment| experiment.loss.ctc = weight);
            assert!(refused.is_err_and(|error| error.contains("at least 0")), "{weight}");
        }
    }
}
