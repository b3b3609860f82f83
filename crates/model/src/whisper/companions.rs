//! Files of a Whisper folder that other programs read and that follow from its configuration and tokenizer.

use super::{GenerationConfig, WhisperConfig, WhisperTokenizer};
use crate::folder::pretty;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Number of samples per second, and of samples between two mel frames.
const SAMPLE_RATE: usize = 16_000;
const HOP: usize = 160;

/// Token that stands for the roles that Whisper has no own token for.
const END: &str = "<|endoftext|>";

/// Returns the small files of a folder by name: the preprocessor's and tokenizer's settings, and the vocabulary as
/// programs without a reader of `tokenizer.json` expect it.
pub(super) fn companions(config: &WhisperConfig, tokenizer: &WhisperTokenizer) -> BTreeMap<String, Vec<u8>> {
    let mut files = vocabulary(tokenizer);
    files.insert("preprocessor_config.json".into(), bytes(&preprocessor(config)));
    files.insert("tokenizer_config.json".into(), bytes(&tokenizer_settings(config)));
    files
}

/// Attention heads of the decoder that follow the audio, as `[layer, head]`: OpenAI's choice for a model of its sizes,
/// and else all heads of the last half of the layers, which is what openai-whisper uses for a model that it does not
/// know.
///
/// Large-v1 and large-v2 have the same sizes and different heads, so they get the general choice. It is no worse one:
/// measured on 465 words of a synthesiser that says when each begins, word onsets of tiny.en are off by 78 ms in the mean
/// with the last half of the layers, by 65 ms with all heads, and by 114 ms with OpenAI's
/// (`fixtures/alignment_heads.py`).
pub(super) fn alignment_heads(config: &WhisperConfig) -> Vec<[usize; 2]> {
    let (layers, heads) = (config.decoder_layers, config.decoder_attention_heads);
    // Layers, and their heads.
    let known: &[(usize, &[usize])] = match (layers, heads, config.vocab_size) {
        (4, 6, 51864) => &[(1, &[0]), (2, &[0, 5]), (3, &[0, 1, 2, 3, 4])],
        (4, 6, 51865) => &[(2, &[2]), (3, &[0, 2, 3, 4, 5])],
        (6, 8, 51864) => &[(3, &[3]), (4, &[7]), (5, &[1, 5, 7])],
        (6, 8, 51865) => &[(3, &[1]), (4, &[2, 3, 7]), (5, &[1, 2, 4, 6])],
        (12, 12, 51864) => SMALL_EN,
        (12, 12, 51865) => &[(5, &[3, 9]), (8, &[0, 4, 7, 8]), (9, &[0, 7, 9]), (10, &[5])],
        (24, 16, 51864) => MEDIUM_EN,
        (24, 16, 51865) => &[(13, &[15]), (15, &[4, 15]), (16, &[1]), (20, &[0]), (23, &[4])],
        (32, 20, 51866) => LARGE_V3,
        (4, 20, 51866) => &[(2, &[4, 11]), (3, &[3, 6, 11, 14])],
        _ => &[],
    };
    if known.is_empty() {
        return (layers / 2..layers).flat_map(|layer| (0..heads).map(move |head| [layer, head])).collect();
    }
    known.iter().flat_map(|(layer, heads)| heads.iter().map(|head| [*layer, *head])).collect()
}

const SMALL_EN: &[(usize, &[usize])] =
    &[(6, &[6]), (7, &[0, 3, 8]), (8, &[2, 5, 7]), (9, &[0, 4, 8, 10]), (10, &[0, 1, 2, 3, 6, 11]), (11, &[2, 4])];

const MEDIUM_EN: &[(usize, &[usize])] = &[
    (11, &[4]),
    (14, &[1, 12, 14]),
    (15, &[4]),
    (16, &[0, 4, 9]),
    (17, &[12, 14]),
    (18, &[7, 10, 15]),
    (20, &[0, 3, 9, 14]),
    (21, &[12]),
];

const LARGE_V3: &[(usize, &[usize])] = &[
    (7, &[0]),
    (10, &[17]),
    (12, &[18]),
    (13, &[12]),
    (16, &[1]),
    (17, &[14]),
    (19, &[11]),
    (21, &[4]),
    (24, &[1]),
    (25, &[6]),
];

