//! Evaluation of a model on the tasks' data, with different kinds of routers.

use super::arrays::{input, one_hot};
use super::batch::{HeadInputs, TaskBatch, TaskLoader};
use super::evaluation_result::EvaluationResult;
use super::modality::EncodedBatch;
use super::model::{Tapped, TaskModel};
use super::pretrained::Pretrained;
use super::scored::repetition_remark;
use super::scoring::{Answered, Asked, Scoring};
use super::together::{SharedAnswers, Spoken, gather};
use crate::config::{LOSS, TaskConfig};
use crate::speech::StateCache;
use crate::{Interrupt, TextNormalizer};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use undertone_data::loader::BatchShare;
use undertone_fit::{Workload, note_workload};
use undertone_model::adapters::Gates;
use undertone_model::router::{RouterConfig, Routing};
use undertone_report::RoutedSample;
use undertone_train::{BoxError, ProcessGroup};

/// Kind of router that selects the adapters for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKind {
    /// The trained router.
    Learned,
    /// The true task of each sample.
    Oracle,
    /// Equal gates for all adapters, with the head of the true task.
    Uniform,
    /// A random adapter with its head.
    Random,
}

/// Evaluator of models: everything that an evaluation needs besides a model and data.
pub struct Evaluator {
    pub(super) tasks: Vec<TaskConfig>,
    pub(super) pretrained: Pretrained,
    pub(super) router: RouterConfig,
    /// Normalisation of texts before they are compared.
    pub(super) normalizer: TextNormalizer,
    pub(super) device: Device,
    /// Process group that shares the evaluation.
    pub(super) process_group: ProcessGroup,
    /// Cache of the states of a frozen encoder.
    pub(super) states: Option<Arc<StateCache>>,
    /// Flag that ends an evaluation: what has been trained is saved first, and the evaluation left to the next session.
    pub(super) interrupt: Interrupt,
    /// Whether it evaluates while a model is trained, where what takes long is left out.
    pub(super) in_training: bool,
}

impl Evaluator {
    /// Returns a remark on its error rates, if there is one.
    pub fn remark(&self) -> Option<String> {
        self.normalizer.remark()
    }

