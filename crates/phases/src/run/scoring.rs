//! The scores of tasks, batch by batch.

use super::batch::{BatchInput, TaskBatch};
use super::evaluation_result::EvaluationResult;
use crate::TextNormalizer;
use crate::config::{LOSS, TaskConfig};
use undertone_report::RoutedSample;
use undertone_tasks::kinds::seq2seq::spoken;
use undertone_tasks::{Answer, Score, ScoredText, TextSample};
use undertone_train::{BoxError, Example};

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

    /// Counts what the model made of a batch.
    pub fn add_all(&mut self, asked: &Asked, answered: &Answered) -> Result<(), BoxError> {
        for (task, ((sum, count), loss)) in self.losses.iter_mut().zip(&answered.losses).enumerate() {
            *sum += f64::from(*loss);
            *count += asked.decisions[task];
        }
        for (row, answer) in answered.answers.iter().enumerate() {
            let task = asked.tasks[row];
            match &asked.rows {
                Rows::Speech { names, texts } => self.add_spoken(task, &names[row], &texts[row], answer)?,
                Rows::Text(samples) => {
                    let own = answered.chosen[row] == task;
                    self.add_text(task, &samples[row], own.then_some(answer))?;
                }
            }
        }
        Ok(())
    }

    /// Counts the answer to a recording.
    fn add_spoken(&mut self, task: usize, name: &str, text: &str, answer: &Answer) -> Result<(), BoxError> {
        let hypothesis = answer.as_str();
        let [reference, read] = [text, hypothesis].map(|text| self.normalizer.normalize(text));
        self.scores[task].add(&spoken(name, &reference), Some(&Answer::text(read)))?;
        // What was said is shown as it was said.
        let [name, reference, hypothesis] = [name, text, hypothesis].map(str::to_owned);
        self.show(task, Some(ScoredText { name, reference, hypothesis }));
        Ok(())
    }

    /// Counts the answer to a sample of text; an answer of another task's head is none.
    pub fn add_text(&mut self, task: usize, sample: &TextSample, answer: Option<&Answer>) -> Result<(), BoxError> {
        let said = self.scores[task].add(sample, answer)?;
        self.show(task, said);
        Ok(())
    }

    fn show(&mut self, task: usize, said: Option<ScoredText>) {
        let config = &self.tasks[task];
        let (shown, most) = (&mut self.examples[task], if config.is_whole() { EXAMPLES } else { 1 });
        if let (true, Some(ScoredText { name, reference, hypothesis })) = (shown.len() < most, said) {
            let name = if config.is_whole() { name } else { format!("{} {name}", config.name) };
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
        }
        result.examples = self.examples.concat();
        Ok(result)
    }
}

/// How many samples are shown of the only task of a run.
const EXAMPLES: usize = 3;

/// What the model made of a batch.
pub(super) struct Answered {
    /// Of each task the sum of its losses, where they are asked for.
    pub losses: Vec<f32>,
    /// What the router decided, where there is one and it is asked.
    pub routed: Vec<RoutedSample>,
    /// Whose head answered each row.
    pub chosen: Vec<usize>,
    pub answers: Vec<Answer>,
}

/// What a batch asks for.
pub(super) struct Asked<'a> {
    tasks: &'a [usize],
    /// Of each task how many decisions.
    decisions: Vec<f64>,
    rows: Rows<'a>,
}

enum Rows<'a> {
    Speech { names: &'a [String], texts: &'a [String] },
    Text(&'a [TextSample]),
}

impl<'a> Asked<'a> {
    pub fn of(batch: &'a TaskBatch, tasks: usize) -> Self {
        let decisions = (0..tasks).map(|task| batch.decisions_of(task)).collect();
        let rows = match &batch.input {
            BatchInput::Speech(speech) => Rows::Speech { names: &speech.names, texts: &speech.texts },
            BatchInput::Text(text) => Rows::Text(&text.samples),
        };
        Self { tasks: &batch.tasks, decisions, rows }
    }

    /// Of recordings with these names, in which this is said.
    pub fn spoken(tasks: &'a [usize], decisions: Vec<f64>, names: &'a [String], texts: &'a [String]) -> Self {
        Self { tasks, decisions, rows: Rows::Speech { names, texts } }
    }
}
