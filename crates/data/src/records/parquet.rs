use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::FileMetaData;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as ParquetRow};
use parquet::schema::types::Type;
use serde_json::Value;

use super::lines::{Rows, open, read_error};
use super::row::{ClassNames, Content, Row};
use super::{Origin, RecordsError};
use crate::guarded;

/// Returns the rows of a Parquet file, with all columns or those in a projection of its schema.
pub(crate) fn rows(path: Arc<Path>, projection: Option<Type>) -> Result<Rows, RecordsError> {
    let file = open(&path)?;
    rows_in(path, file, projection)
}

/// Returns the rows of Parquet data in any readable source; errors name `path`.
pub(crate) fn rows_in(
    path: Arc<Path>,
    file: impl ChunkReader + 'static,
    projection: Option<Type>,
) -> Result<Rows, RecordsError> {
    let (classes, mut rows) = guarded(&path, || {
        let reader = SerializedFileReader::new(file)?;
        let classes = class_names(reader.metadata().file_metadata());
        Ok((classes, RowIter::from_file_into(Box::new(reader)).project(projection)?))
    })?;
    let classes = (!classes.is_empty()).then(|| Arc::new(classes));
    let mut number = 0;
    Ok(Box::new(std::iter::from_fn(move || {
        number += 1;
        let row = guarded(&path, || rows.next().transpose()).transpose()?;
        let classes = classes.clone();
        Some(row.map(|row| Row { classes, ..Row::new(Origin::row(&path, number), Content::Fields(fields(&row))) }))
    })))
}

/// Returns the names of the classes that columns have numbers of. The `datasets` library writes its features beside the
/// schema: `{"label": {"names": [..], "_type": "ClassLabel"}, "tags": {"feature": {"names": ..}, "_type": "Sequence"}}`.
fn class_names(metadata: &FileMetaData) -> ClassNames {
    let entry = metadata.key_value_metadata().into_iter().flatten().find(|entry| entry.key == "huggingface");
    let features = entry.and_then(|entry| serde_json::from_str::<Value>(entry.value.as_ref()?).ok());
    let features = features.as_ref().and_then(|written| written.pointer("/info/features")?.as_object());
    let names = |feature: &Value| -> Option<Vec<String>> {
        // A list is also written as the feature of its items in brackets.
        let item = feature.get("feature").or_else(|| feature.get(0)).unwrap_or(feature);
        let is_class = item.get("_type").and_then(Value::as_str) == Some("ClassLabel");
        let names = item.get("names").filter(|_| is_class)?.as_array()?;
        names.iter().map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let features = features.into_iter().flatten();
    features.filter_map(|(column, feature)| Some((column.clone(), names(feature)?))).collect()
}

/// Runs the format's reader. It may panic on damaged files, which becomes an error, too.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, RecordsError> {
    match guarded::guarded(read) {
        Ok(result) => result.map_err(|error| read_error(path, explained(&error))),
        Err(_) => Err(read_error(path, "its pages are damaged; make the file anew")),
    }
}

/// Returns the reason of an error, with the way out where the format's reader lacks a compression.
fn explained(error: &ParquetError) -> String {
    let text = error.to_string();
    match text.rsplit_once("Disabled feature at compile time: ") {
        Some((_, compression)) => {
            format!(
                "it is compressed by {compression}, which is not read: write it with Snappy, Zstandard, LZ4 or gzip"
            )
        }
        None => text,
    }
}

fn fields(row: &ParquetRow) -> serde_json::Map<String, Value> {
    row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
}

/// Converts a field to JSON; types that JSON does not have become text.
fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(truth) => Value::from(*truth),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float(number) => Value::from(*number),
        Field::Double(number) => Value::from(*number),
        Field::Str(text) => Value::from(text.as_str()),
        // Old writers do not mark their strings as text.
        Field::Bytes(bytes) => match bytes.as_utf8() {
            Ok(text) => Value::from(text),
            Err(_) => Value::Null,
        },
        Field::Group(row) => Value::Object(fields(row)),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        other => Value::from(other.to_string()),
    }
}
