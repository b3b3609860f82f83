//! Regular expressions of a tokenizer.

use serde_json::Value;

/// Maximum total cost of a file's expressions. Those of Whisper, GPT-4 and Llama 3 cost some hundred.
const MOST_COST: usize = 100_000;

/// Rejects expressions whose compiled automata would take much memory.
///
/// # Errors
/// States their total cost.
pub fn check(json: &Value) -> Result<(), String> {
    let cost = all(json);
    match cost > MOST_COST {
        true => Err(format!(
            "its regular expressions are as large as {cost} characters, and {MOST_COST} is the most: give shorter ones, \
             or ones that repeat less"
        )),
        false => Ok(()),
    }
}

/// Total cost of all expressions, at any depth.
fn all(json: &Value) -> usize {
    match json {
        Value::Object(fields) => {
            let own = fields.get("Regex").and_then(Value::as_str).map_or(0, cost);
            fields.values().map(all).fold(own, usize::saturating_add)
        }
        Value::Array(values) => values.iter().map(all).fold(0, usize::saturating_add),
        _ => 0,
    }
}

/// Cost of an expression: its characters times every repetition count in it, because repetitions may be nested.
fn cost(expression: &str) -> usize {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut cost = expression.chars().count();
    for (at, _) in expression.match_indices('{') {
        let (before, after) = (&expression[..at], &expression[at + 1..]);
        // `\x{20}` is a character, not a repetition.
        if before.ends_with("\\x") || before.ends_with("\\u") {
            continue;
        }
        let counts = after.split('}').next().unwrap_or_default().split(',').filter(is_number);
        let most = counts.map(|count| count.parse().unwrap_or(usize::MAX)).max();
        cost = cost.saturating_mul(most.unwrap_or(1).max(1));
    }
    cost
}
