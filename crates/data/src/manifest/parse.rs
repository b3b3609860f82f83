use std::io::ErrorKind;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use serde::Deserialize;

use super::{Entry, ManifestError};

/// The names of the audio column. [`Row`] has the same as aliases.
const AUDIO: [&str; 4] = ["audio", "path", "file", "audio_filepath"];

/// The text of a manifest.
pub(super) fn read(path: &Path) -> Result<String, ManifestError> {
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => ManifestError::Missing { path: path.into() },
        _ => ManifestError::Read { path: path.into(), source },
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count() as u64;
        ManifestError::Line { path: path.into(), line, reason: "is not UTF-8; save the manifest as UTF-8".into() }
    })
}

/// Entries with the lines they start on, whatever the format.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<(u64, Entry)>, ManifestError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("jsonl" | "ndjson") => parse_jsonl(path, text),
        Some("tsv") => parse_table(path, text, b'\t'),
        Some("csv") => {
            let head = text.lines().next().unwrap_or_default();
            let has_header = |delimiter: char| head.split(delimiter).any(|cell| AUDIO.contains(&name(cell).as_str()));
            match head.contains('|') {
                true if has_header(',') => parse_table(path, text, b','),
                true if has_header('|') => parse_table(path, text, b'|'),
                true => parse_pipes(path, text),
                false => parse_table(path, text, b','),
            }
        }
        _ => Err(ManifestError::Format { path: path.into() }),
    }
}

/// One line as the user wrote it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(alias = "path", alias = "file", alias = "audio_filepath")]
    audio: String,
    text: String,
    language: Option<String>,
    task: Option<String>,
    start: Option<f64>,
    end: Option<f64>,
}

impl Row {
    fn into_entry(self, path: &Path, line: u64) -> Result<(u64, Entry), ManifestError> {
        if self.audio.is_empty() {
            return Err(malformed(path, line, "the audio path is empty"));
        }
        let (start, end) = (self.start.unwrap_or(0.0), self.end.unwrap_or(f64::INFINITY));
        // Written so that NaN fails, too.
        if !(start >= 0.0 && end > start) {
            return Err(ManifestError::Segment { path: path.into(), line, start, end });
        }
        // Joining an absolute path gives that path.
        let audio = path.parent().unwrap_or(Path::new("")).join(&self.audio);
        let Self { text, language, task, start, end, .. } = self;
        Ok((line, Entry { audio, text, language, task, start, end }))
    }
}

fn parse_jsonl(path: &Path, text: &str) -> Result<Vec<(u64, Entry)>, ManifestError> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let row: Row = serde_json::from_str(line).map_err(|error| {
                // It counts lines within the one line it was given, so only the column means anything.
                let reason = error.to_string();
                let reason = reason.split(" at line ").next().unwrap_or(&reason);
                malformed(path, number, format!("column {}: {reason}", error.column()))
            })?;
            row.into_entry(path, number)
        })
        .collect()
}

/// `FILE|TRANSCRIPT`, without a header.
fn parse_pipes(path: &Path, text: &str) -> Result<Vec<(u64, Entry)>, ManifestError> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let mut fields = line.split('|');
            let (Some(audio), Some(text), _, None) = (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                return Err(malformed(path, number, "is not FILE|TRANSCRIPT, like the lines before it"));
            };
            let (audio, text) = (audio.trim().to_owned(), text.to_owned());
            Row { audio, text, language: None, task: None, start: None, end: None }.into_entry(path, number)
        })
        .collect()
}

fn parse_table(path: &Path, text: &str, delimiter: u8) -> Result<Vec<(u64, Entry)>, ManifestError> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        // Only in comma-separated files do quotes mean something; elsewhere they belong to the text.
        .quoting(delimiter == b',')
        .from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().map_err(|error| table_error(path, &error))?.iter().map(name).collect();
    if header.iter().all(String::is_empty) {
        return Ok(Vec::new());
    }
    let column = |names: &[&str]| header.iter().position(|name| names.contains(&name.as_str()));
    let required = |names: &[&str]| {
        let (column_names, found) = (names.join(" or "), header.join(", "));
        column(names).ok_or(ManifestError::Column { path: path.into(), column: column_names, found })
    };
    let (audio, text) = (required(&AUDIO)?, required(&["text"])?);
    let optional = ["language", "task", "start", "end"].map(|name| column(&[name]));

    let mut entries = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| table_error(path, &error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = |column: usize| record.get(column).unwrap_or_default();
        let [language, task, start, end] = optional.map(|column| filled(&record, column));
        let row = Row {
            audio: cell(audio).trim().to_owned(),
            text: cell(text).to_owned(),
            language: language.map(str::to_owned),
            task: task.map(str::to_owned),
            start: seconds(path, line, start)?,
            end: seconds(path, line, end)?,
        };
        entries.push(row.into_entry(path, line)?);
    }
    Ok(entries)
}

/// A column name as it is compared: trimmed, without quotes, in lower case.
fn name(cell: &str) -> String {
    cell.trim().trim_matches('"').to_lowercase()
}

/// The content of an optional cell, if there is any.
fn filled(record: &StringRecord, column: Option<usize>) -> Option<&str> {
    record.get(column?).map(str::trim).filter(|cell| !cell.is_empty())
}

fn seconds(path: &Path, line: u64, cell: Option<&str>) -> Result<Option<f64>, ManifestError> {
    cell.map(|cell| {
        cell.parse().map_err(|_| malformed(path, line, format!("{cell:?} is not a number of seconds, such as 12.5")))
    })
    .transpose()
}

fn table_error(path: &Path, error: &csv::Error) -> ManifestError {
    let line = error.position().map_or(1, csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} cells where the header has {expected_len}; quote text that holds the separator")
        }
        _ => error.to_string(),
    };
    malformed(path, line, reason)
}

fn malformed(path: &Path, line: u64, reason: impl Into<String>) -> ManifestError {
    ManifestError::Line { path: path.into(), line, reason: reason.into() }
}
