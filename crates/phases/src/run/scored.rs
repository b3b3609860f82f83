//! Scored samples of a task, and its metrics over any of them.

use crate::SampleFacts;
use crate::config::{LOSS, TaskConfig};
use std::rc::Rc;
use undertone_metrics::{Difference, Direction, ErrorRate, Hallucination, Interval, bootstrap, paired_bootstrap};
use undertone_tasks::{Score, ScoredText};
use undertone_transcribe::{REPETITIVE, compression_ratio};

/// Samples of a task with the model's answers, and their score.
#[derive(Clone, Debug)]
pub struct ScoredTask {
    /// Name of the task; empty in a run without `tasks`.
    pub name: String,
    /// Samples in the order of the data; a question with several windows is one sample.
    pub samples: Vec<ScoredSample>,
    metrics: Vec<TaskMetric>,
    score: Rc<Score>,
}

/// Sample with the model's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredSample {
    /// Name, reference and hypothesis as they were compared, thus normalised.
    pub text: ScoredText,
    /// What else is known about it.
    pub facts: SampleFacts,
}

/// Metric of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMetric {
    /// Name.
    pub name: String,
    /// Whether lower or higher is better, if that is known.
    pub direction: Option<Direction>,
}

impl ScoredTask {
    pub(super) fn new(task: &TaskConfig, score: Score, samples: Vec<ScoredSample>) -> Self {
        // Samples are known by their texts, so a kind that returns no texts has no metric of some of them.
        let is_known = score.samples() == samples.len();
        let names = task.metrics().into_iter().filter(|name| is_known && name != LOSS);
        let mut metrics: Vec<TaskMetric> =
            names.map(|name| TaskMetric { direction: task.head.direction(&name), name }).collect();
        let hallucinated = |sample: &ScoredSample| sample.hallucination() != Hallucination::default();
        if samples.iter().any(hallucinated) {
            metrics.push(TaskMetric { name: Hallucination::NAME.to_owned(), direction: Some(Direction::Lower) });
        }
        Self { name: task.name.clone(), samples, metrics, score: Rc::new(score) }
    }

    /// Metrics that can be computed over some of the samples: those of the task but the loss, and the hallucinated words
    /// per minute if there are recordings without text.
    pub fn metrics(&self) -> &[TaskMetric] {
        &self.metrics
    }

    /// Value of one of the [`metrics`](Self::metrics) over some samples, each as often as its index is given.
    pub fn metric_of(&self, name: &str, samples: &mut dyn Iterator<Item = usize>) -> Option<f64> {
        if !self.metrics.iter().any(|metric| metric.name == name) {
            return None;
        }
        if name != Hallucination::NAME {
            return self.score.metric_of(name, samples);
        }
        let mut sum = Hallucination::default();
        samples.for_each(|index| sum += self.samples[index].hallucination());
        sum.words_per_minute()
    }

    /// Confidence interval of a metric over some samples.
    pub fn interval_of(&self, name: &str, samples: &[usize]) -> Option<Interval> {
        bootstrap(samples.len(), |drawn| self.metric_of(name, &mut drawn.map(|index| samples[index])))
    }

    /// Difference of a metric to the answers of another model to the same samples. `None` if the metric has no value, or
    /// if the kind of task cannot score some samples by themselves.
    pub fn difference(&self, other: &Self, name: &str) -> Option<Difference> {
        paired_bootstrap(self.samples.len(), |drawn| self.metric_of(name, drawn), |drawn| other.metric_of(name, drawn))
    }

    /// Alignment of all texts with their references, for a metric that is an error rate.
    pub fn errors(&self, name: &str) -> Option<ErrorRate> {
        self.score.errors(name)
    }

    /// All samples, as indices.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.samples.len()).collect()
    }
}

/// Returns a remark on answers that repeat themselves where their references do not, if there are any: a few of them can
/// make most of an error rate.
pub(super) fn repetition_remark(tasks: &[ScoredTask]) -> Option<String> {
    let has_rate = |task: &&ScoredTask| ["cer", "wer"].iter().any(|name| task.errors(name).is_some());
    let samples = || tasks.iter().filter(has_rate).flat_map(|task| &task.samples);
    let looped = samples().filter(|sample| sample.is_loop()).count();
    (looped > 0).then(|| {
        let all = samples().count();
        format!(
            "answers that repeat a word or phrase many times where their references do not: {looped} of {all}. Each \
             repetition counts as an error; the page of `eval --report` or `analyze` shows the worst answers"
        )
    })
}

impl ScoredSample {
    fn is_loop(&self) -> bool {
        let ScoredText { reference, hypothesis, .. } = &self.text;
        compression_ratio(hypothesis) > REPETITIVE && compression_ratio(reference) <= REPETITIVE
    }

    fn hallucination(&self) -> Hallucination {
        let ScoredText { reference, hypothesis, .. } = &self.text;
        let of = |seconds| Hallucination::of(reference, hypothesis, seconds);
        self.facts.seconds().map(of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(answers: &[(&str, &str)]) -> ScoredTask {
        let sample = |(reference, hypothesis): &(&str, &str)| {
            let [reference, hypothesis] = [reference, hypothesis].map(|text| (*text).to_owned());
            ScoredSample {
                text: ScoredText { name: String::new(), reference, hypothesis },
                facts: SampleFacts::default(),
            }
        };
        let task = TaskConfig::default();
        ScoredTask::new(&task, Score::new(&task.head, &task.metrics()), answers.iter().map(sample).collect())
    }

    #[test]
    fn the_loss_has_no_value_over_some_samples() {
        let yaml = "{name: a, metrics: [loss, entity_f1], head: {type: tag, labels: [O, B-PER]}}";
        let config: TaskConfig = serde_norway::from_str(yaml).expect("YAML");
        let task = ScoredTask::new(&config, Score::new(&config.head, &config.metrics()), Vec::new());
        assert_eq!(task.metrics().iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>(), ["entity_f1"]);
        assert_eq!(task.metric_of(LOSS, &mut std::iter::empty()), None);
    }

    #[test]
    fn answers_in_a_loop_are_counted_and_references_that_repeat_are_not() {
        let many = "thank you ".repeat(30);
        let usual = ("good evening everybody", "good evening everyone");
        assert_eq!(repetition_remark(&[task(&[usual, (&many, &many)])]), None);
        let remark = repetition_remark(&[task(&[usual, ("thank you", &many)]), task(&[usual])]).expect("a remark");
        assert!(remark.contains("references do not: 1 of 3."), "{remark}");
        let mut tags = task(&[("B-PER O", "O O O O O O O O O O O O O O O O O O O O O O O O O O O O O O")]);
        let kind: TaskConfig =
            serde_norway::from_str("{name: a, head: {type: tag, labels: [O, B-PER]}}").expect("YAML");
        tags.score = Score::new(&kind.head, &kind.metrics()).into();
        assert_eq!(repetition_remark(&[tags]), None);
    }
}