/// Returns `generation_config.json` with every key that transformers' Whisper and CTranslate2's converter read; existing
/// values are kept.
///
/// `forced_decoder_ids` is left out: fine-tuned models carry those of the model they started from, and transformers
/// would write another language or task than `language` and `task` say.
pub(super) fn generation_json(
    generation: &GenerationConfig,
    config: &WhisperConfig,
    tokenizer: &WhisperTokenizer,
) -> Map<String, Value> {
    let mut json = generation.to_json();
    // With the second, transformers would drop all keys that are not its own.
    for key in ["forced_decoder_ids", "_from_model_config"] {
        json.remove(key);
    }
    // Without one, transformers leaves the task out of the prompt.
    if generation.is_multilingual && json.get("task").is_none_or(Value::is_null) {
        json.insert("task".into(), "transcribe".into());
    }
    // Up to version 4 transformers counts the prompt in `max_length`, and from 5 on it does not: this key means the same in all.
    if generation.max_length.is_some_and(|limit| limit < config.max_target_positions) {
        json.insert("max_new_tokens".into(), generation.max_new_tokens().into());
        json.remove("max_length");
    }
    let mut default = |key: &str, value: Value| {
        json.entry(key).or_insert(value);
    };
    default("decoder_start_token_id", config.decoder_start_token_id.into());
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        default(key, config.eos_token_id.into());
    }
    default("max_length", config.max_target_positions.into());
    default("alignment_heads", json!(alignment_heads(config)));
    for (key, token) in [("no_timestamps_token_id", "<|notimestamps|>"), ("prev_sot_token_id", "<|startofprev|>")] {
        if let Some(id) = tokenizer.special_token(token) {
            default(key, id.into());
        }
    }
    if generation.is_multilingual {
        default("lang_to_id", json!(tokenizer.languages()));
        let task = |task: &str| Some((task.to_owned(), tokenizer.special_token(&format!("<|{task}|>"))?));
        let tasks: BTreeMap<String, u32> = ["transcribe", "translate"].into_iter().filter_map(task).collect();
        default("task_to_id", json!(tasks));
    }
    json
}

/// Settings of transformers' `WhisperFeatureExtractor`.
fn preprocessor(config: &WhisperConfig) -> Value {
    let window = config.max_frames() * HOP;
    json!({
        "feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor",
        "feature_size": config.num_mel_bins, "sampling_rate": SAMPLE_RATE, "n_fft": 400, "hop_length": HOP,
        "chunk_length": window.div_ceil(SAMPLE_RATE), "n_samples": window, "nb_max_frames": config.max_frames(),
        "padding_side": "right", "padding_value": 0.0, "return_attention_mask": false,
    })
}

/// Settings of transformers' `WhisperTokenizer`.
fn tokenizer_settings(config: &WhisperConfig) -> Value {
    json!({
        "tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", "bos_token": END, "eos_token": END,
        "pad_token": END, "unk_token": END, "add_prefix_space": false,
        "model_max_length": config.max_target_positions, "clean_up_tokenization_spaces": false,
    })
}

/// `vocab.json`, `merges.txt`, `added_tokens.json` and `special_tokens_map.json` of a byte-pair vocabulary; nothing for
/// other ones.
fn vocabulary(tokenizer: &WhisperTokenizer) -> BTreeMap<String, Vec<u8>> {
    let json: Value = serde_json::from_slice(tokenizer.to_bytes()).unwrap_or_default();
    let (Some(vocab), Some(merges)) = (json["model"]["vocab"].as_object(), json["model"]["merges"].as_array()) else {
        return BTreeMap::new();
    };
    let tokens: Vec<(&str, &Value, bool)> = json["added_tokens"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|token| Some((token["content"].as_str()?, &token["id"], token["special"].as_bool()?)))
        .collect();
    let added: Map<String, Value> = tokens
        .iter()
        .filter(|(content, ..)| !vocab.contains_key(*content))
        .map(|(content, id, _)| ((*content).to_owned(), (*id).clone()))
        .collect();
    let special: Vec<&str> = tokens.iter().filter(|(.., special)| *special).map(|(content, ..)| *content).collect();
    let map = json!({
        "bos_token": END, "eos_token": END, "pad_token": END, "unk_token": END, "additional_special_tokens": special,
    });
    BTreeMap::from([
        ("vocab.json".into(), Value::Object(vocab.clone()).to_string().into_bytes()),
        ("merges.txt".into(), merges_text(merges).into_bytes()),
        ("added_tokens.json".into(), pretty(added)),
        ("special_tokens_map.json".into(), bytes(&map)),
    ])
}

