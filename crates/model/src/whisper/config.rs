//! Dimensions of a Whisper model, under Hugging Face's names.

use super::options::{EncoderBlock, OPTIONS, PositionEmbeddings};
use crate::config_error::{ConfigError, invalid, read_known};
use crate::limits::{LARGEST_DIMENSION, MOST_LAYERS, MOST_NEW_PARAMETERS, MOST_PARAMETERS, MOST_POSITIONS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Names that transformers has for sizes of the encoder in any model.
const ALIASES: [&str; 4] = ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"];

/// Dimensions of a Whisper model; the defaults are those of tiny.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WhisperConfig {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of the token embedding, which a projection brings to `d_model` (factorised as in ALBERT); it is also the output
    /// layer. Default: `d_model`, without a projection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_size: Option<usize>,
    /// Kind of the encoder's blocks.
    #[serde(skip_serializing_if = "is_default")]
    pub encoder_block: EncoderBlock,
    /// Kernel size of a Conformer block's convolution, in encoder positions; odd. Default: 31, with `encoder_block: conformer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conv_kernel_size: Option<usize>,
    /// Positions of the encoder.
    #[serde(skip_serializing_if = "is_default")]
    pub position_embeddings_type: PositionEmbeddings,
    /// Number of encoder blocks.
    pub encoder_layers: usize,
    /// Number of decoder blocks.
    pub decoder_layers: usize,
    /// Number of attention heads in the encoder.
    pub encoder_attention_heads: usize,
    /// Number of attention heads in the decoder.
    pub decoder_attention_heads: usize,
    /// Number of heads of keys and values in the encoder (grouped-query attention); divides `encoder_attention_heads`.
    /// Default: as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_key_value_heads: Option<usize>,
    /// Number of heads of keys and values in the decoder, in both of its attentions; divides `decoder_attention_heads`.
    /// Default: as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_key_value_heads: Option<usize>,
    /// Width of the encoder's feed-forward layers.
    pub encoder_ffn_dim: usize,
    /// Width of the decoder's feed-forward layers.
    pub decoder_ffn_dim: usize,
    /// Number of mel bins of the input: 80, or 128 from large-v3 on.
    pub num_mel_bins: usize,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Number of encoder positions: 1500 of 20 ms each are 30 s.
    pub max_source_positions: usize,
    /// Maximum length of a token sequence, prompt included.
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
    /// Token that starts every decoder sequence.
    pub decoder_start_token_id: u32,
    /// Token that ends every decoder sequence.
    pub eos_token_id: u32,
    /// Padding token of a batch; never part of a loss.
    pub pad_token_id: u32,
}

