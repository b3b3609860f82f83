//! The page with all keys of a configuration, from its JSON Schema.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// Maximum number of characters of a default in a table.
const LONGEST: usize = 40;

/// Returns the keys that `schema` describes as Markdown: a section for each map, with a table of its keys.
pub fn page(schema: &Value) -> String {
    let mut page =
        "# All keys of a configuration\n\nWritten by `undertone config reference`; do not edit it.\n".to_owned();
    let mut sections = Sections { schema, anchors: BTreeMap::new(), waiting: VecDeque::new() };
    sections.write(&mut page, "", schema);
    while let Some((path, map)) = sections.waiting.pop_front() {
        let _ = write!(page, "\n## `{path}`\n");
        sections.write(&mut page, &path, map);
    }
    page
}

/// Maps that have a section, or wait for one.
struct Sections<'a> {
    schema: &'a Value,
    /// Anchor of the section of each definition that was met.
    anchors: BTreeMap<&'a str, String>,
    waiting: VecDeque<(String, &'a Value)>,
}

impl<'a> Sections<'a> {
    /// Writes what a map is for, its keys, and those that only some of its kinds have.
    fn write(&mut self, page: &mut String, path: &str, map: &'a Value) {
        if let Some(text) = map["description"].as_str() {
            let _ = write!(page, "\n{}\n", plain(text));
        }
        for kind in kinds(map) {
            if let Some(names) = kind["enum"].as_array() {
                let names: Vec<String> = names.iter().map(code).collect();
                let _ = write!(page, "\nBy its name alone: {}.\n", names.join(", "));
            }
            let Some(keys) = kind["properties"].as_object() else { continue };
            let tag = keys.iter().find_map(|(key, value)| Some((key.as_str(), value["const"].as_str()?)));
            if let Some((key, name)) = tag {
                let text = plain(kind["description"].as_str().unwrap_or_default());
                let _ = write!(page, "\n**`{key}: {name}`** {text}\n");
            }
            self.table(page, path, keys, tag.map(|(key, _)| key));
        }
        if let Some(keys) = map["properties"].as_object() {
            self.table(page, path, keys, None);
        }
    }

    /// Writes the table of the keys of a map, but for the one that names its kind.
    fn table(&mut self, page: &mut String, path: &str, keys: &'a Map<String, Value>, tag: Option<&str>) {
        let keys: Vec<_> = keys.iter().filter(|(key, _)| tag != Some(key)).collect();
        if keys.is_empty() {
            return;
        }
        page.push_str("\n| key | value | default | |\n|---|---|---|---|\n");
        for (key, value) in keys {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let default =
                value.get("default").filter(|default| !default.is_null()).map(|default| short(default).to_string());
            let default = default.filter(|text| text.len() <= LONGEST).map(|text| format!("`{text}`"));
            let text = plain(value["description"].as_str().unwrap_or_default());
            let cells = [format!("`{key}`"), self.value(&below, value), default.unwrap_or_default(), text];
            let _ = writeln!(page, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }

    /// Returns what a key takes: values, types, or a link to the section of a map.
    fn value(&mut self, path: &str, value: &'a Value) -> String {
        if let Some(name) = value["$ref"].as_str().and_then(|target| target.strip_prefix("#/$defs/")) {
            return self.definition(path, name);
        }
        if let Some(values) = value["enum"].as_array() {
            return values.iter().filter(|value| !value.is_null()).map(code).collect::<Vec<_>>().join(", ");
        }
        if let Some(value) = value.get("const") {
            return code(value);
        }
        let others = kinds(value);
        if !others.is_empty() {
            let mut of_each: Vec<String> = others.iter().map(|kind| self.value(path, kind)).collect();
            of_each.retain(|text| !text.is_empty());
            of_each.dedup();
            return of_each.join(", ");
        }
        if let Some(items) = value.get("items").filter(|items| items.is_object()) {
            return format!("list of {}", self.value(&format!("{path}[]"), items));
        }
        let types = value["type"].as_array().map_or(std::slice::from_ref(&value["type"]), Vec::as_slice);
        let types = types.iter().filter_map(Value::as_str).filter(|name| *name != "null").map(|name| match name {
            "object" => "map",
            "array" => "list",
            name => name,
        });
        types.collect::<Vec<_>>().join(" or ")
    }

    /// Returns the names that may stand for a definition, and a link to its section if it has keys.
    fn definition(&mut self, path: &str, name: &'a str) -> String {
        let definition = &self.schema["$defs"][name];
        let has_keys = |value: &Value| value["properties"].as_object().is_some_and(|keys| keys.len() > 1);
        if !has_keys(definition) && !kinds(definition).iter().any(has_keys) {
            return self.value(path, definition);
        }
        let anchor = self.anchors.entry(name).or_insert_with(|| {
            self.waiting.push_back((path.to_owned(), definition));
            path.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect::<String>().to_lowercase()
        });
        let mut texts: Vec<String> =
            kinds(definition).iter().filter_map(|kind| kind["enum"].as_array()).flatten().map(code).collect();
        texts.push(format!("[map](#{anchor})"));
        texts.join(", ")
    }
}

/// Alternatives that a schema has.
fn kinds(schema: &Value) -> &[Value] {
    let of = |key: &str| schema[key].as_array().map(Vec::as_slice);
    of("oneOf").or_else(|| of("anyOf")).unwrap_or_default()
}

fn code(value: &Value) -> String {
    format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Returns a doc comment in one line, without links to code.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain.extend([before, "`", name, "`"]);
        rest = after;
        if let Some((_, after)) = after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            rest = after;
        }
    }
    plain.push_str(rest);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a default with its numbers of 32 bits as short as they can be written: 0.1 instead of 0.10000000149011612.
fn short(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(short).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), short(value))).collect(),
        Value::Number(number) if number.is_f64() => {
            let wide = number.as_f64().unwrap_or_default();
            let narrow = wide as f32;
            let text = if f64::from(narrow) == wide { narrow.to_string() } else { wide.to_string() };
            text.parse().map_or_else(|_| value.clone(), |number: f64| number.into())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_have_sections_and_kinds_tables_of_their_own() {
        let schema = json!({
            "properties": {
                "seed": {"type": "integer", "default": 42, "description": "Seed of\n[`all`](Self::all)."},
                "rate": {"$ref": "#/$defs/Rate"},
                "mode": {"enum": ["a", "b", null]}
            },
            "$defs": {"Rate": {"description": "Rate.", "oneOf": [
                {"type": "string", "enum": ["fixed", "falling"]},
                {"description": "It falls.", "properties": {
                    "type": {"const": "falling"}, "to": {"type": ["number", "null"], "default": 0.5}
                }}
            ]}}
        });
        let expected = "| key | value | default | |\n|---|---|---|---|\n| `seed` | integer | `42` | Seed of `all`. |\n\
            | `rate` | `fixed`, `falling`, [map](#rate) |  |  |\n| `mode` | `a`, `b` |  |  |\n\
            \n## `rate`\n\nRate.\n\nBy its name alone: `fixed`, `falling`.\n\n**`type: falling`** It falls.\n\
            \n| key | value | default | |\n|---|---|---|---|\n| `to` | number | `0.5` |  |\n";
        let page = page(&schema);
        assert!(page.ends_with(expected), "{page}");
    }
}
