use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::fields::TaskFields;
use super::json::{self, Noted};
use super::lines::{Rows, is_blank, lines, open_text, read_error};
use super::row::{Content, Row};
use super::starts::Starts;
use super::warnings::warn_once;
use super::{Format, Origin, RecordsError, columnwise, find, parquet, squad};

impl TaskFields<'_> {
    /// Returns the records of the configured part, up to the limit, each made by `record`; at least one.
    pub fn read<T>(&self, mut record: impl FnMut(&Row) -> Result<T, RecordsError>) -> Result<Vec<T>, RecordsError> {
        self.config.validate()?;
        let (mut left_out, mut first) = (0_usize, None);
        let records = self.select(rows(self)?, |row| match record(row) {
            Err(problem) if self.config.skip.is_some() && problem.is_of_record() => {
                left_out += 1;
                first.get_or_insert(problem);
                Ok(None)
            }
            record => record.map(Some),
        })?;
        if let (Some(share), Some(first)) = (self.config.skip, first) {
            let (path, of) = (self.config.path.clone(), records.len());
            if left_out as f64 > share * of as f64 {
                return Err(RecordsError::TooManyBad { path, left_out, of, first: Box::new(first) });
            }
            // Records are read for their texts and for their features.
            warn_once(format!("{path}: {left_out} of {of} records are left out, the first because {first}"));
        }
        Ok(records.into_iter().flatten().collect())
    }
}

/// Returns the numbered rows of a task's files, one file after the other; each file is opened when its rows are needed.
fn rows(task: &TaskFields) -> Result<impl Iterator<Item = Result<Row, RecordsError>>, RecordsError> {
    let rows = find::files(task.config)?.into_iter().flat_map(|(format, path)| {
        file_rows(task, format, path.into()).unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    });
    Ok((1..).zip(rows).map(|(number, row)| Ok(Row { number, ..row? })))
}

/// Opens one file.
pub(crate) fn file_rows(task: &TaskFields, format: Format, path: Arc<Path>) -> Result<Rows, RecordsError> {
    let config = task.config;
    match (format, &config.target_path) {
        (Format::Csv, _) if !task.aliases.is_empty() && has_pipes(task, &path)? => pipes(task, path),
        (Format::Json, _) if config.format == Format::Auto && is_jsonl(task, &path)? => jsonl(path),
        (Format::Jsonl, _) if config.format == Format::Auto && is_array(&path)? => json(task, path),
        (Format::Jsonl, _) => jsonl(path),
        (Format::Json, _) => json(task, path),
        (Format::Csv, _) => {
            let separator = separator(task, &path)?;
            table(task, path, separator, true)
        }
        (Format::Tsv, _) => table(task, path, b'\t', false),
        (Format::Conll, _) => conll(path),
        (Format::Parquet, _) => parquet::rows(path, None),
        (Format::Tar | Format::Audio | Format::Transcripts, _) => {
            Err(RecordsError::Speech { path: path.to_path_buf() })
        }
        (Format::Text, Some(target)) => parallel(path, target.as_path().into()),
        (Format::Text | Format::Auto, _) => Err(RecordsError::Format { path: path.to_path_buf() }),
    }
}

/// Returns whether a file begins with one complete object per line, rather than with one object on many lines or an
/// array. A single line is one if its object is a record.
fn is_jsonl(task: &TaskFields, path: &Arc<Path>) -> Result<bool, RecordsError> {
    let mut lines = lines(path)?.filter(|line| !is_blank(line));
    let Some((number, first)) = lines.next().transpose()? else { return Ok(false) };
    let Ok(fields) = serde_json::from_str::<serde_json::Map<_, _>>(&first) else { return Ok(false) };
    if columnwise::records(&fields, is_of_lists(task)).is_some() {
        return Ok(false);
    }
    let row = Row::new(Origin::line(path, number), Content::Fields(fields));
    let is_record = || task.required.iter().all(|field| row.get(&task.column(&row, field)).is_some());
    Ok(lines.next().is_some() || is_record())
}

/// Whether the fields of a record are lists: words and tags.
fn is_of_lists(task: &TaskFields) -> bool {
    task.required.contains(&"tags")
}

/// Returns whether a file begins an array of objects: it has the extension of one object per line, and is none.
fn is_array(path: &Arc<Path>) -> Result<bool, RecordsError> {
    let mut lines = lines(path)?.filter(|line| !is_blank(line));
    let Some((_, first)) = lines.next().transpose()? else { return Ok(false) };
    Ok(match first.trim().strip_prefix('[').map(str::trim_start) {
        Some("") => lines.next().transpose()?.is_some_and(|(_, next)| next.trim_start().starts_with('{')),
        Some(rest) => rest.starts_with('{'),
        None => false,
    })
}