impl Default for WhisperConfig {
    fn default() -> Self {
        Self {
            d_model: 384,
            embedding_size: None,
            encoder_block: EncoderBlock::default(),
            conv_kernel_size: None,
            position_embeddings_type: PositionEmbeddings::default(),
            encoder_layers: 4,
            decoder_layers: 4,
            encoder_attention_heads: 6,
            decoder_attention_heads: 6,
            encoder_key_value_heads: None,
            decoder_key_value_heads: None,
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

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl WhisperConfig {
    /// Dimensions of a model of this width, with feed-forward layers of width `d_ff`, attentions with so many heads, and
    /// `layers` blocks in `[encoder, decoder]`; everything else is as in tiny.
    pub fn new(d_model: usize, d_ff: usize, heads: usize, layers: [usize; 2]) -> Self {
        let [encoder_layers, decoder_layers] = layers;
        Self {
            d_model,
            encoder_layers,
            decoder_layers,
            encoder_attention_heads: heads,
            decoder_attention_heads: heads,
            encoder_ffn_dim: d_ff,
            decoder_ffn_dim: d_ff,
            ..Default::default()
        }
    }

    /// Checks that the dimensions fit together.
    ///
    /// # Errors
    /// Names the first invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_sizes()?;
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
        self.check_options()?;
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

    /// Rejects dimensions of 0 or beyond the limits.
    fn check_sizes(&self) -> Result<(), ConfigError> {
        let [encoder_key_value_heads, decoder_key_value_heads] = self.key_value_heads();
        let positive: [(&'static str, usize); 13] = [
            ("d_model", self.d_model),
            ("encoder_attention_heads", self.encoder_attention_heads),
            ("decoder_attention_heads", self.decoder_attention_heads),
            ("encoder_ffn_dim", self.encoder_ffn_dim),
            ("decoder_ffn_dim", self.decoder_ffn_dim),
            ("num_mel_bins", self.num_mel_bins),
            ("vocab_size", self.vocab_size),
            ("max_source_positions", self.max_source_positions),
            ("max_target_positions", self.max_target_positions),
            ("embedding_size", self.embedding_width()),
            ("encoder_key_value_heads", encoder_key_value_heads),
            ("decoder_key_value_heads", decoder_key_value_heads),
            ("conv_kernel_size", self.conv_kernel()),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(invalid(key, value, "must be at least 1"));
            }
            let most = if key.ends_with("_positions") { MOST_POSITIONS } else { LARGEST_DIMENSION };
            if value > most {
                return Err(invalid(key, value, &format!("must be at most {most}")));
            }
        }
        for (key, layers) in [("encoder_layers", self.encoder_layers), ("decoder_layers", self.decoder_layers)] {
            if layers > MOST_LAYERS {
                return Err(invalid(key, layers, &format!("must be at most {MOST_LAYERS}")));
            }
        }
        let parameters = self.parameters();
        if parameters > u128::from(MOST_PARAMETERS) {
            let rule = format!("makes a model of {parameters} parameters, and there is none above {MOST_PARAMETERS}");
            return Err(invalid("d_model", self.d_model, &rule));
        }
        Ok(())
    }

    /// Rejects a model of invalid dimensions, or of more parameters than may be initialised ([`MOST_NEW_PARAMETERS`]).
    ///
    /// # Errors
    /// Names the key, or states the number of parameters.
    pub fn check_new(&self) -> Result<(), ConfigError> {
        self.check_sizes()?;
        self.check_options()?;
        let parameters = self.parameters();
        match parameters > u128::from(MOST_NEW_PARAMETERS) {
            true => Err(ConfigError::TooLarge { parameters, fewer: "layers or positions" }),
            false => Ok(()),
        }
    }

    /// Reads the keys of a Hugging Face `config.json`. Keys that do not affect the network are ignored.
    ///
    /// # Errors
    /// When the file is of another architecture, needs an unsupported feature, or has a value of the wrong type.
    pub fn from_hf(json: &Map<String, Value>) -> Result<Self, ConfigError> {
        let text = |key: &str| json.get(key).and_then(Value::as_str);
        if let Some(other) = text("model_type").filter(|name| !["whisper", Self::COMPACT].contains(name)) {
            return Err(ConfigError::Other(format!("`model_type` is `{other}`, not `whisper`")));
        }
        if let Some(other) = text("activation_function").filter(|name| *name != "gelu") {
            return Err(ConfigError::Other(format!("`activation_function` is `{other}`; Whisper's is `gelu`")));
        }
        let required = ["d_model", "encoder_layers", "decoder_layers", "num_mel_bins", "vocab_size"];
        let mut config: Self = read_known(json, &required, &OPTIONS)?;
        // transformers reads the key and scales nothing.
        config.scale_embedding &= text("model_type") == Some(Self::COMPACT);
        config.validate()?;
        Ok(config)
    }

    /// Writes this configuration's keys into `json`, as a Hugging Face `config.json`. Other keys stay. A model with an
    /// [own option](Self::own_option) has a `model_type` of its own, because transformers would ignore the option.
    pub fn write_hf(&self, json: &mut Map<String, Value>) {
        if let Ok(Value::Object(own)) = serde_json::to_value(self) {
            json.extend(own);
        }
        let (model_type, architecture) = match self.own_option() {
            Some(_) => (Self::COMPACT, "CompactWhisperForConditionalGeneration"),
            None => ("whisper", "WhisperForConditionalGeneration"),
        };
        // Other names of the same sizes, from a model of which this one keeps a part: transformers 5 would take these.
        json.retain(|key, _| !ALIASES.contains(&key.as_str()));
        if model_type != Self::COMPACT {
            json.retain(|key, _| !OPTIONS.contains(&key.as_str()));
        }
        for (key, value) in [
            ("model_type", Value::from(model_type)),
            ("architectures", Value::from(vec![architecture])),
            ("activation_function", Value::from("gelu")),
            ("is_encoder_decoder", Value::from(true)),
            ("tie_word_embeddings", Value::from(true)),
        ] {
            json.insert(key.to_owned(), value);
        }
        json.entry("bos_token_id").or_insert(Value::from(self.eos_token_id));
    }

    /// Maximum input length in feature frames (10 ms each): the second convolution halves them.
    pub fn max_frames(&self) -> usize {
        2 * self.max_source_positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hf(json: &str) -> Result<WhisperConfig, ConfigError> {
        WhisperConfig::from_hf(&serde_json::from_str(json).expect("an object"))
    }

    #[test]
    fn hf_configs_round_trip_and_keep_unknown_keys() {
        let mut json: Map<String, Value> = serde_json::from_str(r#"{"torch_dtype": "float16"}"#).expect("an object");
        let config = WhisperConfig::new(64, 256, 4, [2, 1]);
        config.write_hf(&mut json);
        assert_eq!(json["torch_dtype"], "float16");
        assert_eq!(WhisperConfig::from_hf(&json), Ok(config));
    }

    #[test]
    fn other_names_of_sizes_are_not_kept() {
        let mut json = serde_json::from_str(r#"{"num_hidden_layers": 6, "num_attention_heads": 8, "use_cache": true}"#)
            .expect("an object");
        let config = WhisperConfig { encoder_layers: 3, ..WhisperConfig::default() };
        config.write_hf(&mut json);
        assert_eq!((&json["encoder_layers"], &json["use_cache"]), (&Value::from(3), &Value::from(true)));
        assert!(ALIASES.iter().all(|alias| !json.contains_key(*alias)), "transformers 5 would take these: {json:?}");
    }

    #[test]
    fn sizes_that_no_machine_holds_are_refused_by_name() {
        type Spoil = fn(&mut WhisperConfig, usize);
        let keys: [(&str, Spoil); 8] = [
            ("d_model", |c, n| c.d_model = n),
            ("encoder_layers", |c, n| c.encoder_layers = n),
            ("decoder_layers", |c, n| c.decoder_layers = n),
            ("encoder_ffn_dim", |c, n| c.encoder_ffn_dim = n),
            ("num_mel_bins", |c, n| c.num_mel_bins = n),
            ("vocab_size", |c, n| c.vocab_size = n),
            ("max_source_positions", |c, n| c.max_source_positions = n),
            ("max_target_positions", |c, n| c.max_target_positions = n),
        ];
        for (key, spoil) in keys {
            for value in [1 << 25, 1 << 40, usize::MAX - 1] {
                let mut config = WhisperConfig::default();
                spoil(&mut config, value);
                let error = config.validate().expect_err(key).to_string();
                assert!(error.contains(key) && error.contains("at most"), "{error}");
            }
        }
        // Each of its sizes is valid, but not all of them together.
        let whole = WhisperConfig { d_model: 1 << 23, ..Default::default() };
        assert!(whole.validate().expect_err("refused").to_string().contains("parameters"));
        let large = WhisperConfig { d_model: 16_384, ..Default::default() };
        let whole = WhisperConfig { encoder_attention_heads: 1, decoder_attention_heads: 1, ..large };
        assert_eq!(whole.validate(), Ok(()));
        assert!(matches!(whole.check_new(), Err(ConfigError::TooLarge { .. })));
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
