use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Number, Value};

use super::row::{Content, Row};
use super::warnings::warn_once;
use super::{Column, Origin, Place, RecordsConfig, RecordsError, Share};

/// Fields of a task, and the configuration that maps them to columns.
pub(crate) struct TaskFields<'c> {
    /// Configuration of the files.
    pub config: &'c RecordsConfig,
    /// Fields that every record has; in files without names they are the columns from 0.
    pub required: &'static [&'static str],
    /// Fields that a record may have.
    pub optional: &'static [&'static str],
    /// Other names of fields, in this order, for a field that is neither mapped nor present under its own name. A task
    /// that has such names accepts CSV files that are separated by pipes.
    pub aliases: Aliases,
    /// Field that several records may share, such as the passage of questions. By default a share of the records
    /// contains all records with the same value of it, or none of them.
    pub shared: Option<&'static str>,
}

/// Fields and their other names.
pub(crate) type Aliases = &'static [(&'static str, &'static [&'static str])];

impl TaskFields<'_> {
    /// Returns the records of the configured part, up to the limit, each made by `record`; at least one. The rows are
    /// numbered from 1.
    pub fn select<T, E: From<RecordsError>>(
        &self,
        rows: impl Iterator<Item = Result<Row, E>>,
        mut record: impl FnMut(&Row) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let config = self.config;
        if let Some(field) = config.columns.keys().find(|field| !self.fields().any(|known| known == field.as_str())) {
            let fields = self.fields().collect::<Vec<_>>().join(", ");
            let reason = format!("`columns` has `{field}`: the task has {fields}");
            return Err(RecordsError::Config { reason }.into());
        }
        let absent = |field: &&&str| config.columns.get(**field) == Some(&Column::Absent);
        if let Some(field) = self.required.iter().find(absent) {
            let reason = format!("`columns` has `{field}: null`, and the task needs it: name its column");
            return Err(RecordsError::Config { reason }.into());
        }
        let mut records = Vec::new();
        let mut seen = 0;
        for row in rows {
            let mut row = row?;
            seen = row.number;
            self.check_repeated(&row)?;
            if self.wants(&row)? {
                let kept = self.kept(&row);
                row.origin.keep(kept);
                records.push(record(&row)?);
                if config.limit == Some(records.len()) {
                    break;
                }
            }
        }
        match (&config.part, records.len()) {
            (_, 0) if seen == 0 => Err(RecordsError::Empty { path: config.path.clone() }.into()),
            (_, 0) if let Some(share) = config.share.clone() => {
                Err(RecordsError::EmptyShare { path: config.path.clone(), records: seen, share }.into())
            }
            (Some(part), 0) => {
                let (path, from, to) = (config.path.clone(), part.from, part.to);
                Err(RecordsError::EmptyPart { path, records: seen, from, to }.into())
            }
            _ => Ok(records),
        }
    }

    /// Returns the values of the columns that are kept. A field is found wherever its column is.
    fn kept(&self, row: &Row) -> BTreeMap<String, String> {
        let value = |name: &String| {
            let text = match row.get(&self.column(row, name))? {
                Value::Null => return None,
                Value::String(text) => text.trim().to_owned(),
                other => other.to_string(),
            };
            (!text.is_empty()).then(|| (name.clone(), text))
        };
        self.config.keep.iter().filter_map(value).collect()
    }

    /// Returns a field that the row must have.
    pub fn required<'r>(&self, row: &'r Row, field: &str) -> Result<&'r Value, RecordsError> {
        row.get(&self.column(row, field)).ok_or_else(|| {
            let needs: Vec<_> = self.required.iter().map(|field| self.label(field)).collect();
            self.missing(row, needs.join(" and "))
        })
    }

    /// Returns a field that the row may have. A mapped field must be present, even if only as null.
    pub fn optional<'r>(&self, row: &'r Row, field: &str) -> Result<Option<&'r Value>, RecordsError> {
        match row.get(&self.column(row, field)) {
            Some(Value::Null) => Ok(None),
            None if self.config.columns.get(field).is_some_and(|column| *column != Column::Absent) => {
                Err(self.missing(row, self.label(field)))
            }
            value => Ok(value),
        }
    }

    /// Returns a required text; a list of texts is joined by spaces.
    pub fn text(&self, row: &Row, field: &str) -> Result<String, RecordsError> {
        let value = self.required(row, field)?;
        text(value).ok_or_else(|| self.mistyped(row, field, value, "text"))
    }

    /// Returns an optional text; a list of texts is joined by spaces.
    pub fn optional_text(&self, row: &Row, field: &str) -> Result<Option<String>, RecordsError> {
        let Some(value) = self.optional(row, field)? else { return Ok(None) };
        let needs = || format!("text (`columns: {{{field}: null}}` leaves the field out)");
        text(value).map(Some).ok_or_else(|| self.mistyped(row, field, value, &needs()))
    }

    /// Returns the error for a field of the wrong type.
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

    /// Returns every name that a header row could contain.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mapped = self.config.columns.values().chain(self.config.groups());
        let aliases = self.aliases.iter().flat_map(|(_, names)| names.iter().copied());
        self.fields().chain(aliases).chain(mapped.filter_map(|column| match column {
            Column::Name(name) => Some(name.as_str()),
            Column::Number(_) | Column::Absent => None,
        }))
    }

    /// Returns whether a row's cells are names of columns rather than values.
    pub fn is_header<S: AsRef<str>>(&self, cells: &[S]) -> bool {
        self.config.header.unwrap_or_else(|| self.has_names(cells))
    }

    /// Returns whether one of the names is among a row's cells, in upper or lower case.
    pub fn has_names<S: AsRef<str>>(&self, cells: &[S]) -> bool {
        self.names().any(|name| cells.iter().any(|cell| cell.as_ref().eq_ignore_ascii_case(name)))
    }

    /// Checks the first row of a table that is taken for a record, because none of its cells names a field: the fields are then in the first
    /// columns. More columns than fields are refused, and names that the task does not know are warned of.
    pub fn check_first<S: AsRef<str>>(&self, path: &Arc<Path>, cells: &[S]) -> Result<(), RecordsError> {
        let by_place = self.required.iter().filter(|field| !self.config.columns.contains_key(**field)).count();
        let by_number = self.config.columns.values().any(|column| matches!(column, Column::Number(_)));
        if self.config.header.is_some() || by_place == 0 || by_number {
            return Ok(());
        }
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        let row = format!("`{}`", cells.join("`, `"));
        if cells.len() > self.required.len() {
            let reason = format!(
                "has {} columns, and none of them is called {}: if the first row ({}) has names, map the fields under `columns`; if it is \
                 a record, give `header: false`",
                cells.len(),
                self.required.join(" or "),
                shortened(&row)
            );
            return Err(RecordsError::Malformed { origin: Origin::line(path, 1), reason });
        }
        if cells.iter().all(|cell| is_name(cell)) {
            tracing::warn!(
                "{}: the first row ({}) is read as a record; if it has names, map {} under `columns`, and if not, `header: false` says so",
                path.display(),
                shortened(&row),
                self.required.join(" and ")
            );
        }
        Ok(())
    }

    /// Refuses a header that contains a used column twice, because it is ambiguous.
    pub fn check_header(&self, path: &Arc<Path>, header: Option<&Arc<[String]>>) -> Result<(), RecordsError> {
        let Some(header) = header else { return Ok(()) };
        let origin = Origin::line(path, 1);
        let row = Row::new(origin.clone(), Content::Cells { header: Some(header.clone()), cells: Vec::new() });
        for (name, key) in self.used(&row) {
            // Upper and lower case are equal where the exact name is not in the header.
            let exact = self.aliases.is_empty() && self.fields().any(|field| field == name);
            let given = self.config.columns.values().any(|column| *column == name.as_str().into());
            let alike = !(exact || given && header.contains(&name));
            let same = |cell: &String| *cell == name || alike && cell.eq_ignore_ascii_case(&name);
            let places: Vec<_> = (0..header.len()).filter(|at| same(&header[*at])).map(|at| at.to_string()).collect();
            if let [first, _, ..] = places.as_slice() {
                let reason = format!(
                    "has several columns called `{name}`, {} (from 0); rename all but one, or say which by its number, as `{key}: {first}}}`",
                    places.join(" and ")
                );
                return Err(RecordsError::Malformed { origin, reason });
            }
        }
        Ok(())
    }

    /// Refuses an object that contains a used name twice: otherwise the last of the two values would be taken silently.
    fn check_repeated(&self, row: &Row) -> Result<(), RecordsError> {
        if row.repeated.is_empty() {
            return Ok(());
        }
        let within = |path: &str, outer: &str| {
            path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let used: Vec<String> = self.used(row).map(|(name, _)| name).collect();
        let is_used = |repeated: &&String| {
            let (repeated, lower) = (repeated.as_str(), str::to_lowercase);
            let within = |a: &str, b: &str| within(&lower(a), &lower(b));
            used.iter().any(|name| within(name, repeated) || within(repeated, name))
        };
        match row.repeated.iter().find(is_used) {
            Some(name) => {
                let reason = format!("has `{name}` twice; keep one of them");
                Err(RecordsError::Malformed { origin: row.origin.clone(), reason })
            }
            None => Ok(()),
        }
    }

    /// Returns the names of the row's columns that are used, each with the beginning of a configuration that selects
    /// the column.
    fn used(&self, row: &Row) -> impl Iterator<Item = (String, String)> {
        let fields = self.fields().map(|field| (self.column(row, field), format!("columns: {{{field}")));
        let by = self.config.groups().cloned();
        let named = |(column, key)| match column {
            Column::Name(name) => Some((name, key)),
            Column::Number(_) | Column::Absent => None,
        };
        fields.chain(by.map(|by| (by, "part: {by".into()))).filter_map(named)
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.required.iter().chain(self.optional).copied()
    }

    fn wants(&self, row: &Row) -> Result<bool, RecordsError> {
        let (part, share, number) = (&self.config.part, &self.config.share, Value::from(row.number));
        let group = |by: &Column| row.get(by).ok_or_else(|| self.missing(row, format!("{by}, by which it is cut")));
        let by_part = part.as_ref().and_then(|part| part.by.as_ref()).map(group).transpose()?;
        let by_share = share.as_ref().and_then(|share| share.by.as_ref()).map(group).transpose()?;
        let in_part = part.as_ref().is_none_or(|part| part.has(by_part.unwrap_or(&number)));
        let shared = || self.shared.and_then(|field| row.get(&self.column(row, field)));
        let in_share = |share: &Share| match (by_share.or(by_part), &row.recording) {
            (Some(group), _) => share.has(group),
            (None, Some(recording)) => share.has(&recording.as_str().into()),
            (None, None) => share.has(shared().unwrap_or(&number)),
        };
        Ok(in_part && share.as_ref().is_none_or(in_share))
    }

    /// Returns the column of a row that holds a field.
    pub fn column(&self, row: &Row, field: &str) -> Column {
        if let Some(column) = self.config.columns.get(field) {
            return column.clone();
        }
        let place = self.required.iter().position(|required| *required == field);
        match (&row.content, place) {
            (Content::Sentence(columns), Some(1)) => Column::Number(columns.len() - 1),
            (Content::Sentence(_) | Content::Cells { header: None, .. }, Some(place)) => Column::Number(place),
            _ => self.spellings(field).find_map(|name| row.key(name)).unwrap_or(field).into(),
        }
    }

    /// Returns a field's own name, then its other names.
    pub fn spellings<'f>(&self, field: &'f str) -> impl Iterator<Item = &'f str> + use<'f> {
        let aliases = self.aliases;
        let others = aliases.iter().filter(move |(of, _)| *of == field).flat_map(|(_, names)| names.iter().copied());
        std::iter::once(field).chain(others)
    }

    /// Returns a field for an error message, with its column if that has another name.
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

