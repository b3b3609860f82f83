//! Layers of a configuration: YAML files, and keys that are set one by one.

use super::ConfigError;
use super::choices::settle;
use super::migrate::migrate;
use super::plain::plain;
use figment::providers::Serialized;
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};
use std::path::Path;

/// Maximum number of brackets open at once. The parser accepts 128, but checks this only after it has read all of them,
/// in time quadratic in their number.
const DEEPEST: usize = 1000;

/// Refuses a YAML text with so many open brackets that parsing it would take minutes. Brackets in texts and comments count
/// as well: no real file has so many unclosed ones.
fn check_depth(text: &str) -> Result<(), String> {
    let (mut open, mut line) = (0_usize, 1);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > DEEPEST {
            return Err(format!("more than {DEEPEST} brackets are open in line {line} of the YAML"));
        }
    }
    Ok(())
}

/// Layers of a configuration, lowest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers(Vec<Layer>);

#[derive(Clone, Debug)]
struct Layer {
    metadata: Metadata,
    keys: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.keys.clone()))
    }
}

impl Layers {
    /// Adds a layer above all others.
    pub(super) fn add(&mut self, provider: impl Provider) -> Result<(), ConfigError> {
        self.insert(self.0.len(), provider)
    }

    /// Adds a layer below all others.
    pub(super) fn add_below(&mut self, provider: impl Provider) -> Result<(), ConfigError> {
        self.insert(0, provider)
    }

    fn insert(&mut self, at: usize, provider: impl Provider) -> Result<(), ConfigError> {
        let metadata = provider.metadata();
        let mut keys: Dict = Figment::from(provider).extract().map_err(|e| sentence(&e))?;
        keys.values_mut().for_each(untag);
        self.0.insert(at, Layer { metadata, keys });
        Ok(())
    }

    /// Sets one key in a layer of its own, which messages call `origin`. There are no keys within lists, so a list on the key's path
    /// is replaced as a whole.
    pub(super) fn set(&mut self, key: &str, value: serde_json::Value, origin: &str) -> Result<(), ConfigError> {
        let ends = key.match_indices('.').map(|(at, _)| at);
        let figment = self.figment();
        for (prefix, rest) in ends.map(|at| (&key[..at], &key[at + 1..])) {
            let Ok(found @ Value::Array(..)) = figment.find_value(prefix) else { continue };
            let mut list = serde_json::to_value(&found).unwrap_or_default();
            set_within(&mut list, rest, value).map_err(|reason| format!("{origin}, `{key}`: `{prefix}` {reason}"))?;
            return self.add_from(Serialized::default(prefix, list), origin);
        }
        self.add_from(Serialized::default(key, value), origin)
    }

    fn add_from(&mut self, provider: impl Provider, origin: &str) -> Result<(), ConfigError> {
        self.add(provider)?;
        if let Some(layer) = self.0.last_mut() {
            layer.metadata = Metadata::named(origin.to_owned());
        }
        Ok(())
    }

    /// Translates keys of earlier versions, with a warning for each layer that has some.
    pub(super) fn migrate(&mut self) -> Result<(), ConfigError> {
        let mut keys: Vec<Dict> = self.0.iter().map(|layer| layer.keys.clone()).collect();
        let found = migrate(&mut keys)?;
        for ((layer, keys), found) in self.0.iter_mut().zip(keys).zip(found) {
            if !found.is_empty() {
                tracing::warn!("{}", earlier(&layer.metadata, &found));
            }
            layer.keys = keys;
        }
        Ok(())
    }

    /// Returns the one layer of a text whose keys are those of an earlier version; `None` if they are not.
    pub(super) fn of_earlier_version(yaml: &str) -> Option<Self> {
        let mut keys = vec![parse_yaml(yaml).ok()?];
        migrate(&mut keys).ok()?;
        Some(Self(vec![Layer { metadata: Metadata::default(), keys: keys.pop()? }]))
    }

