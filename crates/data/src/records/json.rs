//! JSON parsing that detects names that occur twice in an object: other parsers silently take the last one.

use std::fmt::{Formatter, Result as FmtResult};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value, and the names that its objects contain twice: dotted paths, with numbers for list items.
pub(crate) struct Noted {
    pub value: Value,
    pub repeated: Vec<String>,
}

/// Parses a text that is one value.
pub(crate) fn parse(text: &str) -> Result<Noted, serde_json::Error> {
    serde_json::from_str(text)
}

impl<'de> Deserialize<'de> for Noted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut repeated = Vec::new();
        let value = Reader(&mut repeated).deserialize(deserializer)?;
        Ok(Self { value, repeated })
    }
}

/// Reads a value and records the repeated names in it.
struct Reader<'a>(&'a mut Vec<String>);

impl Reader<'_> {
    /// Reads a part of the value that is called `name` there.
    fn within<T, E>(&mut self, name: impl ToString, read: impl FnOnce(Reader) -> Result<T, E>) -> Result<T, E> {
        let before = self.0.len();
        let read = read(Reader(self.0))?;
        if before < self.0.len() {
            let name = name.to_string();
            self.0[before..].iter_mut().for_each(|path| *path = format!("{name}.{path}"));
        }
        Ok(read)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> FmtResult {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = self.within(items.len(), |reader| list.next_element_seed(reader))? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            let value = self.within(&name, |reader| object.next_value_seed(reader))?;
            if fields.insert(name.clone(), value).is_some() {
                self.0.push(name);
            }
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_names_are_noted_where_they_are() {
        let text =
            r#"{"a": 1, "b": [{"c": 1}, {"c": 1, "c": {"d": 2, "d": 3}}], "a": "é\n", "e": [1.5, -2, null, true]}"#;
        let found = parse(text).unwrap();
        assert_eq!(found.value, serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(found.repeated, ["b.1.c.d", "b.1.c", "a"]);
    }

    proptest! {
        #[test]
        fn values_and_errors_are_those_of_other_readers(text in r#"[\[\]{}:,"ab0-9.eE+\- \\untrlfs]{0,30}"#) {
            let (found, expected) = (parse(&text), serde_json::from_str::<Value>(&text));
            match (found, expected) {
                (Ok(found), Ok(expected)) => prop_assert_eq!(found.value, expected),
                (found, expected) => {
                    let said = |error: serde_json::Error| error.to_string();
                    prop_assert_eq!(found.map(|found| found.value).map_err(said), expected.map_err(said));
                }
            }
        }
    }
}
