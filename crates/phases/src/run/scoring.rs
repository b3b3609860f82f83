//! Scores of tasks, accumulated batch by batch.

use super::batch::{References, TaskBatch};
use super::evaluation_result::EvaluationResult;
use crate::TextNormalizer;
use crate::config::{LOSS, TaskConfig};
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
}

impl<'a> Scoring<'a> {
    pub fn new(tasks: &'a [TaskConfig], normalizer: &'a TextNormalizer) -> Self {
        let scores = tasks.iter().map(|task| Score::new(&task.head, &task.metrics())).collect();
        let (losses, examples) = (vec![(0.0, 0.0); tasks.len()], vec![Vec::new(); tasks.len()]);
        Self { tasks, normalizer, scores, losses, examples }
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
                References::Speech { names, texts } => self.add_spoken(task, &names[row], &texts[row], answer)?,
                References::Text(samples) => {
                    let own = answered.chosen[row] == task;
                    self.add_text(task, &samples[row], own.then_some(answer))?;
                }
            }
        }
        Ok(())
    }

    /// Adds the answer to a recording.
    fn add_spoken(&mut self, task: usize, name: &str, text: &str, answer: &Answer) -> Result<(), BoxError> {
        let hypothesis = answer.as_str();
        let [reference, read] = [text, hypothesis].map(|text| self.normalizer.normalize(text));
        self.scores[task].add(&spoken(name, &reference), Some(&Answer::text(read)))?;
        // Examples show the texts without normalisation.
        let [name, reference, hypothesis] = [name, text, hypothesis].map(str::to_owned);
        self.show(task, Some(ScoredText { name, reference, hypothesis }));
        Ok(())
    }

    /// Adds the answer to a sample of text; `None` if another task's head answered.
    pub fn add_text(&mut self, task: usize, sample: &TextSample, answer: Option<&Answer>) -> Result<(), BoxError> {
        let said = self.scores[task].add(sample, answer)?;
        self.show(task, said);
        Ok(())
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
        let mut result = EvaluationResult::default();
        for (index, task) in self.tasks.iter().enumerate() {
            let said = self.scores[index].finish()?;
            self.show(index, said);
            let (score, metrics) = (&self.scores[index], task.metrics());
            let (sum, count) = self.losses[index];
            let value = |metric: &str| if metric == LOSS { sum / f64::max(count, 1.0) } else { score.metric(metric) };
            result.error += match metrics.first().map(String::as_str) {
                Some(LOSS) => value(LOSS),
                Some(metric) => score.error(metric),
                None => f64::NAN,
            } / self.tasks.len() as f64;
            let values = metrics.iter().map(|metric| (metric.clone(), value(metric))).collect();
            result.tasks.insert(task.name.clone(), values);
            let intervals = metrics.iter().filter_map(|metric| Some((metric.clone(), score.interval(metric)?)));
            result.intervals.insert(task.name.clone(), intervals.collect());
        }
        result.examples = self.examples.concat();
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
