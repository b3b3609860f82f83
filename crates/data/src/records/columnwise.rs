//! Tables that are written column by column in JSON.

use serde_json::{Map, Value};

/// Returns a record for each row of `{"text": {"0": …, "1": …}, "label": {"0": …, "1": …}}`, which pandas' `to_json()` writes, or of
/// `{"text": [… , …], "label": [… , …]}`. `None` if the fields are not columns of one length. `of_lists` says that the fields of a
/// record are lists themselves, as in `tag`: then columns are lists of lists.
pub(super) fn records(fields: &Map<String, Value>, of_lists: bool) -> Option<Vec<Value>> {
    let cells = |column: &Value| match column {
        // Numbers of rows: other names are those of fields, such as languages.
        Value::Object(cells) if cells.keys().all(|row| row.parse::<u64>().is_ok()) => {
            Some(cells.keys().cloned().zip(cells.values().cloned()).collect::<Vec<_>>())
        }
        Value::Array(cells) if fields.len() > 1 && (!of_lists || cells.iter().any(Value::is_array)) => {
            Some(cells.iter().enumerate().map(|(row, cell)| (row.to_string(), cell.clone())).collect())
        }
        _ => None,
    };
    let columns: Vec<(&String, Vec<(String, Value)>)> =
        fields.iter().map(|(name, column)| Some((name, cells(column)?))).collect::<Option<_>>()?;
    let index = |cells: &[(String, Value)]| cells.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>();
    let rows = index(&columns.first()?.1);
    if rows.is_empty() || columns.iter().any(|(_, cells)| index(cells) != rows) {
        return None;
    }
    let record = |row: usize| columns.iter().map(|(name, cells)| ((*name).clone(), cells[row].1.clone())).collect();
    Some((0..rows.len()).map(|row| Value::Object(record(row))).collect())
}
