//! Settings of `generation_config.json` for decoding.

use super::language::language_code;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Keys of `generation_config.json` that decoding needs; other keys are kept and written back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Whether the prompt contains language and task; English-only models have neither.
    pub is_multilingual: bool,
    /// Tokens that are never generated.
    pub suppress_tokens: Vec<u32>,
    /// Tokens that are never generated first.
    pub begin_suppress_tokens: Vec<u32>,
    /// Maximum number of tokens of a sequence, prompt included; by default the decoder's positions.
    pub max_length: Option<usize>,
    /// Number of beams; 1 is greedy decoding.
    pub num_beams: Option<usize>,
    /// Exponent of the length by which a hypothesis' log probability is divided, with several beams.
    pub length_penalty: Option<f64>,
    /// Size of n-grams that must not repeat; 0 or no value allows all repetitions.
    pub no_repeat_ngram_size: Option<usize>,
    /// Default language of the speech, such as `en`.
    pub language: Option<String>,
    /// Default task, `transcribe` or `translate`.
    pub task: Option<String>,
    /// Minimum mean log probability of a window's tokens; the text of a window below it is dropped. Without speech a
    /// model still writes something. By default nothing is dropped.
    pub min_mean_logprob: Option<f64>,
    /// Name of the reader of a model that reads something other than speech. It prepares the audio for the model.
    pub reader: Option<String>,
    raw: Map<String, Value>,
}

/// Names of the tasks.
pub(super) const TASKS: [&str; 2] = ["transcribe", "translate"];

const MIN_MEAN_LOGPROB: &str = "min_mean_logprob";

/// Key that earlier versions wrote instead. transformers has a setting of that name, and its `generate` fails on a model that brings it along.
const OLD_THRESHOLD: &str = "logprob_threshold";

impl GenerationConfig {
    /// Creates a configuration that suppresses nothing and has no default language or task.
    pub fn new(is_multilingual: bool) -> Self {
        Self { is_multilingual, ..Self::default() }
    }

    /// Reads the file's JSON object.
    pub fn from_json(raw: Map<String, Value>) -> Self {
        let number = |key: &str| raw.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let is_multilingual = raw.get("is_multilingual").and_then(Value::as_bool);
        let is_multilingual = is_multilingual.unwrap_or(raw.contains_key("lang_to_id"));
        let most_new = number("max_new_tokens").map(|most| most.saturating_add(prompt_tokens(is_multilingual)));
        let text = |key: &str| raw.get(key).and_then(Value::as_str).map(|s| s.trim_matches(['<', '|', '>']).to_owned());
        Self {
            is_multilingual,
            suppress_tokens: ids(&raw, "suppress_tokens"),
            begin_suppress_tokens: ids(&raw, "begin_suppress_tokens"),
            max_length: most_new.or(number("max_length")),
            num_beams: number("num_beams"),
            no_repeat_ngram_size: number("no_repeat_ngram_size"),
            length_penalty: raw.get("length_penalty").and_then(Value::as_f64),
            language: text("language").map(|given| language_code(&given).into_owned()),
            task: text("task"),
            min_mean_logprob: [MIN_MEAN_LOGPROB, OLD_THRESHOLD].iter().find_map(|key| raw.get(*key)?.as_f64()),
            reader: raw.get("reader").and_then(Value::as_str).map(str::to_owned),
            raw,
        }
    }

    /// Returns the maximum number of tokens after the prompt, if there is a limit.
    pub(super) fn max_new_tokens(&self) -> Option<usize> {
        Some(self.max_length?.saturating_sub(prompt_tokens(self.is_multilingual)).max(1))
    }

    /// Takes language and task from the tokens of `forced_decoder_ids`, where they are not given, as transformers does. `known` are
    /// the tokens of languages and tasks, such as `<|de|>`, by id.
    pub(super) fn take_forced(&mut self, known: &BTreeMap<u32, String>) {
        let forced = self.raw.get("forced_decoder_ids").and_then(Value::as_array).into_iter().flatten();
        let forced = forced.filter_map(|pair| known.get(&u32::try_from(pair.get(1)?.as_u64()?).ok()?));
        let forced = forced.map(|token| token.trim_matches(['<', '|', '>']).to_owned());
        let (mut tasks, mut languages): (Vec<String>, Vec<String>) =
            forced.partition(|token| TASKS.contains(&token.as_str()));
        self.task = self.task.take().or(tasks.pop());
        self.language = self.language.take().or(languages.pop());
    }

