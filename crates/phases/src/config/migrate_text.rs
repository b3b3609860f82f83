//! Translation of the text of a configuration file.

use super::ConfigError;
use super::layers::parse_yaml;
use super::migrate::migrate;
use super::yaml_text::{Content, Entry, Node, comments, parse};
use figment::value::{Dict, Value};
use std::ops::Range;

/// Text of a configuration file with the keys of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The text.
    pub text: String,
    /// Paths of the earlier keys; none if the file had none.
    pub keys: Vec<String>,
    /// Whether comments and layout are those of the file.
    pub keeps_comments: bool,
}

/// Translates keys of earlier versions in the text of a configuration file.
///
/// # Errors
/// When the text is not YAML, or has an earlier key that has no effect.
pub fn migrated(text: &str) -> Result<Migrated, ConfigError> {
    let old = parse_yaml(text)?;
    let mut layers = [old.clone()];
    let keys: Vec<String> = migrate(&mut layers)?.into_iter().flatten().collect();
    let [new] = layers;
    if keys.is_empty() {
        return Ok(Migrated { text: text.to_owned(), keys, keeps_comments: true });
    }
    let mut whole = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    if !whole.ends_with('\n') {
        whole.push('\n');
    }
    let edited = edited(&whole, &old, &new).filter(|edited| is_right(&whole, edited, &new));
    let keeps_comments = edited.is_some();
    let text = match edited {
        Some(edited) if text.contains("\r\n") => edited.replace('\n', "\r\n"),
        Some(edited) => edited,
        None => serde_norway::to_string(&new).map_err(|error| error.to_string())?,
    };
    Ok(Migrated { text, keys, keeps_comments })
}

/// Whether a text means what it is to mean, and still has every comment of the text that it was made from.
fn is_right(before: &str, after: &str, meaning: &Dict) -> bool {
    let mut left = comments(after);
    let has = |comment: &str| left.iter().position(|other| *other == comment).map(|at| left.swap_remove(at)).is_some();
    parse_yaml(after).as_ref() == Ok(meaning) && comments(before).into_iter().all(has)
}

/// Returns the text with the differences between two meanings of it. `None` if it is written in a way that is not
/// understood, or a difference lies in an alias.
fn edited(text: &str, old: &Dict, new: &Dict) -> Option<String> {
    let mut edits = Edits { text, edits: Vec::new() };
    edits.map(&parse(text)?, old, new)?;
    let mut edited = text.to_owned();
    edits.edits.sort_by_key(|(span, _)| (span.start, span.end));
    edits.edits.into_iter().rev().for_each(|(span, replacement)| edited.replace_range(span, &replacement));
    Some(edited)
}

struct Edits<'a> {
    text: &'a str,
    edits: Vec<(Range<usize>, String)>,
}

impl Edits<'_> {
    fn map(&mut self, node: &Node, old: &Dict, new: &Dict) -> Option<()> {
        let Content::Map { entries, indent: Some(indent) } = &node.content else { return None };
        let entry = |key: &String| entries.iter().find(|entry| entry.key == *key);
        for (key, before) in old {
            match new.get(key) {
                Some(after) if after == before => {}
                Some(after) => self.value(&entry(key)?.value, before, after)?,
                None => self.remove(entry(key)?, *indent),
            }
        }
        let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
        let lines: String = added.map(|(key, value)| format!("{:indent$}{key}: {}\n", "", flow(value))).collect();
        if !lines.is_empty() {
            let end = entries.last()?.span.end;
            self.edits.push((end..end, lines));
        }
        Some(())
    }

    fn value(&mut self, node: &Node, old: &Value, new: &Value) -> Option<()> {
        match (&node.content, old, new) {
            (Content::Map { indent: Some(_), .. }, Value::Dict(_, old), Value::Dict(_, new)) => {
                self.map(node, old, new)
            }
            (Content::List(nodes), Value::Array(_, old), Value::Array(_, new)) if old.len() == new.len() => {
                let items = nodes.iter().zip(old.iter().zip(new)).filter(|(_, (old, new))| old != new);
                items.into_iter().try_for_each(|(node, (old, new))| self.value(node, old, new))
            }
            _ => {
                let mut text = self.flow_value(node, old, new)?;
                // Of a block, the comments stay.
                if let Content::Map { indent: Some(indent), .. } = node.content {
                    let kept = comments(&self.text[node.span.clone()]).into_iter();
                    let kept: String = kept.map(|comment| format!("{comment}\n{:indent$}", "")).collect();
                    text = format!("{kept}{text}\n");
                }
                self.edits.push((node.span.clone(), text));
                Some(())
            }
        }
    }

    /// Removes an entry of a block, except for its comments.
    fn remove(&mut self, entry: &Entry, indent: usize) {
        let begin = self.text[..entry.span.start].rfind('\n').map_or(0, |at| at + 1);
        let kept = comments(&self.text[entry.span.clone()]);
        let kept: String = kept.into_iter().map(|comment| format!("{:indent$}{comment}\n", "")).collect();
        self.edits.push((begin..entry.span.end, kept));
    }

    /// Returns the new text of a flow map. Values that stay are written as they were.
    fn flow_map(&self, entries: &[Entry], old: &Dict, new: &Dict) -> Option<String> {
        let mut parts = Vec::new();
        for entry in entries {
            let written = &self.text[entry.span.clone()];
            match (old.get(&entry.key), new.get(&entry.key)) {
                (before, after) if before == after => parts.push(written.to_owned()),
                (Some(before), Some(after)) => {
                    let key = &self.text[entry.span.start..entry.value.span.start];
                    parts.push(format!("{key}{}", self.flow_value(&entry.value, before, after)?));
                }
                (_, None) => {}
                (None, Some(_)) => return None,
            }
        }
        let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
        parts.extend(added.map(|(key, value)| format!("{key}: {}", flow(value))));
        Some(format!("{{{}}}", parts.join(", ")))
    }

    fn flow_value(&self, node: &Node, old: &Value, new: &Value) -> Option<String> {
        match (&node.content, old, new) {
            (Content::Map { entries, .. }, Value::Dict(_, old), Value::Dict(_, new)) => {
                self.flow_map(entries, old, new)
            }
            (Content::List(nodes), Value::Array(_, old), Value::Array(_, new)) if old.len() == new.len() => {
                let items = nodes.iter().zip(old.iter().zip(new));
                let items: Option<Vec<String>> =
                    items.map(|(node, (old, new))| self.flow_value(node, old, new)).collect();
                Some(format!("[{}]", items?.join(", ")))
            }
            _ if old == new => Some(self.text[node.span.clone()].to_owned()),
            // An alias stands for what is written elsewhere.
            _ if self.text[node.span.clone()].starts_with('*') => None,
            _ => Some(flow(new)),
        }
    }
}

/// Writes a value in one line.
fn flow(value: &Value) -> String {
    let plain = |text: &str| {
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let words = ["true", "false", "null", "yes", "no", "on"];
        begins && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) && !words.contains(&text)
    };
    match value {
        Value::String(_, text) if plain(text) => text.clone(),
        Value::Dict(_, keys) => {
            // What says which keys there are comes first.
            let first = |key: &String| !["type", "name", "what"].contains(&key.as_str());
            let mut keys: Vec<_> = keys.iter().collect();
            keys.sort_by_key(|(key, _)| first(key));
            let keys: Vec<String> = keys.into_iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", keys.join(", "))
        }
        Value::Array(_, items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        other => serde_json::to_value(other).unwrap_or_default().to_string(),
    }
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