    /// Computes the model's answer to every sample and scores it.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn evaluate(
        &self,
        model: &TaskModel,
        data: &TaskLoader,
        kind: RouterKind,
    ) -> Result<EvaluationResult, BoxError> {
        let mut scoring = Scoring::new(&self.tasks, &self.normalizer);
        scoring.in_training = self.in_training;
        let mut routed = Vec::new();
        if !self.process_group.is_alone() && self.evaluate_shared(model, data, kind, &mut scoring, &mut routed)? {
            return self.result(scoring, routed);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for batch in data.epoch(0, 0) {
            let mut batch = batch?;
            let answered = self.answer(model, &mut batch, kind, &mut rng)?;
            scoring.add_all(&Asked::of(&batch, self.tasks.len()), &answered)?;
            routed.extend(answered.routed);
        }
        self.result(scoring, routed)
    }

    /// As [`evaluate`](Self::evaluate), but each rank answers its share of the batches. Returns false if the answers of
    /// some kind of task cannot be sent to other ranks. Each rank scores all answers in order, so the scores equal
    /// those of a single process.
    fn evaluate_shared(
        &self,
        model: &TaskModel,
        data: &TaskLoader,
        kind: RouterKind,
        scoring: &mut Scoring,
        routed: &mut Vec<RoutedSample>,
    ) -> Result<bool, BoxError> {
        let Some(all) = gather(&self.process_group, self.answer_share(model, data, kind))? else { return Ok(false) };
        let all: Vec<(Option<Spoken>, Answered)> = all
            .into_iter()
            .map(|mut shared| Ok((shared.spoken.take(), shared.answered(&self.tasks)?)))
            .collect::<Result<_, BoxError>>()?;
        // References of speech are sent between ranks; samples of text are read by every rank.
        let mut texts = all.iter().any(|(spoken, _)| spoken.is_none()).then(|| data.epoch(0, 0));
        for (spoken, answered) in all {
            match (spoken, &mut texts) {
                (Some(spoken), _) => scoring.add_all(&spoken.asked(), &answered)?,
                (None, Some(texts)) => {
                    let batch = texts.next().ok_or("ranks have answered more batches than there are")??;
                    scoring.add_all(&Asked::of(&batch, self.tasks.len()), &answered)?;
                }
                (None, None) => {}
            }
            routed.extend(answered.routed);
        }
        Ok(true)
    }

    /// Returns the model's answers to this rank's share of the batches; `None` if they cannot be sent to other ranks.
    fn answer_share(
        &self,
        model: &TaskModel,
        data: &TaskLoader,
        kind: RouterKind,
    ) -> Result<Option<Vec<SharedAnswers>>, BoxError> {
        // Random choices are only the same in a single process.
        if kind == RouterKind::Random {
            return Ok(None);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut own = Vec::new();
        // One window of all batches: no rank waits for others before the end.
        let share = BatchShare {
            rank: self.process_group.rank(),
            count: self.process_group.count(),
            window: data.batches(0).max(1),
        };
        let mut batches = data.share(0, 0, share);
        while let Some(batch) = batches.next() {
            let mut batch = batch?;
            let answered = self.answer(model, &mut batch, kind, &mut rng)?;
            let Some(shared) = SharedAnswers::of(batches.cursor() - 1, &batch, &answered, &self.tasks) else {
                return Ok(None);
            };
            own.push(shared);
        }
        Ok(Some(own))
    }

    fn result(&self, scoring: Scoring, routed: Vec<RoutedSample>) -> Result<EvaluationResult, BoxError> {
        let result = scoring.finish()?;
        let remarks = self.remark().into_iter().chain(repetition_remark(&result.scored)).collect();
        Ok(EvaluationResult { routed, remarks, ..result })
    }

    /// Computes the model's answers to the samples of a batch.
    fn answer(
        &self,
        model: &TaskModel,
        batch: &mut TaskBatch,
        kind: RouterKind,
        rng: &mut ChaCha8Rng,
    ) -> Result<Answered, BoxError> {
        let (tapped, heads) = self.tap(model, batch)?;
        let mut routed = Vec::new();
        let (gates, chosen) = self.decide(model, &tapped, batch, kind, rng, &mut routed);
        let states = model.encode(&tapped, gates.as_ref()).states;
        let encoded = EncodedBatch { model, tasks: &self.tasks, batch, states, padding: &tapped.padding, gates };
        let mut losses = Vec::new();
        if self.tasks.iter().any(|task| task.metrics().iter().any(|metric| metric == LOSS)) {
            let sums = self.pretrained.losses(encoded.clone(), heads.as_ref(), 0.0)?;
            losses = sums.into_iter().map(|sum| sum.into_scalar::<f32>()).collect();
        }
        let answers = self.pretrained.answers(encoded, &chosen)?;
        Ok(Answered { losses, routed, chosen, answers })
    }

    /// Evaluates the routing of every sample, without computing answers.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn route(&self, model: &TaskModel, data: &TaskLoader) -> Result<EvaluationResult, BoxError> {
        let mut result = EvaluationResult::default();
        for batch in data.epoch(0, 0) {
            let mut batch = batch?;
            let (tapped, _) = self.tap(model, &mut batch)?;
            if let Some(routing) = model.routing(&tapped, &batch) {
                result.routed.extend(routed(&routing, &batch.tasks));
            }
        }
        Ok(result)
    }

    /// Computes a batch's states at the tap, and the additional inputs of heads.
    fn tap(&self, model: &TaskModel, batch: &mut TaskBatch) -> Result<(Tapped, Option<HeadInputs>), BoxError> {
        if self.interrupt.is_asked() {
            return Err("the evaluation is left to the next session".into());
        }
        note_workload(Workload::Evaluation(batch.input.size()));
        let (input, padding) = input(batch, 0, &self.device);
        let heads = batch.input.upload_heads(input.as_ref(), &self.device);
        Ok((self.tapped(model, batch, input, padding, &self.device)?, heads))
    }

    /// Returns the gates of the adapters, and the task whose head answers each row.
    fn decide(
        &self,
        model: &TaskModel,
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
                let Some(routing) = model.routing(tapped, batch) else { return own(batch.tasks.clone()) };
                samples.extend(routed(&routing, &batch.tasks));
                (Some(Gates::Each(routing.inference_gates(&self.router))), routing.choices())
            }
        }
    }
}

fn routed(routing: &Routing, tasks: &[usize]) -> Vec<RoutedSample> {
    let gates = routing.probabilities();
    let width = gates.dims()[1];
    let gates: Vec<f32> = gates.into_data().iter::<f32>().collect();
    let confidences: Vec<f32> = routing.confidences().into_data().iter::<f32>().collect();
    let rows = gates.chunks(width).zip(confidences).zip(tasks);
    rows.map(|((gates, confidence), task)| RoutedSample { task: *task, gates: gates.to_vec(), confidence }).collect()
}

impl TaskModel {
    /// Returns the gates for the true tasks. A model without adapters has none; the gate of a single adapter for all
    /// tasks is always open.
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
