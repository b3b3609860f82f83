//! Dimensions of a text encoder, under Hugging Face's names.

use crate::config_error::{ConfigError, invalid, read_known};
use crate::limits::{LARGEST_DIMENSION, MOST_LAYERS, MOST_NEW_PARAMETERS, MOST_PARAMETERS, MOST_POSITIONS};
use crate::shapes::{Asked, linear, norm};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Family of encoders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextModelType {
    /// Positions count from 0. MiniLM belongs to it.
    #[default]
    #[serde(rename = "bert")]
    Bert,
    /// Positions count from `pad_token_id + 1` and skip padding.
    #[serde(rename = "roberta")]
    Roberta,
    /// RoBERTa with a multilingual vocabulary.
    #[serde(rename = "xlm-roberta")]
    XlmRoberta,
    /// RoBERTa for French, under another name.
    #[serde(rename = "camembert")]
    Camembert,
    /// BERT without types of texts (Sanh et al., 2019), with names of its own.
    #[serde(rename = "distilbert")]
    Distilbert,
}

impl TextModelType {
    /// Beginning of the names of transformers' classes.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Bert => "Bert",
            Self::Roberta => "Roberta",
            Self::XlmRoberta => "XLMRoberta",
            Self::Camembert => "Camembert",
            Self::Distilbert => "DistilBert",
        }
    }

    /// Whether it is a kind of BERT: positions count from 0, and padding is only masked.
    pub(super) fn is_bert(self) -> bool {
        matches!(self, Self::Bert | Self::Distilbert)
    }

    /// Prefix of the encoder's tensors in files that also hold a head.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Bert => "bert.",
            Self::Roberta | Self::XlmRoberta | Self::Camembert => "roberta.",
            Self::Distilbert => "distilbert.",
        }
    }

    fn default_pad(self) -> u32 {
        u32::from(!self.is_bert())
    }
}

/// Keys of a `config.json`, and those that DistilBERT has in their place.
const OF_DISTILBERT: [(&str, &str); 7] = [
    ("hidden_size", "dim"),
    ("num_hidden_layers", "n_layers"),
    ("num_attention_heads", "n_heads"),
    ("intermediate_size", "hidden_dim"),
    ("hidden_dropout_prob", "dropout"),
    ("attention_probs_dropout_prob", "attention_dropout"),
    ("hidden_act", "activation"),
];

/// Keys that DistilBERT does not have: it has no types of texts, and one epsilon.
const NOT_OF_DISTILBERT: [&str; 2] = ["type_vocab_size", "layer_norm_eps"];

/// Dimensions of a BERT or RoBERTa encoder; the defaults are those of BERT base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextEncoderConfig {
    /// Family of the encoder.
    pub model_type: TextModelType,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Number of attention heads.
    pub num_attention_heads: usize,
    /// Width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Rows of the position table; RoBERTa reserves the first `pad_token_id + 1` of them for padding.
    pub max_position_embeddings: usize,
    /// Number of segment types.
    pub type_vocab_size: usize,
    /// Epsilon that layer norm adds to the variance.
    pub layer_norm_eps: f64,
    /// Dropout after embeddings, attention and feed-forward layers, in training.
    pub hidden_dropout_prob: f64,
    /// Dropout on attention weights, in training.
    pub attention_probs_dropout_prob: f64,
    /// Standard deviation of freshly initialised weights.
    pub initializer_range: f64,
    /// Padding token of a batch.
    pub pad_token_id: u32,
}

impl Default for TextEncoderConfig {
    fn default() -> Self {
        Self {
            model_type: TextModelType::Bert,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            vocab_size: 30522,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            initializer_range: 0.02,
            pad_token_id: 0,
        }
    }
}

impl TextEncoderConfig {
    /// Dimensions of an encoder of this width, with feed-forward layers of width `intermediate_size`, attentions with so
    /// many heads, and `layers` blocks; everything else is as in BERT base.
    pub fn new(hidden_size: usize, intermediate_size: usize, heads: usize, layers: usize) -> Self {
        Self {
            hidden_size,
            intermediate_size,
            num_attention_heads: heads,
            num_hidden_layers: layers,
            ..Default::default()
        }
    }

