//! Results of an evaluation, as `evaluation.json`.

use crate::error::ReportError;
use crate::table::markdown_grid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use undertone_metrics::{Difference, Direction, ErrorRate, Interval};
use undertone_store::write_atomically;

/// Results of an evaluation. In a directory of a run or a stage they are `evaluation.json`, and its page shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Data: a split, or a source.
    pub data: String,
    /// Optimizer step of the evaluated model, if it is that of one stage.
    pub step: Option<u64>,
    /// Number of samples by task; a run without `tasks` has one without a name.
    pub samples: BTreeMap<String, usize>,
    /// Metrics over all samples.
    pub metrics: Vec<MetricScore>,
    /// Alignment counts of error rates, by metric.
    pub errors: BTreeMap<String, ErrorCounts>,
    /// Metrics of groups of samples.
    pub groups: Vec<Grouping>,
    /// Comparison with another model on the same samples.
    pub comparison: Option<Comparison>,
    /// Samples with the most errors, the worst first.
    pub worst: Vec<WorstSample>,
    /// Remarks on the metrics, in sentences.
    pub remarks: Vec<String>,
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricScore {
    /// Name, with that of the task if there is one: `task.metric`.
    pub metric: String,
    /// Whether lower or higher is better, if that is known.
    pub direction: Option<Direction>,
    /// Value; `None` if it is not finite.
    pub value: Option<f64>,
    /// 95 % confidence interval, if there is one.
    pub interval: Option<Interval>,
}

/// Alignment counts of texts with their references, under the names that jiwer has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Symbols of the references that the hypotheses have, too.
    pub hits: usize,
    /// Symbols of the references that are another one in the hypotheses.
    pub substitutions: usize,
    /// Symbols of the references that the hypotheses lack.
    pub deletions: usize,
    /// Symbols of the hypotheses that the references lack.
    pub insertions: usize,
}

/// Groups of a task's samples that differ in one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    /// Name of the task; empty in a run without `tasks`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// What they differ in.
    pub by: String,
    /// Groups, in order.
    pub groups: Vec<Group>,
}

/// Samples that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// Number of samples.
    pub samples: usize,
    /// Metrics by name; those without a value are left out.
    pub metrics: BTreeMap<String, f64>,
    /// 95 % confidence intervals by metric.
    pub intervals: BTreeMap<String, Interval>,
}

/// Comparison of two models on the same samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the other model.
    pub with: String,
    /// Metrics that both have.
    pub metrics: BTreeMap<String, Compared>,
}

/// Metric of the other model, and the difference to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Value of the other model.
    pub value: f64,
    /// Value of the evaluated model minus that of the other one.
    pub difference: f64,
    /// 95 % confidence interval of the difference and p-value, for metrics that can be computed over some samples.
    #[serde(flatten)]
    pub significance: Option<Significance>,
}

/// Certainty of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Significance {
    /// Paired bootstrap interval.
    pub interval: Interval,
    /// Two-sided p-value.
    pub p_value: f64,
}

/// Sample with many errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstSample {
    /// Name of the task; empty in a run without `tasks`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// Name of the sample.
    pub name: String,
    /// Reference, as it was compared.
    pub reference: String,
    /// Hypothesis, as it was compared.
    pub hypothesis: String,
    /// Number of errors.
    pub errors: usize,
    /// Duration in seconds, if it is a recording.
    pub seconds: Option<f64>,
    /// Its audio as a WAV file, unless the recordings would be too large for a page. In JSON it is Base64.
    #[serde(with = "base64_text")]
    pub audio: Option<Vec<u8>>,
}

/// Bytes as Base64.
mod base64_text {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| BASE64_STANDARD.encode(bytes)).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| BASE64_STANDARD.decode(text)).transpose().map_err(D::Error::custom)
    }
}

impl From<ErrorRate> for ErrorCounts {
    fn from(rate: ErrorRate) -> Self {
        let edits = rate.edits;
        Self {
            hits: rate.hits(),
            substitutions: edits.substitutions,
            deletions: edits.deletions,
            insertions: edits.insertions,
        }
    }
}

impl From<Difference> for Significance {
    fn from(Difference { interval, p_value, .. }: Difference) -> Self {
        Self { interval, p_value }
    }
}

impl Grouping {
    /// Returns the groups as a table in Markdown.
    pub fn markdown(&self) -> String {
        let Self { task, by, groups } = self;
        let title = if task.is_empty() { by.clone() } else { format!("{task}: {by}") };
        let mut grid = vec![[vec![title, "Samples".into()], self.metrics().map(str::to_owned).collect()].concat()];
        for group in groups {
            let cells = self.metrics().map(|metric| group.text(metric));
            grid.push([vec![group.name.clone(), group.samples.to_string()], cells.collect()].concat());
        }
        grid.iter_mut().flatten().for_each(|cell| *cell = cell.replace('|', "\\|"));
        markdown_grid(&grid)
    }

    /// Names of the metrics that any group has, in order.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        let names: BTreeSet<&str> =
            self.groups.iter().flat_map(|group| group.metrics.keys()).map(String::as_str).collect();
        names.into_iter()
    }
}

impl Group {
    /// Returns the value of a metric with its interval, as text.
    pub(super) fn text(&self, metric: &str) -> String {
        match (self.metrics.get(metric), self.intervals.get(metric)) {
            (Some(value), Some(Interval { low, high })) => format!("{value:.4} [{low:.4}, {high:.4}]"),
            (Some(value), None) => format!("{value:.4}"),
            (None, _) => "–".into(),
        }
    }
}

/// Name of the file.
const EVALUATION: &str = "evaluation.json";

impl EvaluationRecord {
    /// Writes `evaluation.json` to the directory of a run or a stage.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), ReportError> {
        let json = serde_json::to_vec_pretty(self).unwrap_or_default();
        Ok(write_atomically(&directory.join(EVALUATION), &json)?)
    }

    /// Reads the `evaluation.json` of a directory; `None` if there is none that this version can read.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.join(EVALUATION)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_table_in_the_terminal() {
        let expected = "\
| speaker    | Samples |                     cer |    wer |
|------------|--------:|------------------------:|-------:|
| anna & bob |       3 | 0.2500 [0.1250, 0.5000] | 0.5000 |
| carl       |       3 | 0.3750 [0.1250, 0.5000] |      – |
";
        assert_eq!(super::super::page::tests::record().groups[0].markdown(), expected);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(EvaluationRecord::read(dir.path()), None);
        let record = super::super::page::tests::record();
        record.write(dir.path()).expect("written");
        assert_eq!(EvaluationRecord::read(dir.path()), Some(record));
        std::fs::write(dir.path().join(EVALUATION), "{\"data\": 1}").expect("written");
        assert_eq!(EvaluationRecord::read(dir.path()), None);
    }
}