    /// Returns the layers, merged key by key. Where a layer chooses another kind than those below, it replaces their
    /// keys.
    pub(super) fn figment(&self) -> Figment {
        let mut keys: Vec<Dict> = self.0.iter().map(|layer| layer.keys.clone()).collect();
        settle(&mut keys);
        let layers = self.0.iter().zip(keys).map(|(layer, keys)| Layer { metadata: layer.metadata.clone(), keys });
        layers.fold(Figment::new(), Figment::merge)
    }
}

/// Forgets from where a value was read, so that messages name the source of its layer.
fn untag(value: &mut Value) {
    match value {
        Value::Dict(_, keys) => keys.values_mut().for_each(untag),
        Value::Array(_, items) => items.iter_mut().for_each(untag),
        _ => {}
    }
    let (Value::String(tag, _)
    | Value::Char(tag, _)
    | Value::Bool(tag, _)
    | Value::Num(tag, _)
    | Value::Empty(tag, _)
    | Value::Dict(tag, _)
    | Value::Array(tag, _)) = value;
    *tag = Tag::Default;
}

/// Returns the warning about keys of earlier versions.
fn earlier(metadata: &Metadata, found: &[String]) -> String {
    let keys = found.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    match &metadata.source {
        Some(Source::File(path)) => {
            let path = path.display();
            format!(
                "{path} has keys of an earlier version: {keys}; `undertone config migrate {path}` writes the new ones"
            )
        }
        _ => format!("{keys}: the spelling of an earlier version; `undertone config schema` describes the new one"),
    }
}

fn set_within(at: &mut serde_json::Value, key: &str, value: serde_json::Value) -> Result<(), String> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let next = match at {
        serde_json::Value::Array(items) => {
            let named = position_by_name(items, first);
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

/// Finds an element by its `name`. Keys of environment variables have lost their capital letters, so these do not count where no name
/// is equal.
fn position_by_name(items: &[serde_json::Value], name: &str) -> Option<usize> {
    let of = |item: &serde_json::Value| item.get("name").and_then(serde_json::Value::as_str).map(str::to_owned);
    let equal = items.iter().position(|item| of(item).is_some_and(|known| known == name));
    equal.or_else(|| items.iter().position(|item| of(item).is_some_and(|known| known.eq_ignore_ascii_case(name))))
}

/// YAML file whose merge keys (`<<: *anchor`) are resolved. Figment's own reader does not resolve them.
pub(super) struct YamlFile<'a>(pub &'a Path);

impl Provider for YamlFile<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::from("YAML file", self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let text = std::fs::read_to_string(self.0).map_err(|e| e.to_string())?;
        let keys = parse_yaml(&text)?;
        if keys.is_empty() {
            return Err("there is no key in it: say at least what is trained, as the files in configs/ do"
                .to_owned()
                .into());
        }
        Ok(Profile::Default.collect(keys))
    }
}

/// Reads the keys of a YAML text.
pub(super) fn parse_yaml(text: &str) -> Result<Dict, String> {
    // Editors on Windows write a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    check_depth(text)?;
    let said = |error: serde_norway::Error| error.to_string();
    // Read into a map at once, the last of two equal keys would count.
    let mut value: serde_norway::Value = serde_norway::from_str(text).map_err(said)?;
    if !text.contains("<<") {
        return serde_norway::from_str(text).map_err(said);
    }
    value.apply_merge().map_err(said)?;
    // Written out once more, because numbers as keys become texts only there.
    serde_norway::from_str(&serde_norway::to_string(&value).map_err(said)?).map_err(said)
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
    // What reads a map as a whole begins with the key within it.
    let within = problem.strip_prefix('`').and_then(|problem| problem.split_once("`: "));
    if let Some((inner, rest)) =
        within.filter(|(inner, _)| inner.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c)))
    {
        key = super::keys::join(&key, inner);
        problem = rest.to_owned();
    }
    let problem = plain(&problem);
    let place = error.metadata.as_ref().and_then(|m| match &m.source {
        Some(figment::Source::File(path)) => Some(format!(" (in {})", path.display())),
        // Figment calls a layer of values by their Rust type.
        _ => (!m.name.contains("::")).then(|| format!(" (in {})", m.name)),
    });
    let key = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
    format!("{key}{problem}{}", place.unwrap_or_default())
}
