//! Templates of tokens that a tokenizer adds to texts.

use serde_json::Value;

/// Maximum number of tokens that a template may add. Whisper's and BERT's add two or three.
const MOST_ADDED: usize = 64;

/// Rejects a post-processor, or a list of them, with which the library would panic, or that would repeat texts.
///
/// # Errors
/// Describes the error of the template.
pub fn check(processor: &Value) -> Result<(), String> {
    if let Some(processors) = processor.get("processors").and_then(Value::as_array) {
        // Each one adds to the output of those before it.
        if processors.len() > MOST_ADDED {
            return Err(format!("it is a list of {}, and {MOST_ADDED} is the most", processors.len()));
        }
        // The output of one is not a valid input of another.
        if templates(processor) > 1 {
            return Err("it is a list with several templates, and one is the most".into());
        }
        processors.iter().try_for_each(check)?;
    }
    let tokens = &processor["special_tokens"];
    for (name, texts) in [("single", ["A"].as_slice()), ("pair", &["A", "B"])] {
        let Some(pieces) = processor.get(name).and_then(Value::as_array) else { continue };
        check_template(pieces, texts, tokens).map_err(|e| format!("the template `{name}` {e}"))?;
    }
    Ok(())
}

/// Number of templates in a post-processor, at any depth of lists.
fn templates(processor: &Value) -> usize {
    let own = usize::from(processor.get("single").is_some() || processor.get("pair").is_some());
    let below = processor.get("processors").and_then(Value::as_array).into_iter().flatten();
    own + below.map(templates).sum::<usize>()
}

fn check_template(pieces: &[Value], texts: &[&str], tokens: &Value) -> Result<(), String> {
    let (mut seen, mut added) = (Vec::new(), 0);
    for piece in pieces {
        if let Some(text) = piece["Sequence"]["id"].as_str() {
            if !texts.contains(&text) || seen.contains(&text) {
                return Err(format!("uses the text {text} where there is none, or more than once"));
            }
            seen.push(text);
        }
        if let Some(token) = piece["SpecialToken"]["id"].as_str() {
            let count = |key: &str| tokens[token][key].as_array().map(Vec::len);
            match (count("ids"), count("tokens")) {
                (Some(ids), Some(tokens)) if ids == tokens => added += ids,
                _ => return Err(format!("has `{token}`, of which `special_tokens` does not have ids and tokens")),
            }
        }
    }
    match added > MOST_ADDED {
        true => Err(format!("adds {added} tokens to a text, and {MOST_ADDED} is the most")),
        false => Ok(()),
    }
}
