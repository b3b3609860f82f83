use super::fields::TaskFields;
use super::{Origin, RecordsConfig, RecordsError};

/// A source text and its target text: a translation, a summary, code.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRecord {
    /// Source text.
    pub source: String,
    /// Target text.
    pub target: String,
    /// Origin of the record.
    pub origin: Origin,
}

impl PairRecord {
    /// Reads pairs.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row. It is returned for a file that is missing,
    /// empty or not in its format, for two files of unequal length, and for a field that is missing or not a text.
    pub fn read(config: &RecordsConfig) -> Result<Vec<Self>, RecordsError> {
        let task =
            TaskFields { config, required: &["source", "target"], optional: &[], aliases: &[], shared: Some("source") };
        task.read(|row| {
            let (source, target) = (task.text(row, "source")?, task.text(row, "target")?);
            // The sentences of a source belong together; several targets are alternatives.
            if let Some(several) = task.required(row, "target")?.as_array().filter(|targets| targets.len() > 1) {
                let needs =
                    format!("one text ({} are given): name one, as `columns: {{target: target.0}}`", several.len());
                return Err(task.mistyped(row, "target", &several.clone().into(), &needs));
            }
            Ok(Self { source, target, origin: row.origin.clone() })
        })
    }
}
