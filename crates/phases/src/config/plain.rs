//! Messages of serde and figment in words without the names of Rust's types.

const TEXT: &str = "a text";

/// Says what is wrong with a value: "`abc` is not a number" for "invalid type: found string "abc", expected f64".
/// Other messages are returned as they are.
pub(super) fn plain(problem: &str) -> String {
    let sentence = [wrong_value, wrong_length, wrong_name, missing_key].iter().find_map(|reads| reads(problem));
    sentence.unwrap_or_else(|| problem.to_owned())
}

fn wrong_value(problem: &str) -> Option<String> {
    let rest = ["invalid type: ", "invalid value: ", "invalid value "].iter().find_map(|p| problem.strip_prefix(p))?;
    let (found, wanted) = rest.split_once(", expected ")?;
    let wanted = kind(wanted);
    Some(match value(found.strip_prefix("found ").unwrap_or(found)) {
        Some(found) if wanted == TEXT && found.starts_with('`') => format!("{found} is not {TEXT}: put it into quotes"),
        Some(found) => format!("{found} is not {wanted}"),
        None => format!("there is no value: write {wanted}, or leave the key out"),
    })
}

fn wrong_length(problem: &str) -> Option<String> {
    let (count, wanted) = problem.strip_prefix("invalid length ")?.split_once(", expected ")?;
    Some(format!("there are {count} elements: write {}", kind(wanted)))
}

fn wrong_name(problem: &str) -> Option<String> {
    let rest = problem.strip_prefix("unknown variant")?;
    // Figment puts the list into backticks once more.
    let (found, names) = match rest.strip_prefix(": found ") {
        Some(rest) => rest.strip_suffix('`')?.split_once(", expected `")?,
        None => rest.trim_start().split_once(", expected ")?,
    };
    Some(format!("{found} is none of the names here: choose {names}"))
}

fn missing_key(problem: &str) -> Option<String> {
    Some(format!("the key {} is missing", problem.strip_prefix("missing field ")?))
}

/// Returns a value, which follows the name of its type, in backticks; a list or a map in words; `None` for null.
fn value(found: &str) -> Option<String> {
    let text = found.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map(|(text, _)| text);
    Some(match found {
        "unit" | "unit value" | "null" | "Option value" | "option" => return None,
        "sequence" | "seq" => "a list".to_owned(),
        "map" => "a map".to_owned(),
        _ => match (text, found.rsplit_once(' ')) {
            (Some(text), _) => format!("`{text}`"),
            (None, Some((name, last))) => {
                let number = last.trim_matches('`');
                // Rust writes 8.0 and 1.0e3 without a point, as if they were whole.
                let is_float = name.starts_with("float") && number.bytes().all(|c| c.is_ascii_digit() || c == b'-');
                format!("`{number}{}`", if is_float { ".0" } else { "" })
            }
            (None, None) => format!("`{found}`"),
        },
    })
}

/// Returns what a type of Rust holds in words; other descriptions as they are.
fn kind(wanted: &str) -> String {
    let length = ["an array of length ", "a tuple of size "].iter().find_map(|prefix| wanted.strip_prefix(prefix));
    match wanted {
        "usize" | "u64" => "a whole number from 0 on".to_owned(),
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "i8" => format!("a whole number from {} to {}", i8::MIN, i8::MAX),
        "i16" => format!("a whole number from {} to {}", i16::MIN, i16::MAX),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        "isize" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "a string" | "a borrowed string" => TEXT.to_owned(),
        "a sequence" => "a list".to_owned(),
        _ if wanted.starts_with("struct ") => "a map of keys".to_owned(),
        _ if wanted.starts_with("enum ") => "a name".to_owned(),
        _ => length.map_or_else(|| wanted.to_owned(), |length| format!("a list of {length}")),
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn types_of_rust_are_said_in_words() {
        for (problem, expected) in [
            ("invalid type: found string \"a b\", expected usize", "`a b` is not a whole number from 0 on"),
            ("invalid value signed int `-1`, expected usize", "`-1` is not a whole number from 0 on"),
            ("invalid value: integer `-1`, expected u64", "`-1` is not a whole number from 0 on"),
            ("invalid type: found float `1.5`, expected u64", "`1.5` is not a whole number from 0 on"),
            ("invalid type: found float `8`, expected usize", "`8.0` is not a whole number from 0 on"),
            ("invalid value: integer `300`, expected u8", "`300` is not a whole number from 0 to 255"),
            ("invalid type: floating point `1.5`, expected a string", "`1.5` is not a text: put it into quotes"),
            ("invalid type: found bool true, expected f64", "`true` is not a number"),
            ("invalid type: boolean `true`, expected f64", "`true` is not a number"),
            ("invalid type: 3, expected a name, or a map with `type`", "`3` is not a name, or a map with `type`"),
            ("invalid type: sequence, expected a boolean", "a list is not true or false"),
            ("invalid type: found map, expected a string", "a map is not a text"),
            ("invalid type: found unsigned int `3`, expected enum Pad", "`3` is not a name"),
            (
                "invalid type: found unit, expected struct RunConfig",
                "there is no value: write a map of keys, or leave the key out",
            ),
            ("invalid length 3, expected an array of length 2", "there are 3 elements: write a list of 2"),
            (
                "unknown variant: found `wide`, expected ``longest` or `window``",
                "`wide` is none of the names here: choose `longest` or `window`",
            ),
            (
                "unknown variant: found `x`, expected `one of `a`, `b`, `c``",
                "`x` is none of the names here: choose one of `a`, `b`, `c`",
            ),
            ("unknown variant `lore`, expected `lora`", "`lore` is none of the names here: choose `lora`"),
            ("unknown variant `a`, expected one of `b`, `c`", "`a` is none of the names here: choose one of `b`, `c`"),
            ("missing field `name`", "the key `name` is missing"),
            ("`path` and `hub` are two places: leave one out", "`path` and `hub` are two places: leave one out"),
        ] {
            assert_eq!(plain(problem), expected);
        }
    }
}
