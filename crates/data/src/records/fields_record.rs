use serde_json::{Map, Value};

use super::fields::TaskFields;
use super::{Origin, RecordsConfig, RecordsError};

/// A record with fields that the caller names, for your own kinds of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldsRecord {
    /// Fields by name; of the optional ones those that are present.
    pub fields: Map<String, Value>,
    /// Origin of the record.
    pub origin: Origin,
}

impl FieldsRecord {
    /// Reads records that have all `required` and may have `optional` fields, in the columns that `columns` maps them
    /// to.
    ///
    /// # Errors
    /// The error names the file and, where there is one, the line or row. It is returned for a file that is missing,
    /// empty or not in its format, and for a field that is missing.
    pub fn read(
        config: &RecordsConfig,
        required: &'static [&'static str],
        optional: &'static [&'static str],
    ) -> Result<Vec<Self>, RecordsError> {
        let task = TaskFields { config, required, optional, aliases: &[], shared: None };
        task.read(|row| {
            let mut fields = Map::new();
            for field in required {
                fields.insert((*field).to_owned(), task.required(row, field)?.clone());
            }
            for field in optional {
                if let Some(value) = task.optional(row, field)? {
                    fields.insert((*field).to_owned(), value.clone());
                }
            }
            Ok(Self { fields, origin: row.origin.clone() })
        })
    }

    /// Returns a text field.
    ///
    /// # Errors
    /// If the field has another type or is missing.
    pub fn text(&self, field: &str) -> Result<&str, RecordsError> {
        self.fields.get(field).and_then(Value::as_str).ok_or_else(|| self.mistyped(field, "text"))
    }

    /// Returns a number, or a text that is a number, for files without types.
    ///
    /// # Errors
    /// If the field has another type or is missing.
    pub fn number(&self, field: &str) -> Result<f64, RecordsError> {
        let number = match self.fields.get(field) {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| self.mistyped(field, "a number"))
    }

    fn mistyped(&self, field: &str, needs: &str) -> RecordsError {
        let found = self.fields.get(field).map_or("nothing".to_owned(), |value| format!("`{value}`"));
        RecordsError::Type { origin: self.origin.clone(), field: field.to_owned(), found, needs: needs.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_name_and_mistakes_are_placed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("prices.csv");
        std::fs::write(&path, "text,price\ntwo,2.5\nfew,some\n").expect("written");
        let config = RecordsConfig { path: path.into(), ..Default::default() };
        let records = FieldsRecord::read(&config, &["text", "price"], &["note"]).expect("records");
        assert_eq!(
            (records[0].text("text").expect("text"), records[0].number("price").expect("a number")),
            ("two", 2.5)
        );
        let error = records[1].number("price").expect_err("no number").to_string();
        assert!(error.contains("prices.csv line 3 has `\"some\"` in price, where the task needs a number"), "{error}");
        let error = FieldsRecord::read(&config, &["text", "cost"], &[]).expect_err("no such column").to_string();
        assert!(error.contains("cost"), "{error}");
    }
}
