//! A choice in a configuration: one of several kinds by its name, with keys that only this kind has.
//!
//! In YAML it is a map, `schedule: {type: wsd, decay_share: 0.2}`, or the name alone where no other key is given: `schedule: wsd`. A
//! map without the name is one of the default kind.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use undertone_registry::choice;
//!
//! #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
//! #[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
//! enum Shape {
//!     #[default]
//!     Circle,
//!     Polygon { corners: usize },
//! }
//!
//! choice!(Shape, "type");
//!
//! let read = |json: &str| serde_json::from_str::<Shape>(json).map_err(|error| error.to_string());
//! assert_eq!(read(r#"{"type": "polygon", "corners": 5}"#), Ok(Shape::Polygon { corners: 5 }));
//! assert_eq!(read(r#""circle""#), Ok(Shape::Circle));
//! assert!(read(r#"{"corners": 5}"#).unwrap_err().starts_with("`corners`: `type: circle` has no such key"));
//! ```

use schemars::{Schema, json_schema};
use serde::de::{Deserializer, Error};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Implements `Deserialize` and `Serialize` for an enum that derives both with `#[serde(remote = "Self", tag = …)]` and has a default.
/// The second argument is the same tag.
#[macro_export]
macro_rules! choice {
    ($choice:ty, $tag:literal) => {
        impl<'de> serde::Deserialize<'de> for $choice {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::choice::read(
                    deserializer,
                    $tag,
                    |keys| <$choice>::deserialize(keys),
                    |choice| <$choice>::serialize(choice, serde_json::value::Serializer),
                )
            }
        }

        impl serde::Serialize for $choice {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let keys = <$choice>::serialize(self, serde_json::value::Serializer);
                $crate::choice::write(keys, $tag, serializer)
            }
        }
    };
}

/// Reads a choice: its name, or a map with the name under `tag`. `parse` reads a map, and `keys` writes one.
///
/// # Errors
/// Names the key that is unknown or has an invalid value.
pub fn read<'de, D: Deserializer<'de>, T: Default>(
    deserializer: D,
    tag: &'static str,
    parse: impl Fn(Value) -> Result<T, serde_json::Error>,
    keys: impl Fn(&T) -> Result<Value, serde_json::Error>,
) -> Result<T, D::Error> {
    let mut given = match Value::deserialize(deserializer)? {
        Value::String(name) => return parse(named(tag, name.into())).map_err(D::Error::custom),
        Value::Object(given) => given,
        other => {
            return Err(D::Error::custom(format!("invalid type: {other}, expected a name, or a map with `{tag}`")));
        }
    };
    if !given.contains_key(tag) {
        let usual = keys(&T::default()).map_err(D::Error::custom)?;
        given.insert(tag.to_owned(), usual[tag].clone());
    }
    let kind = given[tag].clone();
    let choice = parse(given.clone().into()).map_err(|error| match culprit(&given, tag, &parse) {
        Some((key, error)) => D::Error::custom(format!("`{key}`: {error}")),
        None => D::Error::custom(error),
    })?;
    // Serde lets a kind without keys have any.
    let known = keys(&choice).map_err(D::Error::custom)?;
    match given.keys().find(|key| known.get(key).is_none()) {
        Some(key) => Err(D::Error::custom(unknown_key(key, tag, &kind, &known))),
        None => Ok(choice),
    }
}

/// Writes a choice, whose name and keys are `keys`: the name alone if there are no others.
///
/// # Errors
/// Those of the serializer.
pub fn write<S: Serializer>(
    keys: Result<Value, serde_json::Error>,
    tag: &str,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let keys = keys.map_err(serde::ser::Error::custom)?;
    match keys.as_object() {
        Some(map) if map.len() == 1 => keys[tag].serialize(serializer),
        _ => keys.serialize(serializer),
    }
}