fn jsonl(path: Arc<Path>) -> Result<Rows, RecordsError> {
    let lines = lines(&path)?.filter(|line| !is_blank(line));
    Ok(Box::new(lines.map(move |line| {
        let (number, text) = line?;
        let origin = Origin::line(&path, number);
        let Noted { value, repeated } = json::parse(&text).map_err(|error| {
            // The parser counts lines within the one line it was given, so only the column is meaningful.
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or(&reason);
            let reason = format!(
                "is not JSON at column {}: {reason}; one array over many lines is `format: json`",
                error.column()
            );
            RecordsError::Malformed { origin: origin.clone(), reason }
        })?;
        Ok(Row { repeated, ..json_row(origin, value)? })
    })))
}

fn json(task: &TaskFields, path: Arc<Path>) -> Result<Rows, RecordsError> {
    let mut text = String::new();
    for line in lines(&path)? {
        text.push_str(&line?.1);
        text.push('\n');
    }
    if text.trim().is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let Noted { value, repeated } = json::parse(&text).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or(&reason);
        let reason =
            format!("is not JSON at column {}: {reason}; one object a line is `format: jsonl`", error.column());
        RecordsError::Malformed { origin: Origin::line(&path, error.line() as u64), reason }
    })?;
    let fail = |reason: String| RecordsError::Malformed { origin: Origin::line(&path, 1), reason };
    let mut list = String::new();
    let items = match value {
        Value::Array(items) => items,
        Value::Object(fields) => {
            let names = fields.keys().cloned().collect::<Vec<_>>().join(", ");
            if let Some(name) = repeated.iter().find(|path| fields.contains_key(path.as_str())) {
                return Err(fail(format!("begins an object that has `{name}` twice; keep one of them")));
            }
            if let Some(records) = columnwise::records(&fields, is_of_lists(task)) {
                if let Some(twice) = repeated.first() {
                    return Err(fail(format!("has `{twice}` twice; keep one of them")));
                }
                return Ok(of_items(path, records, HashMap::new()));
            }
            let mut arrays = fields.into_iter().filter_map(|(name, value)| match value {
                Value::Array(items) => Some((name, items)),
                _ => None,
            });
            match (arrays.next(), arrays.next()) {
                (Some((name, items)), None) => {
                    list = name + ".";
                    items
                }
                _ => return Err(fail(format!("begins an object with the fields {names}; just one must be an array"))),
            }
        }
        _ => return Err(fail("begins neither an array nor an object with one".into())),
    };
    let items = match squad::questions(&items) {
        Some(_) if !repeated.is_empty() => return Err(fail(format!("has `{}` twice; keep one of them", repeated[0]))),
        Some(questions) => questions,
        None => items,
    };
    let mut repeats: HashMap<u64, Vec<String>> = HashMap::new();
    for (number, name) in repeated.iter().filter_map(|at| at.strip_prefix(&list)?.split_once('.')) {
        let number: u64 = number.parse().unwrap_or_default();
        repeats.entry(number + 1).or_default().push(name.to_owned());
    }
    Ok(of_items(path, items, repeats))
}

/// Makes the rows of a file from its items. `repeats` are names that occur twice in an item, by its number from 1.
fn of_items(path: Arc<Path>, items: Vec<Value>, mut repeats: HashMap<u64, Vec<String>>) -> Rows {
    Box::new((1..).zip(items).map(move |(number, item)| {
        let repeated = repeats.remove(&number).unwrap_or_default();
        Ok(Row { repeated, ..json_row(Origin::row(&path, number), item)? })
    }))
}

/// Makes a row from an object, or from an array of cells.
fn json_row(origin: Origin, value: Value) -> Result<Row, RecordsError> {
    match value {
        Value::Object(fields) => Ok(Row::new(origin, Content::Fields(fields))),
        Value::Array(cells) => Ok(Row::new(origin, Content::Cells { header: None, cells })),
        _ => Err(RecordsError::Malformed { origin, reason: "is not a JSON object with the record's fields".into() }),
    }
}

/// A line added after the last line of a table. If it ends up inside a cell, the quote at the start of that cell was
/// never closed.
const END: &str = "\0 end of table \0";