/// Returns whether a cell looks like the name of a column: one word of letters and digits.
fn is_name(cell: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    cell.starts_with(char::is_alphabetic) && cell.chars().all(is_part)
}

/// Returns the beginning of a row for a message.
fn shortened(row: &str) -> String {
    match row.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &row[..end]),
        None => row.to_owned(),
    }
}

/// Returns a text, or several joined by spaces.
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

/// Returns the index of a label or tag in a set. It is given by name or, if no name is a number itself, by its index.
/// If a name is a number, an index and a name cannot be told apart. A number in a column whose classes have names in the
/// file (`classes`) is that name, if the set has some of these names, in whatever order. Names that differ in upper and lower case alone
/// are the same, unless the set has both.
pub(super) fn index_of(
    set: &[String],
    classes: Option<&[String]>,
    value: &Value,
    kind: &'static str,
    origin: impl Fn() -> Origin,
) -> Result<Option<usize>, RecordsError> {
    let classes = match classes.map(|names| (names, names.iter().any(|name| place_of(set, name).is_some()))) {
        Some((names, true)) => Some(names),
        Some((names, false)) if value.is_number() => {
            warn_of_places(names, set, kind);
            None
        }
        _ => None,
    };
    let name = match value {
        Value::String(name) => name.trim().to_owned(),
        Value::Number(number) => class_name(classes, number).map_or_else(|| number.to_string(), str::to_owned),
        Value::Bool(truth) => truth.to_string(),
        _ => return Ok(None),
    };
    // A column of whole numbers with a gap is one of floats for pandas, which writes 1 as 1.0.
    let named = |name: &str| place_of(set, name);
    let whole = name.strip_suffix(".0").filter(|whole| named(&name).is_none() && whole.parse::<i64>().is_ok());
    let given = name.clone();
    let name = whole.map_or(name.clone(), str::to_owned);
    let numbers = set.iter().any(|known| is_number(known));
    let place = || match value {
        Value::Bool(truth) => Some(usize::from(*truth)),
        _ => name.parse().ok(),
    };
    let index = match value {
        _ if let Some(index) = named(&name) => Some(index),
        // As numbers, true and false correspond to the names 1 and 0.
        Value::Bool(truth) if numbers => named("0").zip(named("1")).map(|(no, yes)| if *truth { yes } else { no }),
        _ if numbers => None,
        _ => place().filter(|place| *place < set.len()),
    };
    index.map(Some).ok_or_else(|| RecordsError::Label {
        origin: origin(),
        kind,
        label: given,
        set: set.join(", "),
        hint: if numbers { NAMES_ALONE } else { NAMES_OR_PLACES },
    })
}