    /// Checks that the dimensions fit together.
    ///
    /// # Errors
    /// Names the first invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("type_vocab_size", self.type_vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            if value == 0 {
                return Err(invalid(self.key(key), value, "must be at least 1"));
            }
            let most = if key == "max_position_embeddings" { MOST_POSITIONS } else { LARGEST_DIMENSION };
            if value > most {
                return Err(invalid(self.key(key), value, &format!("must be at most {most}")));
            }
        }
        if self.num_hidden_layers > MOST_LAYERS {
            let rule = format!("must be at most {MOST_LAYERS}");
            return Err(invalid(self.key("num_hidden_layers"), self.num_hidden_layers, &rule));
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let rule = format!("must divide {}, which is {}", self.key("hidden_size"), self.hidden_size);
            return Err(invalid(self.key("num_attention_heads"), self.num_attention_heads, &rule));
        }
        if self.max_position_embeddings <= self.first_position() {
            let rule = format!("must be above {}, where positions begin", self.first_position());
            return Err(invalid("max_position_embeddings", self.max_position_embeddings, &rule));
        }
        let parameters = self.parameters();
        if parameters > u128::from(MOST_PARAMETERS) {
            let rule = format!("makes a model of {parameters} parameters, and there is none above {MOST_PARAMETERS}");
            return Err(invalid(self.key("hidden_size"), self.hidden_size, &rule));
        }
        for (key, p) in [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(invalid(self.key(key), p, "must be at least 0 and below 1"));
            }
        }
        for (key, value) in [("layer_norm_eps", self.layer_norm_eps), ("initializer_range", self.initializer_range)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(invalid(self.key(key), value, "must be above 0"));
            }
        }
        if self.pad_token_id as usize >= self.vocab_size {
            let rule = format!("must be below vocab_size, which is {}", self.vocab_size);
            return Err(invalid("pad_token_id", self.pad_token_id, &rule));
        }
        Ok(())
    }

    /// Rejects a model with more parameters than may be initialised.
    pub(super) fn check_new(&self) -> Result<(), ConfigError> {
        let parameters = self.parameters();
        match parameters > u128::from(MOST_NEW_PARAMETERS) {
            true => Err(ConfigError::TooLarge { parameters, fewer: "layers" }),
            false => Ok(()),
        }
    }

    fn parameters(&self) -> u128 {
        let count = |tensors: Vec<Asked>| tensors.iter().map(Asked::count).fold(0, u128::saturating_add);
        count(self.embeddings()).saturating_add(count(self.layer(0)).saturating_mul(self.num_hidden_layers as u128))
    }

    /// Tensors of the network with their paths.
    pub(super) fn tensors(&self) -> impl Iterator<Item = Asked> {
        self.embeddings().into_iter().chain((0..self.num_hidden_layers).flat_map(|layer| self.layer(layer)))
    }

    /// Name in its `config.json` of what is `key` in BERT's.
    fn key(&self, key: &'static str) -> &'static str {
        let own = OF_DISTILBERT.iter().find(|(berts, _)| *berts == key && !self.has_types());
        own.map_or(key, |(_, own)| own)
    }

    /// Whether the first and the second text of a pair have different types.
    pub(super) fn has_types(&self) -> bool {
        self.model_type != TextModelType::Distilbert
    }

    fn embeddings(&self) -> Vec<Asked> {
        let width = (self.key("hidden_size"), self.hidden_size);
        let table = |name: &str, rows| Asked::new(format!("embeddings.{name}_embeddings.weight"), &[rows, width]);
        let mut tensors = vec![
            table("word", ("vocab_size", self.vocab_size)),
            table("position", ("max_position_embeddings", self.max_position_embeddings)),
        ];
        if self.has_types() {
            tensors.push(table("token_type", ("type_vocab_size", self.type_vocab_size)));
        }
        tensors.extend(norm("embeddings.layer_norm", width));
        tensors
    }

    fn layer(&self, layer: usize) -> Vec<Asked> {
        let [width, wide] = [("hidden_size", self.hidden_size), ("intermediate_size", self.intermediate_size)]
            .map(|(key, size)| (self.key(key), size));
        let at = format!("encoder.layer.{layer}");
        let map = |name: &str, out, into| linear(&format!("{at}.{name}"), out, into);
        let attention =
            ["query", "key", "value"].map(|name| map(&format!("attention.self_attention.{name}"), width, width));
        let rest = [
            map("attention.output.dense", width, width),
            norm(&format!("{at}.attention.output.layer_norm"), width),
            map("intermediate.dense", wide, width),
            map("output.dense", width, wide),
            norm(&format!("{at}.output.layer_norm"), width),
        ];
        [attention.concat(), rest.concat()].concat()
    }

    /// Reads the keys of a Hugging Face `config.json`. Keys that do not affect the network are ignored.
    ///
    /// # Errors
    /// When the file is of another architecture, needs an unsupported feature, or has a value of the wrong type.
    pub fn from_hf(json: &Map<String, Value>) -> Result<Self, ConfigError> {
        refuse_what_is_not_there(json)?;
        let json = &with_names_of_bert(json);
        let required = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"];
        let mut config: Self = read_known(json, &required, &[])?;
        if json.get("pad_token_id").is_none_or(Value::is_null) {
            config.pad_token_id = config.model_type.default_pad();
        }
        config.validate()?;
        Ok(config)
    }

    /// Writes this configuration's keys into `json`, as the `config.json` of a bare encoder. Other keys stay.
    pub fn write_hf(&self, json: &mut Map<String, Value>) {
        if let Ok(Value::Object(own)) = serde_json::to_value(self) {
            json.extend(own);
        }
        json.insert("architectures".into(), vec![format!("{}Model", self.model_type.class())].into());
        json.insert("hidden_act".into(), "gelu".into());
        if self.model_type == TextModelType::Distilbert {
            for (name, own) in OF_DISTILBERT {
                let value = json.shift_remove(name).unwrap_or_default();
                json.insert(own.into(), value);
            }
            NOT_OF_DISTILBERT.iter().for_each(|name| drop(json.shift_remove(*name)));
        }
    }

    /// Maximum sequence length, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_position_embeddings - self.first_position()
    }

    /// Position of a sequence's first token.
    pub(super) fn first_position(&self) -> usize {
        if self.model_type.is_bert() { 0 } else { self.pad_token_id as usize + 1 }
    }
}

