//! Deserialised values whose target type is not yet known.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use std::fmt::{Display, Formatter};

/// A value of any self-describing format, with numbers kept exactly.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Nothing,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Content>),
    Map(Vec<(String, Content)>),
}

/// Type mismatch of a value, in serde's terms, so that any format can report it as its own error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ContentError {
    UnknownVariant(String, &'static [&'static str]),
    UnknownField(String, &'static [&'static str]),
    MissingField(&'static str),
    DuplicateField(&'static str),
    InvalidType(Found, String),
    InvalidValue(Found, String),
    InvalidLength(usize, String),
    Other(String),
}

/// Value that was found instead.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Nothing,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List,
    Map,
    Other(String),
}

impl Content {
    /// Removes the text under `key` from a map and returns it with the rest of the map.
    pub fn tagged(self, key: &'static str) -> Result<(String, Self), ContentError> {
        let Self::Map(mut entries) = self else {
            let expected = format!("a map with a `{key}`");
            return Err(ContentError::InvalidType(self.found(), expected));
        };
        let at = entries.iter().position(|(name, _)| name == key).ok_or(ContentError::MissingField(key))?;
        match entries.remove(at).1 {
            _ if entries.iter().any(|(name, _)| name == key) => Err(ContentError::DuplicateField(key)),
            Self::Text(name) => Ok((name, Self::Map(entries))),
            other => Err(ContentError::InvalidType(other.found(), "a string".into())),
        }
    }