/// Returns the place of a name in a set.
fn place_of(set: &[String], name: &str) -> Option<usize> {
    let exact = set.iter().position(|known| known == name);
    exact.or_else(|| {
        let mut same = set.iter().enumerate().filter(|(_, known)| known.eq_ignore_ascii_case(name));
        same.next().map(|(place, _)| place).filter(|_| same.next().is_none())
    })
}

/// Warns of numbers that are places in a set although the file has names for them, none of which the set has.
fn warn_of_places(names: &[String], set: &[String], kind: &str) {
    if names.iter().enumerate().all(|(place, name)| *name == place.to_string()) {
        return;
    }
    let renamed: Vec<String> = names.iter().zip(set).map(|(name, own)| format!("`{name}` becomes `{own}`")).collect();
    warn_once(format!(
        "the file has names for its numbers of {kind}s, none of which the configuration has, so that they are places in its list: {}. If \
         that is wrong, give the names of the file",
        renamed.join(", ")
    ));
}

/// Returns the name of a class by its number.
pub(super) fn class_name<'n>(classes: Option<&'n [String]>, number: &Number) -> Option<&'n str> {
    Some(classes?.get(usize::try_from(number.as_u64()?).ok()?)?)
}

/// Accepted forms of labels from a set.
const NAMES_OR_PLACES: &str = "(or their numbers from 0)";
const NAMES_ALONE: &str =
    "(some of these are numbers, so a number is a name here and no place in the list: name them as the data does)";

/// Returns whether a name is a number; `nan` and `inf` are words.
fn is_number(name: &str) -> bool {
    name.trim().parse().is_ok_and(f64::is_finite)
}

/// Returns the origin of a record's item at `index`, for records with one line per item.
pub(super) fn item_origin(row: &Row, index: usize) -> Origin {
    match (&row.content, row.origin.place) {
        (Content::Sentence(_), Place::Line(line)) => {
            Origin { place: Place::Line(line + index as u64), ..row.origin.clone() }
        }
        _ => row.origin.clone(),
    }
}

/// Checks a label set before any file is read.
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
