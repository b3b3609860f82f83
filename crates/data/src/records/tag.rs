use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{TaskFields, check_set, class_name, index_of, item_origin};
use super::row::Row;
use super::{Origin, RecordsConfig, RecordsError};

/// Tag of words outside of all entities.
pub const OUTSIDE: &str = "O";

/// A sentence and a tag for each of its words.
#[derive(Clone, Debug, PartialEq)]
pub struct TagRecord {
    /// The words.
    pub words: Vec<String>,
    /// Tags of the words, as indices into the task's tags; as many as words.
    pub tags: Vec<usize>,
    /// Origin of the record: its first line, if it has several.
    pub origin: Origin,
}

impl TagRecord {
    /// Reads sentences whose tags are names from `tags` or indices into them; numbers in a Parquet file that names its
    /// classes are those names. Words and tags are lists, or texts that
    /// are separated by white space.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row. It is returned for a file that is missing,
    /// empty or not in its format, a field that is missing or of another type, unequal numbers of words and tags, and a
    /// tag that is not in `tags`.
    pub fn read(config: &RecordsConfig, tags: &[String]) -> Result<Vec<Self>, RecordsError> {
        check_set("tag", tags)?;
        let task = task(config);
        task.read(|row| {
            let (words, values) = sentence(&task, row)?;
            let classes = row.class_names(&task.column(row, "tags"));
            let tag = |(at, value): (usize, &Value)| {
                index_of(tags, classes, value, "tag", || item_origin(row, at))?
                    .ok_or_else(|| task.mistyped(row, "tags", value, "a tag's name or number for each word"))
            };
            let tags = values.iter().enumerate().map(tag).collect::<Result<_, _>>()?;
            Ok(Self { words, tags, origin: row.origin.clone() })
        })
    }
}

/// Returns the tag set of a file in BIO notation, in an order that depends on the occurring types alone: `O`, then `B-`
/// and `I-` of each type in alphabetical order, even if no word continues a type.
///
/// Collect it from training data and use it for all splits; a tag that only test data contain is then an error.
///
/// # Errors
/// Errors of reading, and an error for a tag that is neither `O` nor begins with `B-` or `I-`.
pub fn tag_set(config: &RecordsConfig) -> Result<Vec<String>, RecordsError> {
    let task = task(config);
    let types = task.read(|row| {
        let (_, values) = sentence(&task, row)?;
        let mut types = BTreeSet::new();
        let classes = row.class_names(&task.column(row, "tags"));
        for (at, value) in values.iter().enumerate() {
            let named = value.as_number().and_then(|number| class_name(classes, number)).or(value.as_str());
            let tag = named.unwrap_or_default().trim();
            match tag.strip_prefix("B-").or_else(|| tag.strip_prefix("I-")) {
                Some(kind) if !kind.is_empty() => drop(types.insert(kind.to_owned())),
                _ if tag == OUTSIDE => {}
                _ => {
                    let reason =
                        format!("has the tag {value}, which is not in BIO notation; give the task's tags by name");
                    return Err(RecordsError::Malformed { origin: item_origin(row, at), reason });
                }
            }
        }
        Ok(types)
    })?;
    let types: BTreeSet<_> = types.into_iter().flatten().collect();
    let tags = types.iter().flat_map(|kind| [format!("B-{kind}"), format!("I-{kind}")]);
    Ok(std::iter::once(OUTSIDE.to_owned()).chain(tags).collect())
}

fn task(config: &RecordsConfig) -> TaskFields<'_> {
    TaskFields { config, required: &["words", "tags"], optional: &[], aliases: &[], shared: Some("words") }
}

/// Returns the words and as many tags, as in the file.
fn sentence(task: &TaskFields, row: &Row) -> Result<(Vec<String>, Vec<Value>), RecordsError> {
    let list = |field| -> Result<Vec<Value>, RecordsError> {
        match task.required(row, field)? {
            Value::Array(items) => Ok(items.clone()),
            Value::String(text) => Ok(text.split_whitespace().map(Value::from).collect()),
            other => Err(task.mistyped(row, field, other, "a list")),
        }
    };
    let (words, tags) = (list("words")?, list("tags")?);
    if words.len() != tags.len() {
        let reason = format!("has {} words and {} tags; give each word one tag", words.len(), tags.len());
        return Err(RecordsError::Malformed { origin: row.origin.clone(), reason });
    }
    let word = |word: &Value| {
        word.as_str().map(str::to_owned).ok_or_else(|| task.mistyped(row, "words", word, "a list of texts"))
    };
    Ok((words.iter().map(word).collect::<Result<_, _>>()?, tags))
}