    /// Settings of the file that change what transformers writes, and that decoding here does not have.
    pub fn ignored(&self) -> Vec<&'static str> {
        let is_set = |key: &&str| match self.raw.get(*key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            // A penalty of 1 is none, and neither is a length of 0.
            Some(value) => value.as_f64().is_none_or(|value| value != 0.0 && value != 1.0),
        };
        let of_transformers = [
            "repetition_penalty", "do_sample", "bad_words_ids", "sequence_bias", "min_length", "min_new_tokens",
            "exponential_decay_length_penalty", "return_timestamps",
        ];
        of_transformers.into_iter().filter(is_set).collect()
    }

    /// Returns the attention heads that follow the audio, as layer and head, if the file has them.
    pub fn alignment_heads(&self) -> Vec<(usize, usize)> {
        let heads = self.raw.get("alignment_heads").cloned().unwrap_or_default();
        serde_json::from_value(heads).unwrap_or_default()
    }

    /// Leaves out the attention heads of all but these layers of the decoder, which are numbered anew.
    pub(super) fn keep_layers(&mut self, kept: &[usize]) {
        let heads = self.alignment_heads().into_iter();
        let heads = heads.filter_map(|(layer, head)| Some((kept.iter().position(|kept| *kept == layer)?, head)));
        let heads: Vec<Value> = heads.map(|(layer, head)| vec![layer, head].into()).collect();
        match heads.is_empty() {
            true => self.raw.remove("alignment_heads"),
            false => self.raw.insert("alignment_heads".into(), heads.into()),
        };
    }

    /// Returns the JSON object for `generation_config.json`. It contains language and task, so that a fine-tuned model
    /// uses those that it was trained for wherever it is loaded.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut raw = self.raw.clone();
        raw.insert("is_multilingual".into(), self.is_multilingual.into());
        let lists =
            [("suppress_tokens", &self.suppress_tokens), ("begin_suppress_tokens", &self.begin_suppress_tokens)];
        for (key, tokens) in lists {
            // An equal list stays as it was written.
            if !raw.contains_key(key) || ids(&raw, key) != *tokens {
                raw.insert(key.into(), tokens.clone().into());
            }
        }
        // It is in `max_length`, and would come before it.
        raw.remove("max_new_tokens");
        raw.remove(OLD_THRESHOLD);
        let given: [(&str, Option<Value>); 8] = [
            ("max_length", self.max_length.map(Value::from)),
            ("language", self.language.as_ref().map(|language| format!("<|{language}|>").into())),
            ("task", self.task.clone().map(Value::from)),
            ("num_beams", self.num_beams.map(Value::from)),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size.map(Value::from)),
            ("length_penalty", self.length_penalty.map(Value::from)),
            (MIN_MEAN_LOGPROB, self.min_mean_logprob.map(Value::from)),
            ("reader", self.reader.clone().map(Value::from)),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                raw.insert(key.into(), value);
            }
        }
        raw
    }
}

/// Number of tokens that are no new ones: start, language, task, and the token for no timestamps.
fn prompt_tokens(is_multilingual: bool) -> usize {
    if is_multilingual { 4 } else { 2 }
}

