//! Options beyond OpenAI's architecture, for compact models.

use super::config::WhisperConfig;
use super::options::{EncoderBlock, PositionEmbeddings};
use crate::config_error::{ConfigError, invalid};
use crate::shapes::Axis;

/// Default kernel size of a Conformer block's convolution, as in wav2vec 2.0's Conformer.
const CONV_KERNEL: usize = 31;

impl WhisperConfig {
    /// `model_type` in the `config.json` of a model with an option.
    pub const COMPACT: &str = "compact_whisper";

    /// Returns the first option that OpenAI's architecture lacks, such as `` `encoder_block` is `conformer` ``; `None` for a
    /// model that other programs can hold.
    pub fn own_option(&self) -> Option<String> {
        let [encoder, decoder] = self.key_value_heads();
        let is_conformer = self.encoder_block == EncoderBlock::Conformer;
        let is_rotary = self.position_embeddings_type == PositionEmbeddings::Rotary;
        let options = [
            (is_conformer, "encoder_block", "`conformer`".to_owned()),
            (is_rotary, "position_embeddings_type", "`rotary`".to_owned()),
            (encoder != self.encoder_attention_heads, "encoder_key_value_heads", encoder.to_string()),
            (decoder != self.decoder_attention_heads, "decoder_key_value_heads", decoder.to_string()),
            (self.is_factorised(), "embedding_size", self.embedding_width().to_string()),
            (self.scale_embedding, "scale_embedding", "true".to_owned()),
        ];
        let found = options.into_iter().find(|(is_on, ..)| *is_on);
        found.map(|(_, key, value)| format!("`{key}` is {value}"))
    }

    /// Number of heads of keys and values, in the encoder and in the decoder.
    pub fn key_value_heads(&self) -> [usize; 2] {
        [
            self.encoder_key_value_heads.unwrap_or(self.encoder_attention_heads),
            self.decoder_key_value_heads.unwrap_or(self.decoder_attention_heads),
        ]
    }

    /// Widths of keys and values, in the encoder and in the decoder.
    pub fn key_value_widths(&self) -> [usize; 2] {
        let [encoder, decoder] = self.key_value_heads();
        [
            encoder * (self.d_model / self.encoder_attention_heads),
            decoder * (self.d_model / self.decoder_attention_heads),
        ]
    }

    /// Width of the token embedding.
    pub fn embedding_width(&self) -> usize {
        self.embedding_size.unwrap_or(self.d_model)
    }

    /// Whether a projection brings the token embedding to the width of the decoder.
    pub fn is_factorised(&self) -> bool {
        self.embedding_width() != self.d_model
    }

    /// Kernel size of a Conformer block's convolution.
    pub fn conv_kernel(&self) -> usize {
        self.conv_kernel_size.unwrap_or(CONV_KERNEL)
    }

    /// Second axis of the token embedding.
    pub(super) fn token_axis(&self) -> Axis {
        (if self.is_factorised() { "embedding_size" } else { "d_model" }, self.embedding_width())
    }

