//! Whisper's dimensions, under Hugging Face's names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The dimensions of a Whisper model; the defaults are those of tiny.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhisperConfig {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Blocks in the encoder.
    pub encoder_layers: usize,
    /// Blocks in the decoder.
    pub decoder_layers: usize,
    /// Attention heads in the encoder.
    pub encoder_attention_heads: usize,
    /// Attention heads in the decoder.
    pub decoder_attention_heads: usize,
    /// Width of the encoder's feed-forward layers.
    pub encoder_ffn_dim: usize,
    /// Width of the decoder's feed-forward layers.
    pub decoder_ffn_dim: usize,
    /// Mel bins of the input: 80, or 128 from large-v3 on.
    pub num_mel_bins: usize,
    /// Tokens the decoder knows.
    pub vocab_size: usize,
    /// Encoder positions: 1500 of 20 ms each are 30 s.
    pub max_source_positions: usize,
    /// The longest token sequence, prompt included.
    pub max_target_positions: usize,
    /// Dropout after attention and feed-forward blocks, in training.
    pub dropout: f64,
    /// Dropout on attention weights, in training.
    pub attention_dropout: f64,
    /// Dropout inside the feed-forward layers, in training.
    pub activation_dropout: f64,
    /// Whether token embeddings are scaled by √d_model.
    pub scale_embedding: bool,
    /// Standard deviation of freshly initialised weights.
    pub init_std: f64,
    /// The token that starts every decoder sequence.
    pub decoder_start_token_id: u32,
    /// The token that ends every decoder sequence.
    pub eos_token_id: u32,
    /// The token a batch is padded with; never part of a loss.
    pub pad_token_id: u32,
}

impl Default for WhisperConfig {
    fn default() -> Self {
        Self {
            d_model: 384,
            encoder_layers: 4,
            decoder_layers: 4,
            encoder_attention_heads: 6,
            decoder_attention_heads: 6,
            encoder_ffn_dim: 1536,
            decoder_ffn_dim: 1536,
            num_mel_bins: 80,
            vocab_size: 51865,
            max_source_positions: 1500,
            max_target_positions: 448,
            dropout: 0.0,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            scale_embedding: false,
            init_std: 0.02,
            decoder_start_token_id: 50258,
            eos_token_id: 50257,
            pad_token_id: 50257,
        }
    }
}

/// Why a configuration describes no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WhisperConfigError {
    /// A value is outside what the architecture allows.
    #[error("`{key}` is {value}: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A `config.json` that is not a Whisper's.
    #[error("{0}")]
    NotWhisper(String),
}