fn table(task: &TaskFields, path: Arc<Path>, delimiter: u8, quoting: bool) -> Result<Rows, RecordsError> {
    let end = std::io::Cursor::new(format!("\n{END}\n"));
    let (bytes, mut starts) = Starts::of(BufReader::new(open_text(&path)?).chain(end));
    let mut records = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        // The number of cells is checked here, because the last line has only one.
        .flexible(true)
        .quoting(quoting)
        .from_reader(bytes)
        .into_records();
    let Some(first) = records.next() else { return Ok(Box::new(std::iter::empty())) };
    let mut line = move |position: Option<&csv::Position>| starts.line(position.map_or(0, csv::Position::byte));
    let first = match first {
        Ok(first) => (line(first.position()), first),
        Err(error) => return Err(table_error(&path, line(error.position()), &error)),
    };
    let names: Arc<[String]> = first.1.iter().map(|cell| cell.trim().to_owned()).collect();
    let width = names.len();
    let (header, first) = if task.is_header(&names) { (Some(names), None) } else { (None, Some(Ok(first))) };
    match &first {
        Some(Ok((_, cells))) => task.check_first(&path, &cells.iter().collect::<Vec<_>>())?,
        _ => task.check_header(&path, header.as_ref())?,
    }
    let records = records.map(move |record| match record {
        Ok(record) => Ok((line(record.position()), record)),
        Err(error) => Err((line(error.position()), error)),
    });
    Ok(Box::new(first.into_iter().chain(records).filter_map(move |record| {
        let (line, record) = match record {
            Ok((_, record)) if record.iter().eq([END]) => return None,
            Ok(record) => record,
            Err((line, error)) => return Some(Err(table_error(&path, line, &error))),
        };
        let origin = Origin::line(&path, line);
        if record.iter().next_back().is_some_and(|cell| cell.contains(END)) {
            return Some(Err(RecordsError::OpenQuote { origin }));
        }
        let reason = if record.len() != width {
            let cells = record.len();
            let way_out = match quoting {
                false => "in files separated by tabs quotes belong to the text, so that no cell can hold a tab or a line break: save it as CSV",
                true => "quote text that holds the separator",
            };
            format!("has {cells} cells where the first row has {width}; {way_out}")
        } else {
            let cells = record.iter().map(|cell| if quoting { cell.into() } else { unquoted(cell) });
            let cells = cells.map(Value::from).collect();
            return Some(Ok(Row::new(origin, Content::Cells { header: header.clone(), cells })));
        };
        Some(Err(RecordsError::Malformed { origin, reason }))
    })))
}

/// Returns the text of a cell between tabs. Quotes belong to it, but for those that a program for CSV wrote: it puts a text
/// that has quotes between quotes, and doubles each within (pandas, Common Voice before version 5).
fn unquoted(cell: &str) -> Cow<'_, str> {
    let Some(inner) = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')) else { return cell.into() };
    let pairs = inner.matches("\"\"").count();
    if pairs > 0 && inner.matches('"').count() == 2 * pairs { inner.replace("\"\"", "\"").into() } else { cell.into() }
}

/// Returns what separates the cells of a CSV file: commas, semicolons, as Excel writes it where the comma is the decimal separator, or
/// tabs. For the latter two its first line has the names of columns between them, or no comma where a task needs several columns.
fn separator(task: &TaskFields, path: &Arc<Path>) -> Result<u8, RecordsError> {
    let Some((_, first)) = lines(path)?.find(|line| !is_blank(line)).transpose()? else { return Ok(b',') };
    let between = |separator| first.split(separator).map(|cell| cell.trim().trim_matches('"')).collect::<Vec<_>>();
    let named = |separator| task.has_names(&between(separator));
    let one_cell = !first.contains(',') && task.required.len() > 1;
    let is_between = |separator| first.contains(separator) && (named(separator) || one_cell);
    Ok(match () {
        () if named(',') => b',',
        () if is_between(';') => b';',
        () if is_between('\t') => b'\t',
        () => b',',
    })
}

/// Returns whether a CSV file is separated by pipes: its first line contains some, and is no header separated by
/// commas.
fn has_pipes(task: &TaskFields, path: &Arc<Path>) -> Result<bool, RecordsError> {
    let Some((_, first)) = lines(path)?.find(|line| !is_blank(line)).transpose()? else { return Ok(false) };
    let commas: Vec<_> = first.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
    Ok(first.contains('|') && !(commas.len() > 1 && task.is_header(&commas)))
}

