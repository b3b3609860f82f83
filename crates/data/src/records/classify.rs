use super::fields::{TaskFields, check_set, index_of};
use super::{Origin, RecordsConfig, RecordsError};

/// A text, or a pair of texts, and its class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyRecord {
    /// The text.
    pub text: String,
    /// The second text, for tasks on pairs.
    pub text_pair: Option<String>,
    /// Class, as an index into the task's labels.
    pub label: usize,
    /// Origin of the record.
    pub origin: Origin,
}

impl ClassifyRecord {
    /// Reads records whose labels are names from `labels` or indices into them. The numbers in a Parquet file that names
    /// its classes, some of them as `labels` does, are those names.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row. It is returned for a file that is missing,
    /// empty or not in its format, a field that is missing or not a text, and a label that is not in `labels`.
    pub fn read(config: &RecordsConfig, labels: &[String]) -> Result<Vec<Self>, RecordsError> {
        check_set("label", labels)?;
        let task = TaskFields {
            config,
            required: &["text", "label"],
            optional: &["text_pair"],
            aliases: &[],
            shared: Some("text"),
        };
        task.read(|row| {
            let text = task.text(row, "text")?;
            let text_pair = task.optional_text(row, "text_pair")?;
            let value = task.required(row, "label")?;
            let classes = row.class_names(&task.column(row, "label"));
            let label = index_of(labels, classes, value, "label", || row.origin.clone())?
                .ok_or_else(|| task.mistyped(row, "label", value, "a label's name or number"))?;
            Ok(Self { text, text_pair, label, origin: row.origin.clone() })
        })
    }
}
