use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as ParquetRow};
use parquet::schema::types::Type;
use serde_json::Value;

use super::lines::{Rows, open, read_error};
use super::row::{Content, Row};
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
    let mut rows =
        guarded(&path, || RowIter::from_file_into(Box::new(SerializedFileReader::new(file)?)).project(projection))?;
    let mut number = 0;
    Ok(Box::new(std::iter::from_fn(move || {
        number += 1;
        let row = guarded(&path, || rows.next().transpose()).transpose()?;
        Some(row.map(|row| Row::new(Origin::row(&path, number), Content::Fields(fields(&row)))))
    })))
}

/// Runs the format's reader. It may panic on damaged files, which becomes an error, too.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, RecordsError> {
    match guarded::guarded(read) {
        Ok(result) => result.map_err(|error| read_error(path, error)),
        Err(_) => Err(read_error(path, "its pages are damaged; make the file anew")),
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
