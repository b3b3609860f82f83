use super::fields::TaskFields;
use super::{Origin, RecordsConfig, RecordsError};

/// A text and what it should become: a translation, a summary, code.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRecord {
    /// The text.
    pub source: String,
    /// What it should become.
    pub target: String,
    /// Where the record comes from.
    pub origin: Origin,
}

impl PairRecord {
    /// Reads pairs.
    ///
    /// # Errors
    /// Names the file and, where there is one, the line or row: for a file that is missing, not in its format or empty,
    /// for two files of unequal length, and for a field that is missing or no text.
    pub fn read(config: &RecordsConfig) -> Result<Vec<Self>, RecordsError> {
        let task =
            TaskFields { config, required: &["source", "target"], optional: &[], aliases: &[], shared: Some("source") };
        task.read(|row| {
            let (source, target) = (task.text(row, "source")?, task.text(row, "target")?);
            Ok(Self { source, target, origin: row.origin.clone() })
        })
    }
}