/// Returns a list of tokens.
fn ids(raw: &Map<String, Value>, key: &str) -> Vec<u32> {
    let list = raw.get(key).and_then(Value::as_array).into_iter().flatten();
    // transformers writes [-1] for an empty list.
    list.filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_does_not_know_survives() {
        let json = r#"{"is_multilingual": true, "suppress_tokens": [1, 2], "begin_suppress_tokens": [-1], "language": "<|de|>", "min_mean_logprob": -0.5, "num_beams": 5, "length_penalty": 0.5, "alignment_heads": [[3, 0]]}"#;
        let config = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        assert_eq!((config.suppress_tokens.as_slice(), config.begin_suppress_tokens.len()), ([1, 2].as_slice(), 0));
        assert_eq!((config.language.as_deref(), config.min_mean_logprob), (Some("de"), Some(-0.5)));
        assert_eq!((config.num_beams, config.length_penalty), (Some(5), Some(0.5)));
        assert_eq!(config.alignment_heads(), [(3, 0)]);
        let again = config.to_json();
        assert_eq!(again["alignment_heads"], serde_json::json!([[3, 0]]));
        assert_eq!(GenerationConfig::from_json(again.clone()).to_json(), again);
        let more = GenerationConfig { suppress_tokens: vec![1, 2, 9], no_repeat_ngram_size: Some(3), ..config };
        let again = more.to_json();
        assert_eq!(again["begin_suppress_tokens"], serde_json::json!([-1]), "what says the same stays as it was");
        let read = GenerationConfig::from_json(again);
        assert_eq!((read.suppress_tokens, read.no_repeat_ngram_size), (vec![1, 2, 9], Some(3)));
    }

    #[test]
    fn forced_tokens_say_language_and_task_unless_they_are_given() {
        let read = |json: &str| {
            let mut config = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
            config.take_forced(&BTreeMap::from([(1, "<|es|>".into()), (2, "<|translate|>".into())]));
            (config.language, config.task)
        };
        let forced = |ids: &str, more: &str| read(&format!(r#"{{"forced_decoder_ids": {ids}{more}}}"#));
        assert_eq!(forced("[[1, 1], [2, 2], [3, 3]]", ""), (Some("es".into()), Some("translate".into())));
        assert_eq!(forced("[[1, null], [2, 2]]", ""), (None, Some("translate".into())));
        assert_eq!(forced("null", ""), (None, None));
        let given = forced("[[1, 1], [2, 2]]", r#", "language": "german", "task": "transcribe""#);
        assert_eq!(given, (Some("de".into()), Some("transcribe".into())));
    }

    #[test]
    fn new_tokens_are_counted_without_the_prompt() {
        let read = |json: &str| GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        assert_eq!(read(r#"{"max_new_tokens": 8, "max_length": 448, "is_multilingual": true}"#).max_length, Some(12));
        assert_eq!(read(r#"{"max_new_tokens": null, "max_length": 448}"#).max_length, Some(448));
        assert_eq!(read(r#"{"repetition_penalty": 1.5, "do_sample": false}"#).ignored(), ["repetition_penalty"]);
        assert!(read(r#"{"repetition_penalty": 1, "bad_words_ids": null, "min_length": 0}"#).ignored().is_empty());
        let others =
            r#"{"min_new_tokens": 5, "exponential_decay_length_penalty": [3, 1.5], "return_timestamps": true}"#;
        assert_eq!(read(others).ignored().len(), 3);
        let mut changed = read(r#"{"max_new_tokens": 8, "is_multilingual": true}"#);
        changed.max_length = Some(100);
        assert_eq!(GenerationConfig::from_json(changed.to_json()).max_length, Some(100), "that of the changed model");
    }

    #[test]
    fn a_language_that_is_given_by_name_is_its_code() {
        for given in ["hindi", "Hindi", "<|hi|>", "hi"] {
            let json = serde_json::json!({"language": given}).as_object().cloned().expect("an object");
            let config = GenerationConfig::from_json(json);
            assert_eq!(config.language.as_deref(), Some("hi"), "{given}");
            assert_eq!(config.to_json()["language"], "<|hi|>");
        }
    }

    #[test]
    fn the_threshold_of_earlier_versions_is_read_and_written_under_a_name_that_transformers_does_not_know() {
        let old = serde_json::from_str(r#"{"logprob_threshold": -0.69}"#).expect("an object");
        let config = GenerationConfig::from_json(old);
        assert_eq!(config.min_mean_logprob, Some(-0.69));
        let written = config.to_json();
        assert_eq!((written.get("logprob_threshold"), written["min_mean_logprob"].as_f64()), (None, Some(-0.69)));
    }
}
