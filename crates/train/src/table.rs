//! `metrics.csv`: the contents of `metrics.jsonl` as a table for spreadsheets and data frames.

use crate::report::rounded;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use undertone_store::write_atomically;

/// The columns that every row has.
const KEYS: [&str; 2] = ["step", "split"];

/// A wide table: `step`, `split`, then a column for every name, in the order in which the names first occur. A cell is
/// empty if a line does not have the name, and `NaN` if its value is not finite.
///
/// The table is made from `metrics.jsonl` alone. It is written again when a session begins, and when a name occurs for
/// the first time. A resumed run therefore ends with the table of an uninterrupted one, and the option may be set at
/// any time.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    path: PathBuf,
    /// The `metrics.jsonl` that it is made from.
    metrics: PathBuf,
    columns: Vec<String>,
    file: File,
}

impl MetricsTable {
    /// Writes the table of the lines in `metrics` to `path`.
    pub fn open(path: &Path, metrics: &Path) -> Result<Self> {
        let columns = rewrite(path, metrics)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { path: path.to_owned(), metrics: metrics.to_owned(), columns, file })
    }

    /// Adds the last line of `metrics.jsonl`.
    pub fn write(&mut self, step: u64, split: &str, values: &[(&str, f64)]) -> Result<()> {
        let is_new = |name: &str| !self.columns.iter().any(|column| column == name);
        if values.iter().any(|(name, _)| is_new(name)) {
            *self = Self::open(&self.path, &self.metrics)?;
            return Ok(());
        }
        let cell = |column: &String| match column.as_str() {
            "step" => step.to_string(),
            "split" => split.to_owned(),
            name => values.iter().rfind(|(n, _)| *n == name).map_or(String::new(), |(_, value)| text(&rounded(*value))),
        };
        let row: Vec<String> = self.columns.iter().map(cell).collect();
        self.file.write_all(&rows([row])?)
    }
}

/// Writes the table again, and returns its columns.
fn rewrite(path: &Path, metrics: &Path) -> Result<Vec<String>> {
    let text_of_lines = std::fs::read_to_string(metrics)?;
    let lines: Vec<Map<String, Value>> =
        text_of_lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut columns: Vec<String> = KEYS.map(str::to_owned).to_vec();
    for name in lines.iter().flat_map(Map::keys) {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    let row = |line: &Map<String, Value>| -> Vec<String> {
        columns.iter().map(|column| line.get(column).map_or(String::new(), text)).collect()
    };
    let table = rows(std::iter::once(columns.clone()).chain(lines.iter().map(row)))?;
    write_atomically(path, &table).map_err(std::io::Error::other)?;
    Ok(columns)
}

fn rows(rows: impl IntoIterator<Item = Vec<String>>) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(&row)?;
    }
    writer.into_inner().map_err(|error| std::io::Error::other(error.to_string()))
}

/// Formats a value for a cell.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "NaN".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::MetricsLog;

    /// A line of a session: step, split, values.
    type Line<'a> = (u64, &'a str, &'a [(&'a str, f64)]);

    fn session(dir: &Path, from: u64, lines: &[Line]) {
        let metrics = dir.join("metrics.jsonl");
        let mut log = MetricsLog::open(&metrics, from).expect("opened");
        let mut table = MetricsTable::open(&dir.join("metrics.csv"), &metrics).expect("opened");
        for (step, split, values) in lines {
            log.write(*step, split, values.iter().copied()).expect("logged");
            table.write(*step, split, values).expect("written");
        }
    }

    fn table(dir: &Path) -> String {
        std::fs::read_to_string(dir.join("metrics.csv")).expect("read")
    }

    const LINES: [Line; 5] = [
        (0, "valid", &[("error", 0.5)]),
        (10, "train", &[("loss", 1.0 / 3.0), ("lr", 3.16632e-5)]),
        (20, "train", &[("loss", f64::NAN), ("lr", 0.1)]),
        (30, "train", &[("loss", 0.25), ("copy, slow", 0.125), ("lr", 0.1)]),
        (30, "valid", &[("error", 0.25)]),
    ];

    #[test]
    fn a_column_that_comes_later_is_empty_before() {
        let dir = tempfile::tempdir().expect("a directory");
        session(dir.path(), 0, &LINES);
        let expected = "\
step,split,error,loss,lr,\"copy, slow\"
0,valid,0.5,,,
10,train,,0.3333333,0.0000316632,
20,train,,NaN,0.1,
30,train,,0.25,0.1,0.125
30,valid,0.25,,,
";
        assert_eq!(table(dir.path()), expected);
    }

    #[test]
    fn a_resumed_run_ends_with_the_table_of_one_that_never_stopped() {
        let (whole, parts) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        session(whole.path(), 0, &LINES);
        session(parts.path(), 0, &LINES[..3]);
        // Of steps that no checkpoint has: one of them with a column that the run will not have again.
        session(parts.path(), 21, &[(25, "train", &[("lost", 1.0)]), (30, "train", &[("loss", 7.0)])]);
        session(parts.path(), 21, &LINES[3..]);
        assert_eq!(table(parts.path()), table(whole.path()));
    }

    #[test]
    fn a_table_asked_for_later_begins_at_the_beginning() {
        let (early, late) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        session(early.path(), 0, &LINES);
        let mut log = MetricsLog::open(&late.path().join("metrics.jsonl"), 0).expect("opened");
        for (step, split, values) in &LINES[..3] {
            log.write(*step, split, values.iter().copied()).expect("logged");
        }
        session(late.path(), 21, &LINES[3..]);
        assert_eq!(table(late.path()), table(early.path()));
    }
}
