use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Column;

/// Origin of a record; displayed as `data/train.jsonl line 7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub path: Arc<Path>,
    /// Place in the file.
    pub place: Place,
    /// Values of the columns that are kept, if there are any. Errors have an origin, too, so it is small.
    pub(super) kept: Option<Arc<BTreeMap<String, String>>>,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1; the first line of a record that has several.
    Line(u64),
    /// A row of an array or table without lines, from 1.
    Row(u64),
}

/// Names of the classes of columns that have their numbers.
pub(crate) type ClassNames = BTreeMap<String, Vec<String>>;

/// One record as it is in its file.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub origin: Origin,
    /// Number among the records of all files, from 1; 0 before they are counted.
    pub number: u64,
    /// Audio file that the record is a part of, or all of; none for text, and for rows that contain their audio.
    pub recording: Option<String>,
    /// Audio file of this record in a folder of them: its name need not be text.
    pub file: Option<PathBuf>,
    /// Names that occur twice in the record, of which `content` has the last value: dotted paths, with numbers for list
    /// items.
    pub repeated: Vec<String>,
    /// Names of classes that the file gives.
    pub classes: Option<Arc<ClassNames>>,
    pub content: Content,
}

/// Content of a row.
#[derive(Debug, PartialEq)]
pub(crate) enum Content {
    /// Values with names.
    Fields(Map<String, Value>),
    /// Values in columns, which may have names.
    Cells { header: Option<Arc<[String]>>, cells: Vec<Value> },
    /// A sentence: the columns of its lines, each a list.
    Sentence(Vec<Value>),
}

impl Row {
    /// Makes a row that is not counted yet.
    pub fn new(origin: Origin, content: Content) -> Self {
        Self { origin, number: 0, recording: None, file: None, repeated: Vec::new(), classes: None, content }
    }

    /// Returns the value of a column, if the row has it. Upper and lower case of a name matter only in a path of several.
    pub fn get(&self, column: &Column) -> Option<&Value> {
        match (&self.content, column) {
            (Content::Fields(fields), Column::Name(path)) => {
                descend(fields, path).or_else(|| fields.get(self.key(path)?))
            }
            (Content::Cells { header, cells }, Column::Name(name)) => {
                let key = self.key(name)?;
                cells.get(header.as_ref()?.iter().position(|column| column == key)?)
            }
            (Content::Cells { cells, .. } | Content::Sentence(cells), Column::Number(at)) => cells.get(*at),
            (Content::Fields(_), Column::Number(_)) | (Content::Sentence(_), Column::Name(_)) | (_, Column::Absent) => {
                None
            }
        }
    }

    /// Returns the names of the classes of a column that has numbers.
    pub fn class_names(&self, column: &Column) -> Option<&[String]> {
        let Column::Name(name) = column else { return None };
        Some(self.classes.as_ref()?.get(self.key(name)?)?)
    }

    /// Returns the row's own spelling of a name, which may be in upper or lower case.
    pub fn key(&self, name: &str) -> Option<&str> {
        let mut keys = self.keys();
        keys.clone().find(|key| *key == name).or_else(|| keys.find(|key| key.eq_ignore_ascii_case(name)))
    }

    /// Returns the names of its fields or columns, if they have any.
    pub fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let (fields, header) = match &self.content {
            Content::Fields(fields) => (Some(fields), None),
            Content::Cells { header, .. } => (None, header.as_deref()),
            Content::Sentence(_) => (None, None),
        };
        let header = header.unwrap_or_default().iter().map(String::as_str);
        fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str).chain(header)
    }

    /// Describes the fields of the row, for an error message.
    pub fn describe(&self) -> String {
        match &self.content {
            Content::Fields(fields) if fields.is_empty() => "no fields".into(),
            Content::Fields(fields) => {
                format!("the fields {}", fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
            Content::Cells { header: Some(header), .. } => format!("the columns {}", header.join(", ")),
            Content::Cells { cells, .. } | Content::Sentence(cells) => match cells.len() {
                1 => "one column without a name".into(),
                count => format!("{count} columns without names"),
            },
        }
    }
}

/// Returns the value at a dotted path; a name that itself contains dots takes precedence.
fn descend<'v>(fields: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    descend_value(fields.get(first)?, rest)
}

fn descend_value<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => descend(fields, path),
        Value::Array(items) => match path.split_once('.') {
            Some((first, rest)) => descend_value(items.get(first.parse::<usize>().ok()?)?, rest),
            None => items.get(path.parse::<usize>().ok()?),
        },
        _ => None,
    }
}

impl Origin {
    /// Creates the origin of a record that keeps no columns.
    pub fn new(path: &Arc<Path>, place: Place) -> Self {
        Self { path: path.clone(), place, kept: None }
    }

    /// Returns the values of the columns that [`RecordsConfig::keep`](super::RecordsConfig::keep) names, by name; without
    /// those that are absent or empty.
    pub fn columns(&self) -> BTreeMap<String, String> {
        self.kept.as_deref().cloned().unwrap_or_default()
    }

    pub(crate) fn keep(&mut self, columns: BTreeMap<String, String>) {
        self.kept = (!columns.is_empty()).then(|| Arc::new(columns));
    }

    /// A line, from 1.
    pub(crate) fn line(path: &Arc<Path>, line: u64) -> Self {
        Self::new(path, Place::Line(line))
    }

    /// A row, from 1.
    pub(crate) fn row(path: &Arc<Path>, row: u64) -> Self {
        Self::new(path, Place::Row(row))
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match self.place {
            Place::Line(line) => write!(f, "{path} line {line}"),
            Place::Row(row) => write!(f, "{path} row {row}"),
        }
    }
}
