//! Scores of tasks, accumulated batch by batch.

use super::batch::{References, TaskBatch};
use super::evaluation_result::EvaluationResult;
use super::scored::{ScoredSample, ScoredTask, TaskMetric};
use crate::config::{LOSS, TaskConfig};
use crate::{SampleFacts, TextNormalizer};
use std::collections::BTreeMap;
use undertone_report::RoutedSample;
use undertone_tasks::kinds::seq2seq::spoken;
use undertone_tasks::{Answer, Score, ScoredText, TextSample};
use undertone_train::{BoxError, Example};

/// Scores of all tasks.
pub(super) struct Scoring<'a> {
    tasks: &'a [TaskConfig],
    normalizer: &'a TextNormalizer,
    scores: Vec<Score>,
    /// Sum of the losses of each task, and the number of decisions in it.
    losses: Vec<(f64, f64)>,
    /// First samples of each task.
    examples: Vec<Vec<Example>>,
    /// All samples of each task.
    samples: Vec<Vec<ScoredSample>>,
    /// Whether a model is being trained: registered metrics have no interval then. Each of a thousand drawn sets of texts is scored by
    /// them anew, where built-in metrics add what they have counted.
    pub in_training: bool,
}

impl<'a> Scoring<'a> {
    pub fn new(tasks: &'a [TaskConfig], normalizer: &'a TextNormalizer) -> Self {
        let scores = tasks.iter().map(|task| Score::new(&task.head, &task.metrics())).collect();
        let (losses, examples) = (vec![(0.0, 0.0); tasks.len()], vec![Vec::new(); tasks.len()]);
        let samples = vec![Vec::new(); tasks.len()];
        Self { tasks, normalizer, scores, losses, examples, samples, in_training: false }
    }

    /// Adds the model's answers to a batch.
    pub fn add_all(&mut self, asked: &Asked, answered: &Answered) -> Result<(), BoxError> {
        for (task, ((sum, count), loss)) in self.losses.iter_mut().zip(&answered.losses).enumerate() {
            *sum += f64::from(*loss);
            *count += asked.decisions[task];
        }
        for (row, answer) in answered.answers.iter().enumerate() {
            let task = asked.tasks[row];
            match &asked.rows {
                References::Speech { names, texts, facts } => {
                    self.add_spoken(task, [&names[row], &texts[row]], &facts[row], answer)?;
                }
                References::Text(samples) => {
                    let own = answered.chosen[row] == task;
                    self.add_text(task, &samples[row], own.then_some(answer))?;
                }
            }
        }
        Ok(())
    }

    /// Adds the answer to a recording with this name and text.
    fn add_spoken(
        &mut self,
        task: usize,
        [name, text]: [&str; 2],
        facts: &SampleFacts,
        answer: &Answer,
    ) -> Result<(), BoxError> {
        let hypothesis = answer.as_str();
        let [reference, read] = [text, hypothesis].map(|text| self.normalizer.normalize(text));
        let scored = self.scores[task].add(&spoken(name, &reference), Some(&Answer::text(read)))?;
        self.samples[task].extend(scored.map(|text| ScoredSample { text, facts: facts.clone() }));
        // Examples show the texts without normalisation.
        let [name, reference, hypothesis] = [name, text, hypothesis].map(str::to_owned);
        self.show(task, Some(ScoredText { name, reference, hypothesis }));
        Ok(())
    }

    /// Adds the answer to a sample of text; `None` if another task's head answered.
    pub fn add_text(&mut self, task: usize, sample: &TextSample, answer: Option<&Answer>) -> Result<(), BoxError> {
        let scored = self.scores[task].add(sample, answer)?;
        self.keep_text(task, scored);
        Ok(())
    }

    fn keep_text(&mut self, task: usize, scored: Option<ScoredText>) {
        self.show(task, scored.clone());
        self.samples[task].extend(scored.map(|text| ScoredSample { text, facts: SampleFacts::default() }));
    }

    fn show(&mut self, task: usize, said: Option<ScoredText>) {
        let (shown, label) = (&mut self.examples[task], self.tasks[task].label());
        let most = label.map_or(EXAMPLES, |_| 1);
        if let (true, Some(ScoredText { name, reference, hypothesis })) = (shown.len() < most, said) {
            let name = label.map_or(name.clone(), |label| format!("{label} {name}"));
            shown.push(Example { name, reference, hypothesis });
        }
    }

    pub fn finish(mut self) -> Result<EvaluationResult, BoxError> {
        for index in 0..self.tasks.len() {
            let scored = self.scores[index].finish()?;
            self.keep_text(index, scored);
        }
        let mut result = EvaluationResult { examples: self.examples.concat(), ..EvaluationResult::default() };
        let scores = self.scores.into_iter().zip(self.samples).zip(self.losses);
        for (task, ((score, samples), (sum, count))) in self.tasks.iter().zip(scores) {
            let metrics = task.metrics();
            let value = |metric: &str| if metric == LOSS { sum / f64::max(count, 1.0) } else { score.metric(metric) };
            result.error += match metrics.first().map(String::as_str) {
                Some(LOSS) => value(LOSS),
                Some(metric) => score.error(metric),
                None => f64::NAN,
            } / self.tasks.len() as f64;
            let mut values: BTreeMap<String, f64> =
                metrics.iter().map(|metric| (metric.clone(), value(metric))).collect();
            let mut intervals = BTreeMap::new();
            let scored = ScoredTask::new(task, score, samples);
            let all = scored.all();
            for TaskMetric { name, .. } in scored.metrics() {
                let Some(value) = scored.metric_of(name, &mut all.iter().copied()) else { continue };
                values.entry(name.clone()).or_insert(value);
                if self.in_training && task.head.registered_metrics().iter().any(|metric| metric.name == name) {
                    continue;
                }
                intervals.extend(scored.interval_of(name, &all).map(|interval| (name.clone(), interval)));
            }
            result.tasks.insert(task.name.clone(), values);
            result.intervals.insert(task.name.clone(), intervals);
            result.scored.push(scored);
        }
        Ok(result)
    }
}

/// Number of examples in a run without `tasks`.
const EXAMPLES: usize = 3;

/// Answers of the model to a batch.
pub(super) struct Answered {
    /// Sum of the losses of each task, if a metric needs them.
    pub losses: Vec<f32>,
    /// Decisions of the router, if it is used.
    pub routed: Vec<RoutedSample>,
    /// Task whose head answered each row.
    pub chosen: Vec<usize>,
    pub answers: Vec<Answer>,
}

/// References of a batch.
pub(super) struct Asked<'a> {
    pub tasks: &'a [usize],
    /// Number of decisions of each task.
    pub decisions: Vec<f64>,
    pub rows: References<'a>,
}

impl<'a> Asked<'a> {
    pub fn of(batch: &'a TaskBatch, tasks: usize) -> Self {
        let decisions = (0..tasks).map(|task| batch.decisions_of(task)).collect();
        Self { tasks: &batch.tasks, decisions, rows: batch.input.references() }
    }
}