/// Adds to the schema of a choice that the name may stand alone, for those kinds that require no other key.
pub fn by_name(schema: &mut Schema) {
    let Some(kinds) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let alone = kinds.iter().filter(|kind| kind["required"].as_array().is_some_and(|required| required.len() == 1));
    let name = |kind: &Value| kind["properties"].as_object()?.values().find_map(|key| key.get("const").cloned());
    let names: Vec<Value> = alone.filter_map(name).collect();
    if let Some(kinds) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        kinds.insert(0, json_schema!({"type": "string", "enum": names}).to_value());
    }
}

/// Returns the key whose value cannot be read, and why.
fn culprit<T>(
    given: &Map<String, Value>,
    tag: &str,
    parse: impl Fn(Value) -> Result<T, serde_json::Error>,
) -> Option<(String, String)> {
    let alone = |key: &str| {
        let mut keys = named(tag, given[tag].clone());
        keys[key] = given[key].clone();
        let error = parse(keys).err()?.to_string();
        (!error.starts_with("missing field")).then(|| (key.to_owned(), error))
    };
    alone(tag).or_else(|| given.keys().find_map(|key| alone(key)))
}

fn named(tag: &str, name: Value) -> Value {
    Value::Object(Map::from_iter([(tag.to_owned(), name)]))
}

fn unknown_key(key: &str, tag: &str, kind: &Value, known: &Value) -> String {
    let kind = kind.as_str().unwrap_or_default();
    let names = known.as_object().into_iter().flat_map(Map::keys).filter(|key| *key != tag).cloned();
    let names: Vec<String> = names.collect();
    let has = if names.is_empty() { "it has none".into() } else { format!("its keys are {}", names.join(", ")) };
    format!("`{key}`: `{tag}: {kind}` has no such key; {has}")
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(remote = "Self", tag = "type", rename_all = "lowercase")]
    #[schemars(rename = "Shape", deny_unknown_fields, transform = super::by_name)]
    enum Shape {
        #[default]
        Point,
        Circle(Circle),
        Polygon {
            corners: usize,
        },
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Circle {
        radius: f64,
    }

    crate::choice!(Shape, "type");

    fn read(json: &str) -> Result<Shape, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_alone_has_the_keys_that_are_usual() {
        assert_eq!(read(r#""circle""#), Ok(Shape::Circle(Circle::default())));
        assert_eq!(read(r#"{"type": "circle", "radius": 2}"#), Ok(Shape::Circle(Circle { radius: 2.0 })));
        assert_eq!(read("{}"), Ok(Shape::Point));
        for (shape, json) in [
            (Shape::Point, r#""point""#),
            (Shape::Circle(Circle::default()), r#"{"type":"circle","radius":0.0}"#),
            (Shape::Polygon { corners: 3 }, r#"{"type":"polygon","corners":3}"#),
        ] {
            let written: serde_json::Value = serde_json::to_value(&shape).expect("JSON");
            assert_eq!(written, serde_json::from_str::<serde_json::Value>(json).expect("JSON"));
            assert_eq!(read(json), Ok(shape));
        }
    }

    #[test]
    fn refusals_name_the_key() {
        for (json, expected) in [
            (r#""square""#, "unknown variant `square`"),
            (r#"{"type": "square", "corners": 3}"#, "`type`: unknown variant `square`"),
            (r#"{"type": "circle", "radius": "x"}"#, "`radius`: invalid type"),
            (r#"{"type": "circle", "corners": 3}"#, "`corners`: unknown field"),
            (r#"{"type": "point", "radius": 3}"#, "`radius`: `type: point` has no such key; it has none"),
            (
                r#"{"type": "polygon", "corners": 3, "radius": 3}"#,
                "`radius`: `type: polygon` has no such key; its keys are corners",
            ),
            (r#""polygon""#, "missing field `corners`"),
            ("7", "invalid type: 7"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }

    #[test]
    fn the_schema_lets_a_name_stand_alone_that_needs_no_key() {
        let schema = schemars::schema_for!(Shape).to_value();
        assert_eq!(schema["oneOf"][0]["enum"], serde_json::json!(["point", "circle"]));
        assert_eq!(schema["title"], "Shape");
    }
}