/// Reads cells separated by pipes, as in LJSpeech: quotes are part of the text. Without a header a third cell, the text
/// in another form, may be missing.
fn pipes(task: &TaskFields, path: Arc<Path>) -> Result<Rows, RecordsError> {
    let mut lines = lines(&path)?.filter(|line| !is_blank(line)).peekable();
    let split = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let names = lines.peek().and_then(|line| line.as_ref().ok()).map(|(_, first)| split(first)).unwrap_or_default();
    let header: Option<Arc<[String]>> = task.is_header(&names).then(|| names.into());
    task.check_header(&path, header.as_ref())?;
    if header.is_some() {
        lines.next();
    }
    Ok(Box::new(lines.map(move |line| {
        let (number, line) = line?;
        let origin = Origin::line(&path, number);
        let cells: Vec<_> = line.split('|').map(Value::from).collect();
        let reason = match &header {
            Some(header) if cells.len() != header.len() => {
                format!("has {} cells where the header has {}", cells.len(), header.len())
            }
            None if !(2..=3).contains(&cells.len()) => "is not FILE|TRANSCRIPT, like the lines before it".into(),
            _ => return Ok(Row::new(origin, Content::Cells { header: header.clone(), cells })),
        };
        Err(RecordsError::Malformed { origin, reason })
    })))
}

fn table_error(path: &Arc<Path>, line: u64, error: &csv::Error) -> RecordsError {
    let origin = Origin::line(path, line);
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => RecordsError::Encoding { origin },
        _ => read_error(path, error),
    }
}

/// Reads sentences. The columns of a line are separated by tabs, or by blanks if there are none. Lines before a sentence that begin with `# `
/// and have another number of columns than it are comments.
fn conll(path: Arc<Path>) -> Result<Rows, RecordsError> {
    let mut lines = lines(&path)?.peekable();
    Ok(Box::new(std::iter::from_fn(move || {
        let mut first = 0;
        let mut columns: Vec<Vec<Value>> = Vec::new();
        loop {
            let (number, line) = match lines.next() {
                Some(Ok((number, line))) => (number, line),
                Some(Err(error)) => return Some(Err(error)),
                None => (0, String::new()),
            };
            if line.trim().is_empty() || line.starts_with("-DOCSTART-") {
                if !columns.is_empty() {
                    let columns = columns.into_iter().map(Value::from).collect();
                    return Some(Ok(Row::new(Origin::line(&path, first), Content::Sentence(columns))));
                } else if number == 0 {
                    return None;
                }
                continue;
            }
            let cells = cells(&line);
            let next = lines.peek().and_then(|next| Some(next.as_ref().ok()?.1.as_str())).unwrap_or_default();
            if columns.is_empty() && looks_like_comment(&line) && is_comment(cells.len(), next) {
                continue;
            }
            if columns.is_empty() {
                first = number;
                columns = vec![Vec::new(); cells.len()];
            }
            if cells.len() < 2 || cells.len() != columns.len() {
                let reason = match cells.len() {
                    1 => "has a word without a tag; separate them with a tab".to_owned(),
                    count => format!("has {count} columns where the sentence began with {}", columns.len()),
                };
                return Some(Err(RecordsError::Malformed { origin: Origin::line(&path, number), reason }));
            }
            for (column, cell) in columns.iter_mut().zip(cells) {
                column.push(cell.into());
            }
        }
    })))
}

/// Returns the columns of a line. A word may contain other spaces than blanks, as `10 000` does with one that does not break.
fn cells(line: &str) -> Vec<&str> {
    match line.contains('\t') {
        true => line.split('\t').map(|cell| cell.trim_matches(' ')).collect(),
        false => line.split(' ').filter(|cell| !cell.is_empty()).collect(),
    }
}

fn looks_like_comment(line: &str) -> bool {
    line.starts_with("# ") && !line.contains('\t')
}

/// Whether a line that looks like a comment and has so many columns is one, by the line after it: `# O` may be a word and its tag.
fn is_comment(columns: usize, next: &str) -> bool {
    match cells(next).len() {
        0 => columns > 2,
        others => looks_like_comment(next) || others != columns,
    }
}

/// Reads two files line by line.
fn parallel(path: Arc<Path>, target: Arc<Path>) -> Result<Rows, RecordsError> {
    // Counted first, because a limit could end the reading before the end of the shorter file.
    let (here, there) = (lines(&path)?.count(), lines(&target)?.count());
    if here != there {
        let (path, target_path) = (path.to_path_buf(), target.to_path_buf());
        return Err(RecordsError::Unequal { path, lines: here, target_path, target_lines: there });
    }
    let (sources, targets) = (lines(&path)?, lines(&target)?);
    Ok(Box::new(sources.zip(targets).map(move |(source, target)| {
        let (number, source) = source?;
        let cells = vec![source.into(), target?.1.into()];
        Ok(Row::new(Origin::line(&path, number), Content::Cells { header: None, cells }))
    })))
}