impl WhisperConfig {
    /// Checks that the dimensions fit together.
    ///
    /// # Errors
    /// Names the first key that does not.
    pub fn validate(&self) -> Result<(), WhisperConfigError> {
        let positive: [(&'static str, usize); 9] = [
            ("d_model", self.d_model),
            ("encoder_attention_heads", self.encoder_attention_heads),
            ("decoder_attention_heads", self.decoder_attention_heads),
            ("encoder_ffn_dim", self.encoder_ffn_dim),
            ("decoder_ffn_dim", self.decoder_ffn_dim),
            ("num_mel_bins", self.num_mel_bins),
            ("vocab_size", self.vocab_size),
            ("max_source_positions", self.max_source_positions),
            ("max_target_positions", self.max_target_positions),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(invalid(key, value, "must be at least 1"));
            }
        }
        // The sinusoids come in sine/cosine pairs, and `ln(10000) / (d_model / 2 - 1)` needs two of them.
        if !self.d_model.is_multiple_of(2) || self.d_model < 4 {
            return Err(invalid("d_model", self.d_model, "must be even and at least 4"));
        }
        for (key, heads) in [
            ("encoder_attention_heads", self.encoder_attention_heads),
            ("decoder_attention_heads", self.decoder_attention_heads),
        ] {
            if !self.d_model.is_multiple_of(heads) {
                return Err(invalid(key, heads, &format!("must divide d_model, which is {}", self.d_model)));
            }
        }
        for (key, p) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(invalid(key, p, "must be at least 0 and below 1"));
            }
        }
        if !(self.init_std.is_finite() && self.init_std > 0.0) {
            return Err(invalid("init_std", self.init_std, "must be above 0"));
        }
        for (key, id) in [
            ("decoder_start_token_id", self.decoder_start_token_id),
            ("eos_token_id", self.eos_token_id),
            ("pad_token_id", self.pad_token_id),
        ] {
            if id as usize >= self.vocab_size {
                return Err(invalid(key, id, &format!("must be below vocab_size, which is {}", self.vocab_size)));
            }
        }
        Ok(())
    }

    /// Reads the keys of a Hugging Face `config.json`; keys that do not shape the network are left alone.
    ///
    /// # Errors
    /// When it is another architecture's, uses something this network has not, or a value is of the wrong type.
    pub fn from_hf(json: &Map<String, Value>) -> Result<Self, WhisperConfigError> {
        let text = |key: &str| json.get(key).and_then(Value::as_str);
        if let Some(other) = text("model_type").filter(|name| *name != "whisper") {
            return Err(WhisperConfigError::NotWhisper(format!("`model_type` is `{other}`, not `whisper`")));
        }
        if let Some(other) = text("activation_function").filter(|name| *name != "gelu") {
            return Err(WhisperConfigError::NotWhisper(format!(
                "`activation_function` is `{other}`; Whisper's is `gelu`"
            )));
        }
        let Value::Object(defaults) = serde_json::to_value(Self::default()).unwrap_or_default() else {
            return Err(WhisperConfigError::NotWhisper("the default configuration is no JSON object".into()));
        };
        let known: Map<String, Value> = json
            .iter()
            .filter(|(key, value)| defaults.contains_key(*key) && !value.is_null())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        for required in ["d_model", "encoder_layers", "decoder_layers", "num_mel_bins", "vocab_size"] {
            if !known.contains_key(required) {
                return Err(WhisperConfigError::NotWhisper(format!("`{required}` is missing")));
            }
        }
        let config: Self =
            serde_json::from_value(Value::Object(known)).map_err(|e| WhisperConfigError::NotWhisper(e.to_string()))?;
        config.validate()?;
        Ok(config)
    }

    /// Writes this configuration's keys over `json`, keeping what else is there, as a Hugging Face `config.json`.
    pub fn write_hf(&self, json: &mut Map<String, Value>) {
        if let Ok(Value::Object(own)) = serde_json::to_value(self) {
            json.extend(own);
        }
        for (key, value) in [
            ("model_type", Value::from("whisper")),
            ("architectures", Value::from(vec!["WhisperForConditionalGeneration"])),
            ("activation_function", Value::from("gelu")),
            ("is_encoder_decoder", Value::from(true)),
            ("tie_word_embeddings", Value::from(true)),
        ] {
            json.insert(key.to_owned(), value);
        }
        json.entry("bos_token_id").or_insert(Value::from(self.eos_token_id));
    }

    /// The longest input in feature frames (10 ms each): the second convolution halves them.
    pub fn max_frames(&self) -> usize {
        2 * self.max_source_positions
    }
}

fn invalid(key: &'static str, value: impl ToString, rule: &str) -> WhisperConfigError {
    WhisperConfigError::Value { key, value: value.to_string(), rule: rule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hf(json: &str) -> Result<WhisperConfig, WhisperConfigError> {
        WhisperConfig::from_hf(&serde_json::from_str(json).expect("an object"))
    }

    #[test]
    fn hf_configs_round_trip_and_keep_unknown_keys() {
        let mut json: Map<String, Value> = serde_json::from_str(r#"{"torch_dtype": "float16"}"#).expect("an object");
        let config =
            WhisperConfig { d_model: 64, encoder_attention_heads: 4, decoder_attention_heads: 4, ..Default::default() };
        config.write_hf(&mut json);
        assert_eq!(json["torch_dtype"], "float16");
        assert_eq!(WhisperConfig::from_hf(&json), Ok(config));
    }

    #[test]
    fn refusals_name_the_key() {
        let base = r#""d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 80, "decoder_attention_heads": 2"#;
        for (json, culprit) in [
            (r#"{"model_type": "bert"}"#.to_owned(), "model_type"),
            (r#"{"model_type": "whisper", "d_model": 8}"#.to_owned(), "encoder_layers"),
            (format!(r#"{{{base}, "vocab_size": 60000, "encoder_attention_heads": 3}}"#), "encoder_attention_heads"),
            (format!(r#"{{{base}, "vocab_size": 10, "encoder_attention_heads": 2}}"#), "decoder_start_token_id"),
            (format!(r#"{{{base}, "vocab_size": "many", "encoder_attention_heads": 2}}"#), "many"),
            (format!(r#"{{{base}, "vocab_size": 60000, "activation_function": "relu"}}"#), "activation_function"),
        ] {
            let error = hf(&json).expect_err(&json).to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
