//! Keys of a configuration by their paths: `train.optimizer.lr`.

use figment::value::{Dict, Value};

/// Returns the value at a path.
pub(super) fn find<'a>(keys: &'a Dict, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => keys.get(path),
        Some((first, rest)) => find(keys.get(first)?.as_dict()?, rest),
    }
}

/// As [`find`].
pub(super) fn find_mut<'a>(keys: &'a mut Dict, path: &str) -> Option<&'a mut Value> {
    match path.split_once('.') {
        None => keys.get_mut(path),
        Some((first, rest)) => find_mut(dict_mut(keys.get_mut(first)?)?, rest),
    }
}

/// Removes the value at a path, and the maps on the way to it that it leaves empty.
pub(super) fn remove(keys: &mut Dict, path: &str) -> Option<Value> {
    let Some((first, rest)) = path.split_once('.') else { return keys.remove(path) };
    let within = dict_mut(keys.get_mut(first)?)?;
    let removed = remove(within, rest);
    if removed.is_some() && within.is_empty() {
        keys.remove(first);
    }
    removed
}

/// Sets the value at a path, with the maps on the way to it.
pub(super) fn insert(keys: &mut Dict, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        keys.insert(path.to_owned(), value);
        return;
    };
    let within = keys.entry(first.to_owned()).or_insert_with(|| Dict::new().into());
    if within.as_dict().is_none() {
        *within = Dict::new().into();
    }
    if let Some(within) = dict_mut(within) {
        insert(within, rest, value);
    }
}

pub(super) fn dict_mut(value: &mut Value) -> Option<&mut Dict> {
    match value {
        Value::Dict(_, dict) => Some(dict),
        _ => None,
    }
}

/// Joins two parts of a path, of which the first may be empty.
pub(super) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// Whether two values are the same, whichever number types they have.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| {
        let number = value.to_num()?;
        let whole = number.to_i128().or_else(|| number.to_u128().and_then(|n| i128::try_from(n).ok()));
        number.to_f64().or_else(|| whole.map(|n| n as f64))
    };
    if let (Value::Empty(..), Value::Empty(..)) = (one, other) {
        return true;
    }
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Writes a value in one line, as in YAML.
pub(super) fn text(value: &Value) -> String {
    serde_json::to_value(value).unwrap_or_default().to_string().replace('"', "`")
}
