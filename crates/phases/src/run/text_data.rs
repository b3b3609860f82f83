//! Records of text tasks.

use crate::SourceConfig;
use crate::config::{DataConfig, TaskConfig};
use std::collections::BTreeMap;
use undertone_data::records::{Origin, RecordsConfig};
use undertone_tasks::{Columns, Framer, TextDataset};
use undertone_train::BoxError;

/// Reads the records of `source` as the task's head needs them. A record that cannot be used is treated as `data` says.
pub(crate) fn read_texts(
    data: &DataConfig,
    task: &TaskConfig,
    source: &SourceConfig,
    framer: &Framer,
) -> Result<TextDataset, BoxError> {
    let records = RecordsConfig { skip: data.skip(), ..source.records()? };
    let texts = task.head.texts(&records)?;
    check_texts(&records, &texts)?;
    let samples = task.head.read(&records, framer)?;
    Ok(if records.keep.is_empty() { samples } else { samples.with_columns(columns(texts)) })
}

/// Name of the column that every text has: the number of its words.
pub(super) const WORDS: &str = "words";

/// Returns what results can be grouped by: the columns that the records keep, and the number of words.
fn columns(texts: Vec<(Origin, String)>) -> BTreeMap<String, Columns> {
    let of = |(origin, text): (Origin, String)| {
        let mut columns = origin.columns();
        // In place of a column of that name, such as the list of words of a tagged sentence.
        columns.insert(WORDS.to_owned(), text.split_whitespace().count().to_string());
        (origin.to_string(), columns)
    };
    texts.into_iter().map(of).collect()
}

/// Logs the number of records with an empty text and the place of the first.
fn check_texts(records: &RecordsConfig, inputs: &[(Origin, String)]) -> Result<(), BoxError> {
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
    use undertone_data::records::Place;

    #[test]
    fn empty_texts_are_refused_where_there_are_no_others() {
        let records = RecordsConfig { path: std::path::PathBuf::from("a.csv").into(), ..RecordsConfig::default() };
        let path = std::path::Path::new("a.csv").into();
        let input = |line: u64, text: &str| (Origin::new(&path, Place::Line(line)), text.to_owned());
        assert!(check_texts(&records, &[input(1, ""), input(2, "a")]).is_ok());
        let error = check_texts(&records, &[input(1, " "), input(2, "")]).expect_err("refused").to_string();
        assert_eq!(
            error,
            "a.csv: all 2 records have an empty text, as a.csv line 1 has: correct the file, or map another column under \
             `columns`"
        );
    }
}
