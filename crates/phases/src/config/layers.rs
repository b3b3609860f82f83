//! Layers of a configuration: YAML files, and keys that are set one by one.

use super::ConfigError;
use figment::providers::{Format, Serialized};
use figment::value::{Dict, Map};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Maximum number of brackets open at once. The parser accepts 128, but checks this only after it has read all of them,
/// in time quadratic in their number.
const DEEPEST: usize = 1000;

/// Refuses a file with so many open brackets that parsing it would take minutes. Brackets in texts and comments count
/// as well: no real file has so many unclosed ones.
pub(super) fn check_depth(file: &Path) -> Result<(), ConfigError> {
    // The parser reports a file that cannot be read.
    let Ok(text) = std::fs::read(file) else { return Ok(()) };
    let (mut open, mut line) = (0_usize, 1);
    for byte in text {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > DEEPEST {
            let file = file.display();
            return Err(ConfigError::Value(format!("more than {DEEPEST} brackets are open in line {line} of {file}")));
        }
    }
    Ok(())
}

/// Returns `figment` with one key set. Figment has no keys within lists, so a list on the key's path is replaced as a
/// whole.
pub(super) fn set(figment: Figment, key: &str, value: serde_json::Value) -> Result<Figment, ConfigError> {
    let ends = key.match_indices('.').map(|(at, _)| at);
    for (prefix, rest) in ends.map(|at| (&key[..at], &key[at + 1..])) {
        let Ok(found @ figment::value::Value::Array(..)) = figment.find_value(prefix) else { continue };
        let mut list = serde_json::to_value(&found).unwrap_or_default();
        set_within(&mut list, rest, value)
            .map_err(|reason| ConfigError::Value(format!("`--set {key}`: `{prefix}` {reason}")))?;
        return Ok(figment.merge(Serialized::default(prefix, list)));
    }
    Ok(figment.merge(Serialized::default(key, value)))
}

fn set_within(at: &mut serde_json::Value, key: &str, value: serde_json::Value) -> Result<(), String> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let next = match at {
        serde_json::Value::Array(items) => {
            let named = items.iter().position(|item| item.get("name").is_some_and(|name| name == first));
            let index = named.or_else(|| first.parse().ok().filter(|index| *index < items.len()));
            let count = items.len();
            index.and_then(|index| items.get_mut(index)).ok_or_else(|| {
                format!(
                    "has {count} elements, and none of them is `{first}`: call one by its `name` or its number from 0"
                )
            })?
        }
        serde_json::Value::Object(fields) => fields.entry(first).or_insert(serde_json::Value::Null),
        other => {
            *other = serde_json::json!({ first: null });
            &mut other[first]
        }
    };
    match rest {
        Some(rest) => set_within(next, rest, value),
        None => {
            *next = value;
            Ok(())
        }
    }
}

/// YAML file whose merge keys (`<<: *anchor`) are resolved. Figment's own reader does not resolve them.
pub(super) struct YamlFile<'a>(pub &'a Path);

impl Provider for YamlFile<'_> {
    fn metadata(&self) -> Metadata {
        Yaml::file_exact(self.0).metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let parsed = std::fs::read_to_string(self.0).ok().and_then(|text| serde_norway::from_str(&text).ok());
        let merged = parsed.and_then(|mut value: serde_norway::Value| {
            value.apply_merge().ok()?;
            // An empty file has no keys.
            value.as_mapping()?;
            serde_norway::to_string(&value).ok()
        });
        match merged {
            Some(text) => Yaml::string(&text).data(),
            // Figment's own reader gives the better error message.
            None => Yaml::file_exact(self.0).data(),
        }
    }
}

/// YAML format for figment. Figment's own uses serde_yaml, which is archived.
struct Yaml;

impl Format for Yaml {
    type Error = serde_norway::Error;

    const NAME: &'static str = "YAML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Self::Error> {
        serde_norway::from_str(text)
    }
}

/// Returns a figment error as one sentence that names key, problem and place.
pub(crate) fn sentence(error: &figment::Error) -> String {
    let mut key = error.path.join(".");
    let mut problem = error.kind.to_string();
    if let figment::error::Kind::UnknownField(field, known) = &error.kind {
        if !key.ends_with(field.as_str()) {
            key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
        }
        problem = format!("there is no such key; the keys here are {}", known.join(", "));
    }
    // A value that reads its own keys names the one at fault.
    let message = problem.clone();
    if let Some((inner, rest)) = message.strip_prefix('`').and_then(|message| message.split_once("`: ")) {
        key = if key.is_empty() { inner.to_owned() } else { format!("{key}.{inner}") };
        problem = rest.to_owned();
    }
    let place = error.metadata.as_ref().map(|m| match &m.source {
        Some(figment::Source::File(path)) => format!(" (in {})", path.display()),
        // Only values of `--set` come from code.
        Some(_) => " (in --set)".to_owned(),
        None => format!(" (in {})", m.name),
    });
    let key = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
    format!("{key}{problem}{}", place.unwrap_or_default())
}
