//! Records of text tasks.

use crate::SourceConfig;
use crate::config::TaskConfig;
use undertone_data::records::RecordsConfig;
use undertone_tasks::{Framer, TextDataset};
use undertone_train::BoxError;

/// Reads the records of `source` as the task's head needs them.
///
/// # Errors
/// Names the file and the invalid line. Also when no record has a text.
pub(crate) fn read_texts(task: &TaskConfig, source: &SourceConfig, framer: &Framer) -> Result<TextDataset, BoxError> {
    let records = source.records()?;
    check_texts(&records, &task.head.texts(&records)?)?;
    Ok(task.head.read(&records, framer)?)
}

/// Logs the number of records with an empty text and the place of the first.
///
/// # Errors
/// When all are empty.
fn check_texts(records: &RecordsConfig, inputs: &[(String, String)]) -> Result<(), BoxError> {
    let mut empty = inputs.iter().filter(|(_, text)| text.trim().is_empty()).map(|(place, _)| place);
    let Some(first) = empty.next() else { return Ok(()) };
    let (count, of) = (1 + empty.count(), inputs.len());
    if count == of {
        let path = &records.path;
        return Err(format!(
            "{path}: all {of} records have an empty text, as {first} has: correct the file, or map another column under `columns`"
        )
        .into());
    }
    tracing::warn!(
        "{}: {count} of {of} records have an empty text, as {first} has; remove or correct them",
        records.path
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_texts_are_refused_where_there_are_no_others() {
        let records = RecordsConfig { path: std::path::PathBuf::from("a.csv").into(), ..RecordsConfig::default() };
        let input = |line: usize, text: &str| (format!("a.csv line {line}"), text.to_owned());
        assert!(check_texts(&records, &[input(1, ""), input(2, "a")]).is_ok());
        let error = check_texts(&records, &[input(1, " "), input(2, "")]).expect_err("refused").to_string();
        assert_eq!(
            error,
            "a.csv: all 2 records have an empty text, as a.csv line 1 has: correct the file, or map another column under \
             `columns`"
        );
    }
}