    /// Checks that the options fit the sizes.
    pub(super) fn check_options(&self) -> Result<(), ConfigError> {
        let [encoder, decoder] = self.key_value_heads();
        for (key, shared, of, heads) in [
            ("encoder_key_value_heads", encoder, "encoder_attention_heads", self.encoder_attention_heads),
            ("decoder_key_value_heads", decoder, "decoder_attention_heads", self.decoder_attention_heads),
        ] {
            if !heads.is_multiple_of(shared) {
                return Err(invalid(key, shared, &format!("must divide {of}, which is {heads}")));
            }
        }
        if self.embedding_width() > self.d_model {
            let rule = format!("must be at most d_model, which is {}", self.d_model);
            return Err(invalid("embedding_size", self.embedding_width(), &rule));
        }
        if let Some(kernel) = self.conv_kernel_size {
            if self.encoder_block == EncoderBlock::Transformer {
                return Err(invalid("conv_kernel_size", kernel, "is for `encoder_block: conformer`; leave it out"));
            }
            if kernel.is_multiple_of(2) {
                return Err(invalid("conv_kernel_size", kernel, "must be odd, to see as far back as ahead"));
            }
        }
        let d_head = self.d_model / self.encoder_attention_heads;
        if self.position_embeddings_type == PositionEmbeddings::Rotary && !d_head.is_multiple_of(2) {
            let rule =
                format!("makes heads of width {d_head}, and `position_embeddings_type: rotary` needs an even one");
            return Err(invalid("encoder_attention_heads", self.encoder_attention_heads, &rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::OPTIONS;
    use super::*;
    use serde_json::{Map, Value};

    fn small(change: impl FnOnce(&mut WhisperConfig)) -> WhisperConfig {
        let mut config = WhisperConfig::new(24, 1536, 4, [4, 4]);
        change(&mut config);
        config
    }

    /// A model with every option.
    fn compact() -> WhisperConfig {
        small(|c| {
            c.encoder_block = EncoderBlock::Conformer;
            c.conv_kernel_size = Some(7);
            c.position_embeddings_type = PositionEmbeddings::Rotary;
            (c.encoder_key_value_heads, c.decoder_key_value_heads) = (Some(2), Some(1));
            c.embedding_size = Some(8);
        })
    }

    #[test]
    fn a_stock_model_is_written_without_options() {
        // Options may also be given with the values that mean nothing.
        let stock = small(|c| {
            (c.encoder_key_value_heads, c.decoder_key_value_heads, c.embedding_size) = (Some(4), Some(4), Some(24));
        });
        for (config, model_type) in
            [(small(|_| ()), "whisper"), (stock, "whisper"), (compact(), WhisperConfig::COMPACT)]
        {
            assert_eq!(config.validate(), Ok(()));
            assert_eq!(config.own_option().is_none(), model_type == "whisper");
            let mut json = Map::new();
            config.write_hf(&mut json);
            assert_eq!(json["model_type"], model_type);
            let options = OPTIONS.iter().filter(|key| json.contains_key(**key)).count();
            assert_eq!(options, if model_type == WhisperConfig::COMPACT { OPTIONS.len() } else { 0 });
            let read = WhisperConfig::from_hf(&json).expect("a model");
            assert_eq!(read.own_option(), config.own_option());
            assert!(read.tensors().eq(config.tensors()));
        }
        let Ok(Value::Object(json)) = serde_json::to_value(compact()) else { panic!("no object") };
        assert!(OPTIONS.iter().all(|key| json.contains_key(*key)), "{json:?}");
    }

    #[test]
    fn options_that_do_not_fit_are_refused_by_name() {
        type Spoil = fn(&mut WhisperConfig);
        let cases: [(Spoil, &str); 9] = [
            (|c| c.encoder_key_value_heads = Some(3), "must divide encoder_attention_heads, which is 4"),
            (|c| c.decoder_key_value_heads = Some(3), "must divide decoder_attention_heads, which is 4"),
            (|c| c.decoder_key_value_heads = Some(0), "`decoder_key_value_heads` is 0"),
            (|c| c.embedding_size = Some(25), "`embedding_size` is 25: must be at most d_model"),
            (|c| c.embedding_size = Some(0), "`embedding_size` is 0"),
            (|c| c.conv_kernel_size = Some(31), "is for `encoder_block: conformer`"),
            (
                |c| (c.encoder_block, c.conv_kernel_size) = (EncoderBlock::Conformer, Some(30)),
                "`conv_kernel_size` is 30: must be odd",
            ),
            (|c| c.conv_kernel_size = Some(usize::MAX), "`conv_kernel_size` is"),
            (
                |c| (c.position_embeddings_type, c.encoder_attention_heads) = (PositionEmbeddings::Rotary, 8),
                "makes heads of width 3",
            ),
        ];
        for (spoil, expected) in cases {
            let error = small(spoil).validate().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn tensors_are_those_of_the_network() {
        let stock = WhisperConfig {
            decoder_ffn_dim: 20,
            num_mel_bins: 5,
            vocab_size: 30,
            max_source_positions: 7,
            max_target_positions: 9,
            ..WhisperConfig::new(8, 12, 2, [2, 1])
        };
        let compact = WhisperConfig { vocab_size: 30, encoder_layers: 2, decoder_layers: 1, ..compact() };
        for config in [stock, compact] {
            let mut asked: Vec<_> = config.tensors().map(|tensor| (tensor.path.clone(), tensor.shape())).collect();
            let infos = undertone_store::parameter_infos(&config.init(&Default::default()));
            let mut found: Vec<_> = infos.into_iter().map(|p| (p.name, p.shape)).collect();
            asked.sort();
            found.sort();
            assert_eq!(asked, found);
            let count: u128 = asked.iter().map(|(_, shape)| shape.iter().product::<usize>() as u128).sum();
            assert_eq!(config.parameters(), count);
        }
    }
}
