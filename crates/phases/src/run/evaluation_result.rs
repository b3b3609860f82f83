//! What judging a model finds.

use crate::config::ERROR;
use std::collections::BTreeMap;
use undertone_report::RoutedSample;
use undertone_train::{Evaluation, Example};

/// What a model did on an evaluation set.
#[derive(Clone, Debug, Default)]
pub struct EvaluationResult {
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

impl EvaluationResult {
    /// The share of samples that the router sent to their own task.
    pub fn routing_accuracy(&self) -> Option<f64> {
        let right = self.routed.iter().filter(|s| choice(&s.gates) == s.task).count();
        (!self.routed.is_empty()).then(|| right as f64 / self.routed.len() as f64)
    }
}

impl EvaluationResult {
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

fn choice(gates: &[f32]) -> usize {
    (0..gates.len()).rev().max_by(|a, b| gates[*a].total_cmp(&gates[*b])).unwrap_or_default()
}