/// Returns the keys of a `config.json` under BERT's names, as transformers' own configurations answer to them.
fn with_names_of_bert(json: &Map<String, Value>) -> Map<String, Value> {
    let mut json = json.clone();
    if json.get("model_type").is_some_and(|name| name == "distilbert") {
        NOT_OF_DISTILBERT.iter().for_each(|name| drop(json.shift_remove(*name)));
        for (name, own) in OF_DISTILBERT {
            if let Some(value) = json.shift_remove(own) {
                json.insert(name.into(), value);
            }
        }
    }
    json
}

/// Returns an error for a key that requests an unsupported feature.
fn refuse_what_is_not_there(json: &Map<String, Value>) -> Result<(), ConfigError> {
    let foreign = |reason: String| Err(ConfigError::Other(reason));
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    match text("model_type") {
        None => {
            return foreign(
                "`model_type` is missing: text encoders are `bert`, `distilbert`, `roberta`, `xlm-roberta` and `camembert`".into(),
            );
        }
        Some("bert" | "distilbert" | "roberta" | "xlm-roberta" | "camembert") => {}
        Some(other) => {
            return foreign(format!(
                "`model_type` is `{other}`: text encoders are `bert`, `distilbert`, `roberta`, `xlm-roberta` and `camembert`"
            ));
        }
    }
    let activation = if text("model_type") == Some("distilbert") { "activation" } else { "hidden_act" };
    for (key, only) in [(activation, "gelu"), ("position_embedding_type", "absolute")] {
        if let Some(other) = text(key).filter(|name| *name != only) {
            return foreign(format!("`{key}` is `{other}`: only `{only}` is there"));
        }
    }
    for key in ["is_decoder", "add_cross_attention"] {
        if json.get(key) == Some(&Value::Bool(true)) {
            return foreign(format!("`{key}` is true: these encoders see the whole text"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hf(json: &str) -> Result<TextEncoderConfig, ConfigError> {
        TextEncoderConfig::from_hf(&serde_json::from_str(json).expect("an object"))
    }

    const BASE: &str = r#""hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16, "vocab_size": 20"#;

    #[test]
    fn hf_configs_round_trip_and_keep_unknown_keys() {
        for model_type in [
            TextModelType::Bert,
            TextModelType::Roberta,
            TextModelType::XlmRoberta,
            TextModelType::Camembert,
            TextModelType::Distilbert,
        ] {
            let mut json: Map<String, Value> =
                serde_json::from_str(r#"{"use_cache": true, "classifier_dropout": null}"#).expect("an object");
            let config = TextEncoderConfig { model_type, hidden_size: 24, pad_token_id: 3, ..Default::default() };
            config.write_hf(&mut json);
            assert_eq!((&json["use_cache"], &json["classifier_dropout"]), (&Value::Bool(true), &Value::Null));
            assert_eq!(TextEncoderConfig::from_hf(&json), Ok(config));
        }
    }

    #[test]
    fn the_tensors_asked_for_are_those_of_the_network() {
        let config =
            TextEncoderConfig { vocab_size: 30, max_position_embeddings: 9, ..TextEncoderConfig::new(6, 10, 2, 2) };
        let asked: BTreeMap<String, Vec<usize>> =
            config.tensors().map(|tensor| (tensor.path.clone(), tensor.shape())).collect();
        let infos = undertone_store::parameter_infos(&config.init(&Default::default()));
        assert_eq!(asked, infos.into_iter().map(|p| (p.name, p.shape)).collect());
    }

    #[test]
    fn what_is_not_said_is_what_transformers_takes() {
        let padding = |model_type: &str| {
            let heads = r#""num_attention_heads": 2, "pad_token_id": null"#;
            hf(&format!(r#"{{"model_type": "{model_type}", {BASE}, {heads}}}"#)).expect("an encoder")
        };
        assert_eq!((padding("bert").pad_token_id, padding("bert").max_tokens()), (0, 512));
        assert_eq!((padding("roberta").pad_token_id, padding("roberta").max_tokens()), (1, 510));
    }

    #[test]
    fn refusals_name_the_key() {
        let bert = r#""model_type": "bert""#;
        let heads = r#""num_attention_heads": 2"#;
        let with = |key: &str, value: &str| format!(r#"{bert}, {heads}, "{key}": {value}"#);
        for (json, culprit) in [
            (heads.to_owned(), "`model_type`"),
            (format!(r#""model_type": "deberta-v2", {heads}"#), "`deberta-v2`"),
            (bert.to_owned(), "`num_attention_heads` is missing"),
            (format!(r#"{bert}, "num_attention_heads": 3"#), "`num_attention_heads` is 3"),
            (with("hidden_act", r#""relu""#), "`hidden_act`"),
            (with("position_embedding_type", r#""relative_key""#), "`position_embedding_type`"),
            (with("is_decoder", "true"), "`is_decoder`"),
            (with("add_cross_attention", "true"), "`add_cross_attention`"),
            (with("type_vocab_size", "0"), "`type_vocab_size`"),
            (with("layer_norm_eps", "0.0"), "`layer_norm_eps`"),
            (with("hidden_dropout_prob", "1.0"), "`hidden_dropout_prob`"),
            (with("pad_token_id", "20"), "`pad_token_id`"),
            (with("max_position_embeddings", r#""many""#), "many"),
            (with("max_position_embeddings", "1000000000000"), "`max_position_embeddings` is 1000000000000"),
            (with("type_vocab_size", "100000000"), "`type_vocab_size` is 100000000"),
            (format!(r#""model_type": "roberta", {heads}, "max_position_embeddings": 2"#), "`max_position_embeddings`"),
            (r#""model_type": "distilbert", "n_heads": 3"#.into(), "`n_heads` is 3: must divide dim"),
            (r#""model_type": "distilbert", "n_heads": 2, "activation": "relu""#.into(), "`activation` is `relu`"),
        ] {
            let error = hf(&format!("{{{BASE}, {json}}}")).expect_err(&json).to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
