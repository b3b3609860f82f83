//! What `generation_config.json` says about decoding.

use serde_json::{Map, Value};

/// The parts of a `generation_config.json` that decoding needs; the rest is kept and written back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Whether the prompt names language and task; English-only models have neither.
    pub is_multilingual: bool,
    /// Tokens never generated.
    pub suppress_tokens: Vec<u32>,
    /// Tokens never generated first.
    pub begin_suppress_tokens: Vec<u32>,
    /// The most tokens a sequence may have, prompt included; the decoder's positions if not given.
    pub max_length: Option<usize>,
    /// How many hypotheses are followed; 1 is greedy decoding.
    pub num_beams: Option<usize>,
    /// The exponent of a hypothesis' length that its log probability is divided by, with several beams.
    pub length_penalty: Option<f64>,
    /// No sequence of so many tokens comes twice; 0 or nothing allows all.
    pub no_repeat_ngram_size: Option<usize>,
    /// The language spoken when nobody says otherwise, as `en`.
    pub language: Option<String>,
    /// `transcribe` or `translate` when nobody says otherwise.
    pub task: Option<String>,
    /// What is read of a window is left out where its tokens' mean log probability is below this: where nobody sends, a model
    /// still finds something to write. Nothing is left out if not given.
    pub logprob_threshold: Option<f64>,
    raw: Map<String, Value>,
}

impl GenerationConfig {
    /// Nothing suppressed, no language or task of its own.
    pub fn new(is_multilingual: bool) -> Self {
        Self { is_multilingual, ..Self::default() }
    }

    /// Reads the file's object.
    pub fn from_json(raw: Map<String, Value>) -> Self {
        let number = |key: &str| raw.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let text = |key: &str| raw.get(key).and_then(Value::as_str).map(|s| s.trim_matches(['<', '|', '>']).to_owned());
        Self {
            is_multilingual: raw
                .get("is_multilingual")
                .and_then(Value::as_bool)
                .unwrap_or(raw.contains_key("lang_to_id")),
            suppress_tokens: ids(&raw, "suppress_tokens"),
            begin_suppress_tokens: ids(&raw, "begin_suppress_tokens"),
            max_length: number("max_length"),
            num_beams: number("num_beams"),
            no_repeat_ngram_size: number("no_repeat_ngram_size"),
            length_penalty: raw.get("length_penalty").and_then(Value::as_f64),
            language: text("language"),
            task: text("task"),
            logprob_threshold: raw.get("logprob_threshold").and_then(Value::as_f64),
            raw,
        }
    }

    /// The object to write to `generation_config.json`; language and task are in it, so that a fine-tuned model speaks
    /// what it was taught wherever it is loaded.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut raw = self.raw.clone();
        raw.insert("is_multilingual".into(), self.is_multilingual.into());
        let lists =
            [("suppress_tokens", &self.suppress_tokens), ("begin_suppress_tokens", &self.begin_suppress_tokens)];
        for (key, tokens) in lists {
            // One that says the same stays as it was written.
            if !raw.contains_key(key) || ids(&raw, key) != *tokens {
                raw.insert(key.into(), tokens.clone().into());
            }
        }
        if let Some(max_length) = self.max_length {
            raw.insert("max_length".into(), max_length.into());
        }
        if let Some(language) = &self.language {
            raw.insert("language".into(), format!("<|{language}|>").into());
        }
        if let Some(task) = &self.task {
            raw.insert("task".into(), task.clone().into());
        }
        if let Some(num_beams) = self.num_beams {
            raw.insert("num_beams".into(), num_beams.into());
        }
        if let Some(size) = self.no_repeat_ngram_size {
            raw.insert("no_repeat_ngram_size".into(), size.into());
        }
        if let Some(penalty) = self.length_penalty {
            raw.insert("length_penalty".into(), penalty.into());
        }
        if let Some(threshold) = self.logprob_threshold {
            raw.insert("logprob_threshold".into(), threshold.into());
        }
        raw
    }
}

/// A list of tokens.
fn ids(raw: &Map<String, Value>, key: &str) -> Vec<u32> {
    let list = raw.get(key).and_then(Value::as_array).into_iter().flatten();
    // transformers writes [-1] for "nothing".
    list.filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_does_not_know_survives() {
        let json = r#"{"is_multilingual": true, "suppress_tokens": [1, 2], "begin_suppress_tokens": [-1], "language": "<|de|>", "logprob_threshold": -0.5, "num_beams": 5, "length_penalty": 0.5, "alignment_heads": [[3, 0]]}"#;
        let config = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        assert_eq!((config.suppress_tokens.as_slice(), config.begin_suppress_tokens.len()), ([1, 2].as_slice(), 0));
        assert_eq!((config.language.as_deref(), config.logprob_threshold), (Some("de"), Some(-0.5)));
        assert_eq!((config.num_beams, config.length_penalty), (Some(5), Some(0.5)));
        let again = config.to_json();
        assert_eq!(again["alignment_heads"], serde_json::json!([[3, 0]]));
        assert_eq!(GenerationConfig::from_json(again.clone()).to_json(), again);
        let more = GenerationConfig { suppress_tokens: vec![1, 2, 9], no_repeat_ngram_size: Some(3), ..config };
        let again = more.to_json();
        assert_eq!(again["begin_suppress_tokens"], serde_json::json!([-1]), "what says the same stays as it was");
        let read = GenerationConfig::from_json(again);
        assert_eq!((read.suppress_tokens, read.no_repeat_ngram_size), (vec![1, 2, 9], Some(3)));
    }
}
