//! What an evaluation found, as its record.

use super::eval::Evaluated;
use super::evaluation_result::full_name;
use super::worst::worst;
use crate::RunError;
use std::collections::BTreeMap;
use undertone_metrics::direction_of;
use undertone_report::{Comparison, ErrorCounts, EvaluationRecord, MetricScore};

impl Evaluated {
    /// Returns the number of samples of each task.
    pub fn samples(&self) -> BTreeMap<String, usize> {
        self.result.scored.iter().map(|task| (task.name.clone(), task.samples.len())).collect()
    }

    /// Returns the alignment counts of the error rates among the metrics.
    pub fn errors(&self) -> BTreeMap<String, ErrorCounts> {
        let of_task = self.result.scored.iter().flat_map(|task| {
            let counts = task.metrics().iter().filter_map(|metric| Some((metric, task.errors(&metric.name)?)));
            counts.map(|(metric, errors)| (full_name(&task.name, &metric.name), errors.into()))
        });
        of_task.collect()
    }

    /// Returns the record of the evaluation on `data`, in words, with the worst samples and their audio.
    ///
    /// # Errors
    /// When no sample has what results are grouped by, or audio cannot be read.
    pub fn record(
        &self,
        data: &str,
        by: &[String],
        comparison: Option<Comparison>,
    ) -> Result<EvaluationRecord, RunError> {
        let evaluation = self.result.clone().into_evaluation();
        let directions: BTreeMap<String, _> = self
            .result
            .scored
            .iter()
            .flat_map(|task| {
                task.metrics().iter().map(|metric| (full_name(&task.name, &metric.name), metric.direction))
            })
            .collect();
        let score = |(metric, value): (String, f64)| MetricScore {
            direction: directions.get(&metric).copied().flatten().or_else(|| direction_of(&metric)),
            value: Some(value).filter(|value| value.is_finite()),
            interval: evaluation.intervals.get(&metric).copied(),
            metric,
        };
        Ok(EvaluationRecord {
            data: data.to_owned(),
            step: self.step,
            samples: self.samples(),
            errors: self.errors(),
            groups: self.result.groups(by)?,
            comparison,
            worst: worst(&self.result.scored, self.data.dataset())?,
            remarks: evaluation.remarks.clone(),
            metrics: evaluation.metrics.clone().into_iter().map(score).collect(),
        })
    }
}
