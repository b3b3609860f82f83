//! Judging a model on the tasks' data, with one router or another.

use super::arrays::{input, one_hot};
use super::batch::{BatchInput, TaskBatch, TaskLoader};
use super::model::{Tapped, TaskModel};
use super::pretrained::Pretrained;
use super::task_loss::{TaskLosses, TextInput};
use crate::TextNormalizer;
use crate::config::{ERROR, LOSS, TaskConfig};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use undertone_fit::{Workload, note_workload};
use undertone_model::lora::Gates;
use undertone_model::router::{RouterConfig, Routing};
use undertone_report::RoutedSample;
use undertone_tasks::kinds::seq2seq::spoken;
use undertone_tasks::{Answer, Said, Score, TextSample};
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
    /// One sample of each task, or a few of the only one of a run without `tasks`.
    pub examples: Vec<Example>,
    /// What is to be known of the metrics, in sentences.
    pub remarks: Vec<String>,
}

/// What judging needs besides a model and data.
pub struct Judge {
    pub(super) tasks: Vec<TaskConfig>,
    pub(super) pretrained: Pretrained,
    pub(super) router: RouterConfig,
    /// What is done to texts before they are compared.
    pub(super) normalizer: TextNormalizer,
    pub(super) device: Device,
}

impl Judged {
    /// The share of samples that the router sent to their own task.
    pub fn routing_accuracy(&self) -> Option<f64> {
        let right = self.routed.iter().filter(|s| choice(&s.gates) == s.task).count();
        (!self.routed.is_empty()).then(|| right as f64 / self.routed.len() as f64)
    }
}

impl Judge {
    /// What is to be known of what it finds.
    pub fn remark(&self) -> Option<String> {
        self.normalizer.remark()
    }

    /// Lets the model answer every sample and compares.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn judge(&self, model: &TaskModel, data: &TaskLoader, kind: RouterKind) -> Result<Judged, BoxError> {
        let mut scoring = Scoring::new(&self.tasks, &self.normalizer);
        let mut routed = Vec::new();
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let counts_loss = self.tasks.iter().any(|task| task.metrics().iter().any(|metric| metric == LOSS));
        for batch in data.epoch(0, 0) {
            let mut batch = batch?;
            let (tapped, texts) = self.tap(model, &mut batch)?;
            let (gates, chosen) = self.decide(model, &tapped, &batch, kind, &mut rng, &mut routed);
            let states = model.encode(&tapped, gates.as_ref()).states;
            if counts_loss {
                let losses = TaskLosses { tasks: &self.tasks, label_smoothing: 0.0 };
                let padding = &tapped.padding;
                let sums =
                    losses.sums(model, states.clone(), padding, gates.clone(), &batch, texts.as_ref(), &self.device)?;
                scoring.add_losses(&batch, sums);
            }
            let answers =
                model.answer(&self.pretrained, &self.tasks, states, &tapped.padding, gates, &batch, &chosen)?;
            for (row, answer) in answers.iter().enumerate() {
                scoring.add(&batch, row, answer, chosen[row] == batch.tasks[row])?;
            }
        }
        Ok(Judged { routed, remarks: self.remark().into_iter().collect(), ..scoring.finish()? })
    }

    /// Where the router sends every sample, without letting the model write.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn route(&self, model: &TaskModel, data: &TaskLoader) -> Result<Judged, BoxError> {
        let mut judged = Judged::default();
        for batch in data.epoch(0, 0) {
            let mut batch = batch?;
            if let Some(routing) = routing(model, &self.tap(model, &mut batch)?.0) {
                judged.routed.extend(routed(&routing, &batch.tasks));
            }
        }
        Ok(judged)
    }

    /// A batch at the tap, and what losses of texts need besides.
    fn tap(&self, model: &TaskModel, batch: &mut TaskBatch) -> Result<(Tapped, Option<TextInput>), BoxError> {
        note_workload(Workload::Evaluation(batch.shape()));
        let (input, padding) = input(batch, 0, &self.device);
        let texts = TextInput::new(batch, &input, &self.device);
        Ok((model.tap(input, padding)?, texts))
    }

    /// How much each adapter counts, and the task whose head answers.
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
                let Some(routing) = routing(model, tapped) else { return own(batch.tasks.clone()) };
                samples.extend(routed(&routing, &batch.tasks));
                (Some(Gates::Each(routing.inference_gates(&self.router))), routing.choices())
            }
        }
    }
}

/// The scores of all tasks.
pub(super) struct Scoring<'a> {
    tasks: &'a [TaskConfig],
    normalizer: &'a TextNormalizer,
    scores: Vec<Score>,
    /// Of each task the sum of its losses, and how many decisions they are about.
    losses: Vec<(f64, f64)>,
    /// The first samples of each task.
    examples: Vec<Vec<Example>>,
}

