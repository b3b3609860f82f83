//! The result of an evaluation.

use super::scored::ScoredTask;
use crate::config::ERROR;
use std::collections::BTreeMap;
use undertone_metrics::{Interval, bootstrap};
use undertone_report::RoutedSample;
use undertone_train::{Evaluation, Example};

/// Result of a model on an evaluation set.
#[derive(Clone, Debug, Default)]
pub struct EvaluationResult {
    /// Metric values by task and metric.
    pub tasks: BTreeMap<String, BTreeMap<String, f64>>,
    /// Confidence intervals of these values, by task and metric.
    pub intervals: BTreeMap<String, BTreeMap<String, Interval>>,
    /// Mean over tasks of the error of each task's first metric.
    pub error: f64,
    /// Router probabilities of each sample; empty without a router.
    pub routed: Vec<RoutedSample>,
    /// Examples: one sample of each task, or a few in a run without `tasks`.
    pub examples: Vec<Example>,
    /// Remarks on the metrics, as sentences.
    pub remarks: Vec<String>,
    /// Samples of each task with the model's answers, in the order of the tasks; none if only routing was evaluated.
    pub scored: Vec<ScoredTask>,
}

impl EvaluationResult {
    /// Returns the share of samples that the router sent to their own task; `None` without a router.
    pub fn routing_accuracy(&self) -> Option<f64> {
        self.routing_accuracy_of(0..self.routed.len())
    }

    /// Accuracy of the router on some of the samples.
    pub(super) fn routing_accuracy_of(&self, samples: impl Iterator<Item = usize>) -> Option<f64> {
        let is_right = |sample: &RoutedSample| choice(&sample.gates) == sample.task;
        let (right, all) =
            samples.fold((0, 0), |(right, all), index| (right + u32::from(is_right(&self.routed[index])), all + 1));
        (all > 0).then(|| f64::from(right) / f64::from(all))
    }

    /// Converts it to the Learner's form: `task.metric`, the mean error, and the router's accuracy if there is a
    /// router. A run without `tasks` has the metrics alone.
    pub fn into_evaluation(self) -> Evaluation {
        let routing = self.routing_accuracy();
        let (mut metrics, mut intervals) = (by_name(&self.tasks), by_name(&self.intervals));
        if let Some(interval) = bootstrap(self.routed.len(), |drawn| self.routing_accuracy_of(drawn)) {
            intervals.insert(ROUTING_ACCURACY.to_owned(), interval);
        }
        if self.tasks.keys().any(|task| !task.is_empty()) {
            metrics.insert(ERROR.to_owned(), self.error);
        }
        if let Some(accuracy) = routing {
            metrics.insert(ROUTING_ACCURACY.to_owned(), accuracy);
            // If only routing was evaluated, the router's error selects the best checkpoint.
            metrics.entry(ERROR.to_owned()).or_insert(1.0 - accuracy);
        }
        Evaluation { metrics, intervals, examples: self.examples, remarks: self.remarks }
    }
}

/// Share of the samples that the router sent to their own task, in logs.
pub(super) const ROUTING_ACCURACY: &str = "routing_accuracy";

/// Returns `task.metric`; a run without `tasks` has the metric alone.
pub(super) fn full_name(task: &str, metric: &str) -> String {
    match task {
        "" => metric.to_owned(),
        task => format!("{task}.{metric}"),
    }
}

/// Flattens values by task and metric to values by [`full_name`].
fn by_name<T: Copy>(tasks: &BTreeMap<String, BTreeMap<String, T>>) -> BTreeMap<String, T> {
    let of_task = |(task, values): (&String, &BTreeMap<String, T>)| {
        values.iter().map(|(metric, value)| (full_name(task, metric), *value)).collect::<Vec<_>>()
    };
    tasks.iter().flat_map(of_task).collect()
}

fn choice(gates: &[f32]) -> usize {
    (0..gates.len()).rev().max_by(|a, b| gates[*a].total_cmp(&gates[*b])).unwrap_or_default()
}
