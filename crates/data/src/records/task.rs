use serde_json::Value;

use super::row::{Content, Row};
use super::{Column, Origin, Place, RecordsConfig, RecordsError, files};

/// The fields of a task, and where a configuration says they are.
pub(crate) struct Task<'c> {
    /// What is read.
    pub config: &'c RecordsConfig,
    /// Fields that every record has; in files without names they are the columns from 0.
    pub required: &'static [&'static str],
    /// Fields that a record may have.
    pub optional: &'static [&'static str],
    /// Other names of fields, in this order, where a field is neither mapped nor there under its own name. A task that
    /// has some takes names in upper and lower case alike, and CSV files that are separated by pipes.
    pub aliases: Aliases,
}

/// Fields and what else they may be called.
pub(crate) type Aliases = &'static [(&'static str, &'static [&'static str])];

impl Task<'_> {
    /// The records of the configured part, up to the limit, each made by `record`; at least one.
    pub fn read<T>(&self, record: impl FnMut(&Row) -> Result<T, RecordsError>) -> Result<Vec<T>, RecordsError> {
        self.config.validate()?;
        self.select(files::rows(self)?, record)
    }

    /// As [`Task::read`], of the rows that are given, numbered from 1.
    pub fn select<T, E: From<RecordsError>>(
        &self,
        rows: impl Iterator<Item = Result<Row, RecordsError>>,
        mut record: impl FnMut(&Row) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let config = self.config;
        if let Some(field) = config.columns.keys().find(|field| !self.fields().any(|known| known == field.as_str())) {
            let fields = self.fields().collect::<Vec<_>>().join(", ");
            let reason = format!("`columns` has `{field}`: the task has {fields}");
            return Err(RecordsError::Config { reason }.into());
        }
        let mut records = Vec::new();
        let mut seen = 0;
        for row in rows {
            let row = row?;
            seen = row.number;
            if self.wants(&row)? {
                records.push(record(&row)?);
                if config.limit == Some(records.len()) {
                    break;
                }
            }
        }
        match (&config.part, records.len()) {
            (_, 0) if seen == 0 => Err(RecordsError::Empty { path: config.path.clone() }.into()),
            (Some(part), 0) => {
                let (path, from, to) = (config.path.clone(), part.from, part.to);
                Err(RecordsError::EmptyPart { path, records: seen, from, to }.into())
            }
            _ => Ok(records),
        }
    }

    /// A field that the row must have.
    pub fn required<'r>(&self, row: &'r Row, field: &str) -> Result<&'r Value, RecordsError> {
        row.get(&self.column(row, field)).ok_or_else(|| {
            let needs: Vec<_> = self.required.iter().map(|field| self.label(field)).collect();
            self.missing(row, needs.join(" and "))
        })
    }

    /// A field that it may have; a mapped one must be there, if only as null.
    pub fn optional<'r>(&self, row: &'r Row, field: &str) -> Result<Option<&'r Value>, RecordsError> {
        match row.get(&self.column(row, field)) {
            Some(Value::Null) => Ok(None),
            None if self.config.columns.contains_key(field) => Err(self.missing(row, self.label(field))),
            value => Ok(value),
        }
    }

    /// A required text; a list of texts is joined by spaces.
    pub fn text(&self, row: &Row, field: &str) -> Result<String, RecordsError> {
        let value = self.required(row, field)?;
        text(value).ok_or_else(|| self.mistyped(row, field, value, "text"))
    }

    /// An optional text; a list of texts is joined by spaces.
    pub fn optional_text(&self, row: &Row, field: &str) -> Result<Option<String>, RecordsError> {
        let Some(value) = self.optional(row, field)? else { return Ok(None) };
        text(value).map(Some).ok_or_else(|| self.mistyped(row, field, value, "text"))
    }

    /// The error for a field of another type.
    pub fn mistyped(&self, row: &Row, field: &str, value: &Value, needs: &str) -> RecordsError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        let (origin, field) = (row.origin.clone(), self.label(field));
        RecordsError::Type { origin, field, found: found.into(), needs: needs.into() }
    }

    /// Every name that a header row could hold.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mapped = self.config.columns.values().chain(self.config.part.iter().filter_map(|part| part.by.as_ref()));
        let aliases = self.aliases.iter().flat_map(|(_, names)| names.iter().copied());
        self.fields().chain(aliases).chain(mapped.filter_map(|column| match column {
            Column::Name(name) => Some(name.as_str()),
            Column::Number(_) => None,
        }))
    }

    /// Whether a row's cells are names of columns rather than values.
    pub fn is_header<S: AsRef<str>>(&self, cells: &[S]) -> bool {
        let same = |cell: &str, name: &str| match self.aliases {
            [] => cell == name,
            _ => cell.eq_ignore_ascii_case(name),
        };
        let known = || self.names().any(|name| cells.iter().any(|cell| same(cell.as_ref(), name)));
        self.config.header.unwrap_or_else(known)
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.required.iter().chain(self.optional).copied()
    }

    fn wants(&self, row: &Row) -> Result<bool, RecordsError> {
        let Some(part) = &self.config.part else { return Ok(true) };
        match &part.by {
            None => Ok(part.has(&row.number.into())),
            Some(by) => {
                Ok(part.has(row.get(by).ok_or_else(|| self.missing(row, format!("{by}, by which it is cut")))?))
            }
        }
    }

    /// Where a row has a field.
    pub fn column(&self, row: &Row, field: &str) -> Column {
        if let Some(column) = self.config.columns.get(field) {
            return column.clone();
        }
        let place = self.required.iter().position(|required| *required == field);
        match (&row.content, place) {
            (Content::Sentence(columns), Some(1)) => Column::Number(columns.len() - 1),
            (Content::Sentence(_) | Content::Cells { header: None, .. }, Some(place)) => Column::Number(place),
            _ if self.aliases.is_empty() => field.into(),
            _ => self.spellings(field).find_map(|name| row.key(name)).unwrap_or(field).into(),
        }
    }

    /// A field's own name, then its others.
    pub fn spellings<'f>(&self, field: &'f str) -> impl Iterator<Item = &'f str> + use<'f> {
        let aliases = self.aliases;
        let others = aliases.iter().filter(move |(of, _)| *of == field).flat_map(|(_, names)| names.iter().copied());
        std::iter::once(field).chain(others)
    }

    /// A field for an error message, with its column if that is called otherwise.
    fn label(&self, field: &str) -> String {
        match self.config.columns.get(field) {
            Some(column) if *column != Column::from(field) => format!("{field} (as `{column}`)"),
            Some(_) => field.into(),
            None => match self.aliases.iter().find(|(of, _)| *of == field) {
                Some((_, names)) => format!("{field} (or {})", names.join(", ")),
                None => field.into(),
            },
        }
    }

    fn missing(&self, row: &Row, needs: String) -> RecordsError {
        RecordsError::Fields { origin: row.origin.clone(), found: row.describe(), needs }
    }
}

