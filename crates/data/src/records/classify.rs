use super::fields::{TaskFields, check_set, index_of};
use super::{Origin, RecordsConfig, RecordsError};

/// A text, or a pair of them, and its class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyRecord {
    /// The text.
    pub text: String,
    /// The second text, for tasks on pairs.
    pub text_pair: Option<String>,
    /// The class: its number in the task's labels.
    pub label: usize,
    /// Where the record comes from.
    pub origin: Origin,
}

impl ClassifyRecord {
    /// Reads records whose labels are names out of `labels` or numbers of them.
    ///
    /// # Errors
    /// Names the file and, where there is one, the line or row: for a file that is missing, not in its format or empty,
    /// a field that is missing or no text, and a label that is none of `labels`.
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
            let label = index_of(labels, value, "label", || row.origin.clone())?
                .ok_or_else(|| task.mistyped(row, "label", value, "a label's name or number"))?;
            Ok(Self { text, text_pair, label, origin: row.origin.clone() })
        })
    }
}
