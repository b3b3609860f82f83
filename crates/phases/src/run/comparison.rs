//! Comparison of two models on the same samples.

use super::evaluation_result::{EvaluationResult, ROUTING_ACCURACY, full_name};
use super::scored::{ScoredSample, ScoredTask};
use crate::RunError;
use std::collections::BTreeMap;
use undertone_metrics::paired_bootstrap;
use undertone_report::{Compared, Comparison};

impl EvaluationResult {
    /// Compares every metric with that of another model, `with`, on the same samples, by the
    /// [paired bootstrap](undertone_metrics::paired_bootstrap).
    ///
    /// # Errors
    /// When the samples differ.
    pub fn compare(&self, other: &Self, with: &str) -> Result<Comparison, RunError> {
        let differ = |reason: String| RunError::OtherSamples { with: with.to_owned(), reason };
        if self.scored.len() != other.scored.len() {
            return Err(differ(format!("{} tasks and {}", self.scored.len(), other.scored.len())));
        }
        let mut metrics = BTreeMap::new();
        for (task, others) in self.scored.iter().zip(&other.scored) {
            same_samples(task, others).map_err(differ)?;
            let [values, other_values] =
                [(self, task), (other, others)].map(|(result, task)| &result.tasks[&task.name]);
            for (metric, value) in values {
                let Some(other_value) = other_values.get(metric) else { continue };
                let difference = value - other_value;
                // Some metric may have no value, as an error rate has none without any text.
                if !difference.is_finite() {
                    continue;
                }
                let significance = task.difference(others, metric).map(Into::into);
                let compared = Compared { value: *other_value, difference, significance };
                metrics.insert(full_name(&task.name, metric), compared);
            }
        }
        metrics.extend(self.compare_routing(other).map(|compared| (ROUTING_ACCURACY.to_owned(), compared)));
        Ok(Comparison { with: with.to_owned(), metrics })
    }

    /// Compares the accuracy of the routers, if both models have one.
    fn compare_routing(&self, other: &Self) -> Option<Compared> {
        let (own, value) = (self.routing_accuracy()?, other.routing_accuracy()?);
        let accuracy = |result: &Self, drawn: &mut dyn Iterator<Item = usize>| result.routing_accuracy_of(drawn);
        let significance =
            self.routed.iter().map(|sample| sample.task).eq(other.routed.iter().map(|sample| sample.task)).then(|| {
                paired_bootstrap(self.routed.len(), |drawn| accuracy(self, drawn), |drawn| accuracy(other, drawn))
            });
        Some(Compared { value, difference: own - value, significance: significance.flatten().map(Into::into) })
    }
}

/// Checks that two models answered the same samples. The error is the first difference.
fn same_samples(task: &ScoredTask, other: &ScoredTask) -> Result<(), String> {
    let (ours, theirs) = (&task.samples, &other.samples);
    let is_same = |(a, b): &(&ScoredSample, &ScoredSample)| {
        (&a.text.name, &a.text.reference, &a.facts) == (&b.text.name, &b.text.reference, &b.facts)
    };
    if let Some((place, (a, b))) = ours.iter().zip(theirs).enumerate().find(|(_, pair)| !is_same(pair)) {
        let (a, b) = (&a.text, &b.text);
        let number = place + 1;
        return Err(format!(
            "sample {number} is `{}` ({:?}) and `{}` ({:?})",
            a.name, a.reference, b.name, b.reference
        ));
    }
    match ours.len() == theirs.len() {
        true => Ok(()),
        false => Err(format!("{} samples and {}", ours.len(), theirs.len())),
    }
}