/// A text, or several joined by spaces.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let parts: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            Some(parts?.join(" "))
        }
        _ => None,
    }
}

/// The number of a label or tag in a set, given by name or by number. Names come first, for they may be numbers
/// themselves.
pub(super) fn index_of(
    set: &[String],
    value: &Value,
    kind: &'static str,
    origin: impl Fn() -> Origin,
) -> Result<Option<usize>, RecordsError> {
    let name = match value {
        Value::String(name) => name.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => return Ok(None),
    };
    let by_number = || match value {
        Value::Bool(truth) => Some(usize::from(*truth)),
        _ => name.parse().ok(),
    };
    let index = set.iter().position(|known| *known == name).or_else(by_number).filter(|index| *index < set.len());
    index.map(Some).ok_or_else(|| RecordsError::Label {
        origin: origin(),
        kind,
        label: name.clone(),
        set: set.join(", "),
    })
}

/// Where the `index`th line of a record is, for records that have a line an item.
pub(super) fn item_origin(row: &Row, index: usize) -> Origin {
    match (&row.content, row.origin.place) {
        (Content::Sentence(_), Place::Line(line)) => {
            Origin { place: Place::Line(line + index as u64), ..row.origin.clone() }
        }
        _ => row.origin.clone(),
    }
}

/// Checks a label set before anything is read.
pub(super) fn check_set(kind: &str, set: &[String]) -> Result<(), RecordsError> {
    let fail = |reason: String| Err(RecordsError::Config { reason });
    if set.is_empty() {
        return fail(format!("the task has no {kind}s: give their names"));
    }
    match set.iter().enumerate().find(|(at, name)| set[..*at].contains(name)) {
        Some((_, name)) => fail(format!("the {kind} `{name}` is given twice: name each once")),
        None => Ok(()),
    }
}
