//! Growth of a text by a tokenizer.

use serde_json::Value;
use tokenizers::utils::SysRegex;

/// Maximum number of characters that one character may become, both in a text before it is split into tokens and in a
/// token when it is decoded. Unicode's longest decomposition has 18, and there may be two tables of it.
const MOST: u64 = 1024;
const DECOMPOSED: u64 = 18;

/// Effect of a list of steps on one character of a text.
struct Growth {
    /// Number of characters that it has become.
    characters: u64,
    /// Whether the last step was a Unicode normalisation: another one directly after it has nothing left to decompose.
    decomposed: bool,
}

/// Rejects a tokenizer that expands a short text too much; each step may expand the output of the one before.
///
/// # Errors
/// Names the step that exceeds the limit.
pub fn check(json: &Value) -> Result<(), String> {
    let mut growth = Growth { characters: 1, decomposed: false };
    each(&json["normalizer"], "normalizers", &mut |step| growth.normalize(step))?;
    growth.decomposed = false;
    each(&json["pre_tokenizer"], "pretokenizers", &mut |step| growth.split(step))?;
    let mut growth = Growth { characters: 1, decomposed: false };
    each(&json["decoder"], "decoders", &mut |step| growth.decode(step))
}

/// Visits the steps of a list, which may contain lists.
fn each(step: &Value, list: &str, act: &mut impl FnMut(&Value) -> Result<(), String>) -> Result<(), String> {
    let mut steps = step.get(list).and_then(Value::as_array).into_iter().flatten();
    steps.try_for_each(|step| each(step, list, act))?;
    // A step of another type may have such a list too, but it is ignored.
    if step.is_null() || step["type"] == "Sequence" { Ok(()) } else { act(step) }
}

impl Growth {
    fn normalize(&mut self, step: &Value) -> Result<(), String> {
        let kind = kind(step);
        match kind {
            "Replace" => check_replaced(step)?,
            "Prepend" if characters(&step["prepend"]) == 0 => {
                return Err("`normalizer`: `Prepend` puts nothing before texts: leave it out".into());
            }
            _ => {}
        }
        let by = match kind {
            "Replace" => replaced(step),
            "Prepend" => 1 + characters(&step["prepend"]),
            "Precompiled" => super::table::longest(step),
            "ByteLevel" => 4,
            "Strip" | "Nmt" => 1,
            _ if self.decomposed => 1,
            _ => DECOMPOSED,
        };
        self.decomposed = match kind {
            "Replace" | "Prepend" | "Precompiled" | "ByteLevel" => false,
            "Strip" | "Nmt" => self.decomposed,
            _ => true,
        };
        self.times(by, "normalizer", kind)
    }

    fn split(&mut self, step: &Value) -> Result<(), String> {
        let kind = kind(step);
        if kind == "FixedLength" && step["length"] == 0 {
            return Err("`pre_tokenizer`: `FixedLength` cuts texts into pieces of no length".into());
        }
        let by = match kind {
            // A blank before each piece.
            "Metaspace" => 2,
            // A blank, and each byte as a character.
            "ByteLevel" => 8,
            "Split" | "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer" | "CharDelimiterSplit" | "Punctuation"
            | "Digits" | "UnicodeScripts" | "FixedLength" => 1,
            _ => 8,
        };
        self.times(by, "pre_tokenizer", kind)
    }

    fn decode(&mut self, step: &Value) -> Result<(), String> {
        let kind = kind(step);
        // The library counts past the start of a token that consists only of the characters to be cut.
        if kind == "Strip" && step["stop"] != 0 {
            return Err("`decoder`: `Strip` cuts something off the end of tokens, which is not supported".into());
        }
        let by = match kind {
            "Replace" => replaced(step),
            "Strip" | "Fuse" | "ByteFallback" | "ByteLevel" | "Metaspace" => 1,
            // A blank before or within a token.
            _ => 2,
        };
        self.times(by, "decoder", kind)
    }

    fn times(&mut self, by: u64, list: &str, kind: &str) -> Result<(), String> {
        self.characters = self.characters.saturating_mul(by);
        match self.characters > MOST {
            true => Err(format!(
                "`{list}`: with its step `{kind}` a character becomes up to {}, and {MOST} is the most: leave steps out, \
                 or give them shorter texts",
                self.characters
            )),
            false => Ok(()),
        }
    }
}

/// Type of a step. Old files do not state it, so it follows from the step's keys.
fn kind(step: &Value) -> &str {
    let by_key = [("pattern", "Replace"), ("prepend", "Prepend"), ("precompiled_charsmap", "Precompiled")];
    let found = || by_key.iter().find(|(key, _)| step.get(key).is_some()).map(|(_, kind)| *kind);
    step["type"].as_str().or_else(found).unwrap_or("unnamed")
}

/// Rejects a replacement whose pattern may match nothing: characters inserted at the start of a text have no position
/// in the original, for which the library later panics.
fn check_replaced(step: &Value) -> Result<(), String> {
    const LOOKS_AROUND: [&str; 8] = ["(?=", "(?!", "(?<=", "(?<!", r"\b", r"\B", r"\K", r"\G"];
    let finds_nothing = match (step["pattern"]["String"].as_str(), step["pattern"]["Regex"].as_str()) {
        (Some(text), _) => text.is_empty(),
        (_, Some(expression)) => {
            let found = SysRegex::new(expression).is_ok_and(|expression| expression.find_iter("").next().is_some());
            found || LOOKS_AROUND.iter().any(|part| expression.contains(part))
        }
        _ => false,
    };
    match finds_nothing {
        true => {
            Err("`normalizer`: `Replace` may find something between two characters: give a pattern of characters"
                .into())
        }
        false => Ok(()),
    }
}

/// Number of characters that replace one where a pattern matches.
fn replaced(step: &Value) -> u64 {
    let content = characters(&step["content"]);
    match characters(&step["pattern"]["String"]) {
        // An expression may match between any two characters.
        0 => 1 + content,
        pattern => content.div_ceil(pattern).max(1),
    }
}

fn characters(text: &Value) -> u64 {
    text.as_str().map_or(0, |text| text.chars().count() as u64)
}