impl<'a> Scoring<'a> {
    pub fn new(tasks: &'a [TaskConfig], normalizer: &'a TextNormalizer) -> Self {
        let scores = tasks.iter().map(|task| Score::new(&task.head, &task.metrics())).collect();
        let (losses, examples) = (vec![(0.0, 0.0); tasks.len()], vec![Vec::new(); tasks.len()]);
        Self { tasks, normalizer, scores, losses, examples }
    }

    /// Counts the answer to a row; `own` says whether the task's own head gave it.
    fn add(&mut self, batch: &TaskBatch, row: usize, answer: &Answer, own: bool) -> Result<(), BoxError> {
        let task = batch.tasks[row];
        match &batch.input {
            BatchInput::Speech(speech) => {
                let (name, text, hypothesis) = (&speech.names[row], &speech.texts[row], answer.said());
                let [reference, read] = [text, hypothesis].map(|text| self.normalizer.normalize(text));
                self.scores[task].add(&spoken(name, &reference), Some(&Answer::text(read)))?;
                // What was said is shown as it was said.
                let (name, reference, hypothesis) = (name.clone(), text.clone(), hypothesis.to_owned());
                self.show(task, Some(Said { name, reference, hypothesis }));
            }
            BatchInput::Text(text) => self.add_text(task, &text.samples[row], own.then_some(answer))?,
        }
        Ok(())
    }

    /// Counts the answer to a sample of text; an answer of another task's head is none.
    pub fn add_text(&mut self, task: usize, sample: &TextSample, answer: Option<&Answer>) -> Result<(), BoxError> {
        let said = self.scores[task].add(sample, answer)?;
        self.show(task, said);
        Ok(())
    }

    /// Counts the losses of a batch's tasks.
    fn add_losses(&mut self, batch: &TaskBatch, sums: Vec<Tensor<1>>) {
        for (task, ((sum, count), loss)) in self.losses.iter_mut().zip(sums).enumerate() {
            *sum += f64::from(loss.into_scalar::<f32>());
            *count += batch.decisions_of(task);
        }
    }

    fn show(&mut self, task: usize, said: Option<Said>) {
        let config = &self.tasks[task];
        let (shown, most) = (&mut self.examples[task], if config.is_whole() { EXAMPLES } else { 1 });
        if let (true, Some(Said { name, reference, hypothesis })) = (shown.len() < most, said) {
            let name = if config.is_whole() { name } else { format!("{} {name}", config.name) };
            shown.push(Example { name, reference, hypothesis });
        }
    }

    pub fn finish(mut self) -> Result<Judged, BoxError> {
        let mut judged = Judged::default();
        for (index, task) in self.tasks.iter().enumerate() {
            let said = self.scores[index].finish()?;
            self.show(index, said);
            let (score, metrics) = (&self.scores[index], task.metrics());
            let (sum, count) = self.losses[index];
            let value = |metric: &str| if metric == LOSS { sum / f64::max(count, 1.0) } else { score.metric(metric) };
            judged.error += match metrics.first().map(String::as_str) {
                Some(LOSS) => value(LOSS),
                Some(metric) => score.error(metric),
                None => f64::NAN,
            } / self.tasks.len() as f64;
            let values = metrics.iter().map(|metric| (metric.clone(), value(metric))).collect();
            judged.tasks.insert(task.name.clone(), values);
        }
        judged.examples = self.examples.concat();
        Ok(judged)
    }
}

/// How many samples are shown of the only task of a run.
const EXAMPLES: usize = 3;

fn routing(model: &TaskModel, tapped: &Tapped) -> Option<Routing> {
    model.router.as_ref().map(|router| router.forward(tapped.pooled()))
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

impl TaskModel {
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

impl Judged {
    /// As the Learner records it: `task.metric`, the mean error, and the router's accuracy where there is one; of a run
    /// without `tasks` the metrics alone.
    pub fn into_evaluation(self) -> Evaluation {
        let routing = self.routing_accuracy();
        let mut metrics = BTreeMap::new();
        for (task, values) in &self.tasks {
            let prefix = if task.is_empty() { String::new() } else { format!("{task}.") };
            metrics.extend(values.iter().map(|(metric, value)| (format!("{prefix}{metric}"), *value)));
        }
        if self.tasks.keys().any(|task| !task.is_empty()) {
            metrics.insert(ERROR.to_owned(), self.error);
        }
        if let Some(accuracy) = routing {
            metrics.insert("routing_accuracy".to_owned(), accuracy);
            // Where nothing was written, the router alone decides which checkpoint is best.
            metrics.entry(ERROR.to_owned()).or_insert(1.0 - accuracy);
        }
        Evaluation { metrics, examples: self.examples, remarks: self.remarks }
    }
}