/// Returns the lines of `merges.txt`. A `tokenizer.json` has them as pairs, or in older files as `first second`.
fn merges_text(merges: &[Value]) -> String {
    let mut text = "#version: 0.2\n".to_owned();
    for merge in merges {
        match merge {
            Value::Array(pair) => text.push_str(&pair.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
            merge => text.push_str(merge.as_str().unwrap_or_default()),
        }
        text.push('\n');
    }
    text
}

fn bytes(json: &Value) -> Vec<u8> {
    format!("{json:#}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(layers: usize, heads: usize, vocab_size: usize) -> WhisperConfig {
        WhisperConfig { vocab_size, ..WhisperConfig::new(64 * heads, 256 * heads, heads, [layers, layers]) }
    }

    #[test]
    fn heads_are_openais_for_its_sizes_and_else_those_of_the_last_half() {
        assert_eq!(alignment_heads(&sized(4, 6, 51864))[..2], [[1, 0], [2, 0]]);
        assert_eq!(alignment_heads(&sized(4, 6, 51865))[..2], [[2, 2], [3, 0]]);
        assert_eq!(alignment_heads(&sized(4, 20, 51866)).len(), 6, "large-v3-turbo");
        assert_eq!(alignment_heads(&sized(3, 2, 40)), [[1, 0], [1, 1], [2, 0], [2, 1]]);
        for (layers, heads, vocab) in [(4, 6, 51864), (6, 8, 51864), (12, 12, 51864), (24, 16, 51864), (32, 20, 51866)]
        {
            let known = alignment_heads(&sized(layers, heads, vocab));
            assert!(known.iter().all(|[layer, head]| *layer < layers && *head < heads), "{layers} layers: {known:?}");
            assert!(known.is_sorted() && known.len() < layers * heads / 2, "{layers} layers: {known:?}");
        }
    }

    #[test]
    fn stale_forced_tokens_are_dropped_and_heads_that_are_there_stay() {
        let json = r#"{"forced_decoder_ids": [[1, 50259]], "alignment_heads": [[0, 1]], "suppress_tokens": [3]}"#;
        let generation = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        let tokenizer = WhisperTokenizer::of_characters(" AB", &["en"]).expect("a tokenizer");
        let written = generation_json(&generation, &sized(2, 2, tokenizer.vocab_size()), &tokenizer);
        assert!(!written.contains_key("forced_decoder_ids"));
        assert_eq!((&written["alignment_heads"], &written["suppress_tokens"]), (&json!([[0, 1]]), &json!([3])));
        assert_eq!(written["no_timestamps_token_id"], json!(tokenizer.special_token("<|notimestamps|>")));
    }

    #[test]
    fn a_limit_is_written_so_that_every_version_counts_it_alike() {
        let tokenizer = WhisperTokenizer::of_characters(" AB", &["en"]).expect("a tokenizer");
        let written = |json: &str| {
            let generation = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
            generation_json(&generation, &sized(2, 2, tokenizer.vocab_size()), &tokenizer)
        };
        let limits = |json: &Map<String, Value>| [json.get("max_new_tokens").cloned(), json.get("max_length").cloned()];
        for (given, new) in [
            (r#"{"max_length": 12}"#, 10),
            (r#"{"max_length": 12, "is_multilingual": true}"#, 8),
            (r#"{"max_new_tokens": 3}"#, 3),
        ] {
            let json = written(given);
            assert_eq!(limits(&json), [Some(json!(new)), Some(json!(448))], "{given}");
            let [before, after] =
                [serde_json::from_str(given).expect("an object"), json].map(GenerationConfig::from_json);
            assert_eq!(before.max_length, after.max_length, "{given}");
        }
        assert_eq!(limits(&written(r#"{"max_length": 448}"#)), [None, Some(json!(448))]);
    }

    #[test]
    fn settings_from_before_they_had_a_file_of_their_own_are_written_whole() {
        let json = r#"{"_from_model_config": true, "is_multilingual": true, "task": null}"#;
        let generation = GenerationConfig::from_json(serde_json::from_str(json).expect("an object"));
        let tokenizer = WhisperTokenizer::of_characters(" AB", &["en", "de"]).expect("a tokenizer");
        let written = generation_json(&generation, &sized(2, 2, tokenizer.vocab_size()), &tokenizer);
        assert!(!written.contains_key("_from_model_config"), "transformers would drop what is not its own");
        assert_eq!(
            (&written["task"], written["lang_to_id"].as_object().map(Map::len)),
            (&json!("transcribe"), Some(2))
        );
        let english = generation_json(&GenerationConfig::new(false), &sized(2, 2, 60), &tokenizer);
        assert!(!english.contains_key("task"));
    }

    #[test]
    fn the_vocabulary_is_that_of_the_tokenizer() {
        let texts = ["the cat", "the hat", "that"].repeat(10);
        let tokenizer = WhisperTokenizer::train(texts.iter().copied(), 262, &["en"], 3).expect("a tokenizer");
        let files = companions(&sized(2, 2, tokenizer.vocab_size()), &tokenizer);
        let json = |name: &str| -> Value { serde_json::from_slice(&files[name]).expect(name) };
        let (vocab, added) = (json("vocab.json"), json("added_tokens.json"));
        let merges = String::from_utf8(files["merges.txt"].clone()).expect("text");
        assert_eq!(vocab.as_object().map(Map::len), Some(262));
        assert!(merges.starts_with("#version: 0.2\n") && merges.lines().count() == 1 + 6, "{merges}");
        assert!(merges.lines().skip(1).all(|line| vocab.get(line.replace(' ', "")).is_some()), "{merges}");
        assert_eq!(added["<|endoftext|>"], json!(262));
        assert_eq!(
            vocab.as_object().map_or(0, Map::len) + added.as_object().map_or(0, Map::len),
            tokenizer.vocab_size()
        );
        // transformers takes what follows the last special token for times.
        let special = &json("special_tokens_map.json")["additional_special_tokens"];
        assert!(special.as_array().is_some_and(|all| !all.contains(&json!("<|0.00|>"))), "{special}");
        assert!(special.as_array().is_some_and(|all| all.contains(&json!("<|startoftranscript|>"))), "{special}");
        assert_eq!(json("preprocessor_config.json")["feature_size"], json!(80));
    }
}
