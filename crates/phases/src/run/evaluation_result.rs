//! The result of an evaluation.

use crate::config::ERROR;
use std::collections::BTreeMap;
use undertone_report::RoutedSample;
use undertone_train::{Evaluation, Example};

/// Result of a model on an evaluation set.
#[derive(Clone, Debug, Default)]
pub struct EvaluationResult {
    /// Metric values by task and metric.
    pub tasks: BTreeMap<String, BTreeMap<String, f64>>,
    /// Mean over tasks of the error of each task's first metric.
    pub error: f64,
    /// Router probabilities of each sample; empty without a router.
    pub routed: Vec<RoutedSample>,
    /// Examples: one sample of each task, or a few in a run without `tasks`.
    pub examples: Vec<Example>,
    /// Remarks on the metrics, as sentences.
    pub remarks: Vec<String>,
}

impl EvaluationResult {
    /// Returns the share of samples that the router sent to their own task; `None` without a router.
    pub fn routing_accuracy(&self) -> Option<f64> {
        let right = self.routed.iter().filter(|s| choice(&s.gates) == s.task).count();
        (!self.routed.is_empty()).then(|| right as f64 / self.routed.len() as f64)
    }

    /// Converts it to the Learner's form: `task.metric`, the mean error, and the router's accuracy if there is a
    /// router. A run without `tasks` has the metrics alone.
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
            // If only routing was evaluated, the router's error selects the best checkpoint.
            metrics.entry(ERROR.to_owned()).or_insert(1.0 - accuracy);
        }
        Evaluation { metrics, examples: self.examples, remarks: self.remarks }
    }
}

fn choice(gates: &[f32]) -> usize {
    (0..gates.len()).rev().max_by(|a, b| gates[*a].total_cmp(&gates[*b])).unwrap_or_default()
}
