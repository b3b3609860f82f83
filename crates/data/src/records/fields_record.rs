use serde_json::{Map, Value};

use super::fields::TaskFields;
use super::{Origin, RecordsConfig, RecordsError};

/// A record with fields that the reader names: for kinds of tasks of one's own.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldsRecord {
    /// Its fields by name; of optional ones those that are there.
    pub fields: Map<String, Value>,
    /// Where the record comes from.
    pub origin: Origin,
}

impl FieldsRecord {
    /// Reads records that have all of `required` and may have `optional` fields, wherever `columns` says they are.
    ///
    /// # Errors
    /// Names the file and, where there is one, the line or row: for a file that is missing, not in its format or empty,
    /// and for a field that is missing.
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

    /// A text.
    ///
    /// # Errors
    /// When the field is something else, or not there.
    pub fn text(&self, field: &str) -> Result<&str, RecordsError> {
        self.fields.get(field).and_then(Value::as_str).ok_or_else(|| self.mistyped(field, "text"))
    }

    /// A number, which files without types have as text.
    ///
    /// # Errors
    /// When the field is something else, or not there.
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