    fn found(&self) -> Found {
        match self {
            Self::Nothing => Found::Nothing,
            Self::Bool(x) => Found::Bool(*x),
            Self::Unsigned(x) => Found::Unsigned(*x),
            Self::Signed(x) => Found::Signed(*x),
            Self::Float(x) => Found::Float(*x),
            Self::Text(x) => Found::Text(x.clone()),
            Self::List(_) => Found::List,
            Self::Map(_) => Found::Map,
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Content;

            fn expecting(&self, f: &mut Formatter) -> std::fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, x: bool) -> Result<Content, E> {
                Ok(Content::Bool(x))
            }

            fn visit_u64<E>(self, x: u64) -> Result<Content, E> {
                Ok(Content::Unsigned(x))
            }

            fn visit_i64<E>(self, x: i64) -> Result<Content, E> {
                Ok(Content::Signed(x))
            }

            fn visit_f64<E>(self, x: f64) -> Result<Content, E> {
                Ok(Content::Float(x))
            }

            fn visit_str<E>(self, x: &str) -> Result<Content, E> {
                Ok(Content::Text(x.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Nothing)
            }

            fn visit_none<E>(self) -> Result<Content, E> {
                Ok(Content::Nothing)
            }

            fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Content, D::Error> {
                Content::deserialize(value)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Content, D::Error> {
                Content::deserialize(value)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Content::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Content::Map(map))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl<'de> IntoDeserializer<'de, ContentError> for Content {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Content {
    type Error = ContentError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ContentError> {
        match self {
            Self::Nothing => visitor.visit_unit(),
            Self::Bool(x) => visitor.visit_bool(x),
            Self::Unsigned(x) => visitor.visit_u64(x),
            Self::Signed(x) => visitor.visit_i64(x),
            Self::Float(x) => visitor.visit_f64(x),
            Self::Text(x) => visitor.visit_string(x),
            Self::List(items) => {
                let mut items = SeqDeserializer::new(items.into_iter());
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Self::Map(entries) => {
                let mut entries = MapDeserializer::new(entries.into_iter());
                let value = visitor.visit_map(&mut entries)?;
                entries.end()?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ContentError> {
        match self {
            Self::Nothing => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ContentError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ContentError> {
        match self {
            Self::Text(variant) => visitor.visit_enum(variant.into_deserializer()),
            Self::Map(entries) => visitor
                .visit_enum(serde::de::value::MapAccessDeserializer::new(MapDeserializer::new(entries.into_iter()))),
            other => {
                let expected = format!("one of {} of {name}", variants.join(", "));
                Err(ContentError::InvalidType(other.found(), expected))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl ContentError {
    /// Converts the error to another format's.
    pub fn of<E: Error>(self) -> E {
        match self {
            Self::UnknownVariant(found, known) => E::unknown_variant(&found, known),
            Self::UnknownField(found, known) => E::unknown_field(&found, known),
            Self::MissingField(field) => E::missing_field(field),
            Self::DuplicateField(field) => E::duplicate_field(field),
            Self::InvalidType(found, expected) => E::invalid_type(found.unexpected(), &expected.as_str()),
            Self::InvalidValue(found, expected) => E::invalid_value(found.unexpected(), &expected.as_str()),
            Self::InvalidLength(length, expected) => E::invalid_length(length, &expected.as_str()),
            Self::Other(reason) => E::custom(reason),
        }
    }
}

impl Found {
    fn new(found: Unexpected) -> Self {
        match found {
            Unexpected::Bool(x) => Self::Bool(x),
            Unexpected::Unsigned(x) => Self::Unsigned(x),
            Unexpected::Signed(x) => Self::Signed(x),
            Unexpected::Float(x) => Self::Float(x),
            Unexpected::Str(x) => Self::Text(x.to_owned()),
            Unexpected::Unit | Unexpected::Option => Self::Nothing,
            Unexpected::Seq => Self::List,
            Unexpected::Map => Self::Map,
            other => Self::Other(other.to_string()),
        }
    }

    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Nothing => Unexpected::Unit,
            Self::Bool(x) => Unexpected::Bool(*x),
            Self::Unsigned(x) => Unexpected::Unsigned(*x),
            Self::Signed(x) => Unexpected::Signed(*x),
            Self::Float(x) => Unexpected::Float(*x),
            Self::Text(x) => Unexpected::Str(x),
            Self::List => Unexpected::Seq,
            Self::Map => Unexpected::Map,
            Self::Other(x) => Unexpected::Other(x),
        }
    }
}

impl Error for ContentError {
    fn custom<T: Display>(reason: T) -> Self {
        Self::Other(reason.to_string())
    }

    fn invalid_type(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::InvalidType(Found::new(found), expected.to_string())
    }

    fn invalid_value(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::InvalidValue(Found::new(found), expected.to_string())
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::InvalidLength(length, expected.to_string())
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownVariant(found.to_owned(), known)
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownField(found.to_owned(), known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingField(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::DuplicateField(field)
    }
}

impl Display for ContentError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.clone().of::<serde::de::value::Error>().fmt(f)
    }
}

impl std::error::Error for ContentError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        Plain,
        With(u32),
        Named { x: f32 },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        choices: Vec<Choice>,
        some: Option<f64>,
        none: Option<u8>,
        pair: (bool, i16),
        map: std::collections::BTreeMap<String, char>,
        unit: (),
    }

    #[test]
    fn whatever_can_be_written_comes_back() {
        let all = All {
            choices: vec![Choice::Plain, Choice::With(7), Choice::Named { x: 0.1 }],
            some: Some(-1.5),
            none: None,
            pair: (true, -3),
            map: [("a".to_owned(), 'x')].into(),
            unit: (),
        };
        let content: Content = serde_json::from_value(json!(all)).expect("a value");
        assert_eq!(All::deserialize(content), Ok(all));
    }

    #[test]
    fn numbers_are_those_that_came() {
        let content: Content =
            serde_json::from_str("[18446744073709551615, -9223372036854775808, 1e300]").expect("read");
        assert_eq!(
            content,
            Content::List(vec![Content::Unsigned(u64::MAX), Content::Signed(i64::MIN), Content::Float(1e300)])
        );
        assert!(f32::deserialize(Content::Float(f64::NAN)).is_ok_and(f32::is_nan), "no number becomes nothing");
    }
}
